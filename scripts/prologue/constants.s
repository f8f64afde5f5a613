# Numbers of the kernel's, and what lies where in the workspace.
    .intel_syntax noprefix

FRAME = 8 * 16          # fifteen registers and the flags

SYS_READ = 0
SYS_WRITE = 1
SYS_CLOSE = 3
SYS_POLL = 7
SYS_LSEEK = 8
SYS_MMAP = 9
SYS_MUNMAP = 11
SYS_RT_SIGACTION = 13
SYS_SOCKET = 41
SYS_CONNECT = 42
SYS_SENDMSG = 46
SYS_SHUTDOWN = 48
SYS_SETSOCKOPT = 54
SYS_GETSOCKOPT = 55
SYS_GETEUID = 107
SYS_EXIT_GROUP = 231
SYS_OPENAT = 257
SYS_DUP3 = 292
SYS_MEMFD_CREATE = 319

ENOENT = 2
EINTR = 4
EAGAIN = 11
AT_FDCWD = -100
CLOSE_ON_EXEC = 0x80000 # O_CLOEXEC and SOCK_CLOEXEC
SOL_SOCKET = 1
SO_PEERCRED = 17
SO_SNDTIMEO = 21
MSG_NOSIGNAL = 0x4000
SIGPIPE = 13
POLLIN = 1
POLLOUT = 4
QUOTE = 0x22
BACKSLASH = 0x5c
NEWLINE = 0x0a

# The workspace: small structures, the request, then the reply. Smaller than a huge page, of which the first touch would
# clear all; pages that are not touched cost nothing.
WORKSPACE = 0x100000
SPARE = 0x00            # descriptor of a file in memory: standard input for the runtime, should it have to take over
NETNS = 0x04            # descriptor of the pod's namespace
NETNS_PATH = 0x08
ASKED = 0x10            # CLOSE_ON_EXEC once the request was sent, unless the service declines it
AT_END = 0x14           # standard input was read to its end
POLLED = 0x18           # struct pollfd
PIECE = 0x20            # struct iovec
MESSAGE = 0x30          # struct msghdr: its iovec at 16, control data at 32
TIMEOUT = 0x68          # struct timeval
LENGTH = 0x78
CREDENTIALS = 0x80      # struct ucred: the user at 4
CONTROL = 0x90          # struct cmsghdr with one descriptor
ACTION = 0xb0           # struct sigaction
ADDRESS = 0x100         # struct sockaddr_un
MAX_PATH = 108          # with the byte that ends it
HEAD = 0x200
HEAD_LIMIT = 0xf000
INPUT_LIMIT = 0xc0000
SILENCE_SECONDS = 4     # to connect and to send, as the other client
