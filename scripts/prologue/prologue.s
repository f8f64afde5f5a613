# What runs before the runtime when the executable is started as the CNI plugin `calico`: hand the call to the node's
# service, print its answer, end. In every other case, and whenever anything is not as expected, nothing has happened:
# registers, stack, descriptors and standard input are as they came, and the runtime starts and decides.
#
# The other client of the same wire is src/cni/service-client.ts; the wire is written down in src/cni/service-protocol.ts.
# GNU syntax: `as` makes the same bytes of this file as the assembler beside it does, which a test holds.
#
#   rbx  the saved registers; above them what the kernel left: argc, argv, 0, environment, 0
#   rbp  the workspace, 0 while there is none
#   r12  the connection, -1 while there is none
#   r13  the environment; then the end of the reply
#   r14  where standard input begins in the workspace, r15 where it ends: equal while nothing was taken of it
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

EINTR = 4
EAGAIN = 11
AT_FDCWD = -100
CLOSE_ON_EXEC = 0x80000 # O_CLOEXEC and SOCK_CLOEXEC
SOL_SOCKET = 1
SO_PEERCRED = 17
SO_RCVTIMEO = 20        # and SO_SNDTIMEO is the next
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
ASKED = 0x10            # CLOSE_ON_EXEC once the service was asked
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
REPLY_SECONDS = 180     # as the other client

entry:
    pushfq
    push rax
    push rcx
    push rdx
    push rbx
    push rbp
    push rsi
    push rdi
    push r8
    push r9
    push r10
    push r11
    push r12
    push r13
    push r14
    push r15
    mov rbx, rsp
    xor ebp, ebp
    cld

# Is this the plugin, called without a word? argv[0] ends in /calico.
    lea rsi, [rbx + FRAME]
    lodsq
    cmp rax, 1
    jne decline
    lodsq
    lea r13, [rsi + 8]          # the environment follows argv's end
after_slash:
    mov rsi, rax
find_slash:
    mov dl, [rax]
    inc rax
    cmp dl, '/'
    je after_slash
    test dl, dl
    jne find_slash
    lea rdx, [rip + name]
    call begins
    jne decline
    cmp byte ptr [rsi], 0
    jne decline

# Is there a command that the service handles?
    mov r14, r13
find_command:
    mov rsi, [r14]
    add r14, 8
    test rsi, rsi
    je decline
    lea rdx, [rip + command_is]
    call begins
    jne find_command
    mov rdi, rsi
    lea rdx, [rip + commands]
try_command:
    mov rsi, rdi
    call begins
    jne skip_command
    cmp byte ptr [rsi], 0
    je take_over
skip_command:
    mov al, [rdx]
    inc rdx
    test al, al
    jne skip_command
    cmp byte ptr [rdx], 0
    jne try_command
    jmp decline

# From here on there is something to undo.
take_over:
    xor edi, edi
    mov esi, WORKSPACE
    mov edx, 3                  # to read and write
    mov r10d, 0x22              # private, anonymous
    or r8, -1
    xor r9d, r9d
    mov eax, SYS_MMAP
    syscall
    cmp rax, -4095
    jae decline
    mov rbp, rax
    or r12, -1
    xor r14d, r14d
    xor r15d, r15d
    mov dword ptr [rbp + NETNS], r12d
    lea rdi, [rip + name]
    mov esi, 1                  # close on exec
    mov eax, SYS_MEMFD_CREATE   # before anything is taken: whether it can be given back must be known
    syscall
    mov [rbp + SPARE], eax
    cmp eax, 3
    jl decline                  # none, or in the place of a standard stream that is closed

# The request's head, {"env":{"CNI_COMMAND":"ADD",…}} and a newline: every variable that begins with CNI_, and one more.
    lea rdi, [rbp + HEAD]
    lea r9, [rbp + HEAD_LIMIT]
    lea rsi, [rip + head]
    mov ecx, 8
    rep movsb
next_variable:
    mov r8, [r13]
    add r13, 8
    test r8, r8
    je end_head
    mov rsi, r8
    lea rdx, [rip + times_are]  # who wants the times of the steps gets them from the other client
    call begins
    je decline
    mov rsi, r8
    lea rdx, [rip + netns_is]
    call begins
    jne no_netns
    mov [rbp + NETNS_PATH], rsi
no_netns:
    mov rsi, r8
    lea rdx, [rip + cni]
    call begins
    je put_variable
    mov rsi, r8
    lea rdx, [rip + prefix_is]
    call begins
    jne next_variable
put_variable:
    mov rsi, r8
    mov al, QUOTE
    stosb
    mov cl, '='                 # ends the name; afterwards 0, which ends nothing
put_byte:
    cmp rdi, r9                 # behind the limit there is room for what one byte can become, and for the head's end
    ja decline
    lodsb
    test al, al
    je end_variable
    cmp al, cl
    je end_name
    cmp al, ' '
    jb escape
    cmp al, QUOTE
    je escape
    cmp al, BACKSLASH
    je escape
    stosb
    jmp put_byte
end_name:
    mov eax, 0x223a22           # ":"
    stosd
    dec rdi
    xor ecx, ecx
    jmp put_byte
escape:
    mov dl, al
    mov eax, 0x3030755c         # \u00
    stosd
    mov al, dl
    shr al, 4
    call put_hex
    mov al, dl
    and al, 15
    call put_hex
    jmp put_byte
end_variable:
    test cl, cl
    jne decline                 # a variable without a value
    mov eax, 0x2c22             # ",
    stosw
    jmp next_variable
end_head:
    mov eax, 0x0a7d7d           # }} and the newline; the first in place of the last comma
    dec rdi
    stosd
    dec rdi

# The configuration, as it comes, behind the head.
    mov r14, rdi
    mov r15, rdi
read_input:
    lea rdx, [rbp + INPUT_LIMIT]
    sub rdx, r15
    je decline                  # too long for us
    call read_some
    test rax, rax
    js decline
    je end_input
    add r15, rax
    jmp read_input
end_input:
    mov byte ptr [rbp + AT_END], 1

# Whom to ask: the service at its usual place, unless the configuration's own service_socket names another.
# ecx is how deep in the JSON we are; r8 the path, r9 its length with the quote behind it.
    lea r8, [rip + usual_path]
    mov r9d, 25
    xor r10d, r10d              # set once the configuration has named one
    xor ecx, ecx
    mov rsi, r14
scan:
    cmp rsi, r15
    jae end_scan
    lodsb
    cmp al, QUOTE
    je begin_string
    or al, 0x20                 # [ and ] become { and }
    cmp al, '{'
    jne no_opening
    inc ecx
no_opening:
    cmp al, '}'
    jne scan
    dec ecx
    jmp scan
begin_string:
    mov rdi, rsi
scan_string:
    cmp rsi, r15
    jae decline                 # never ends: no JSON
    lodsb
    cmp al, QUOTE
    je end_string
    cmp al, BACKSLASH
    jne scan_string
    inc rsi
    jmp scan_string
end_string:
    cmp ecx, 1
    jne scan
    mov r11, rsi
    mov rsi, rdi
    lea rdx, [rip + socket_key]
    call begins
    mov rsi, r11
    jne scan
    call next_sign
    cmp al, ':'
    jne again                   # a value, not a key
    test r10d, r10d
    jne decline                 # named twice
    inc r10d
    call next_sign
    cmp al, QUOTE
    jne decline
    mov r8, rsi
scan_path:
    cmp rsi, r15
    jae decline
    lodsb
    cmp al, ' '
    jl decline                  # a control character, or not ASCII
    cmp al, BACKSLASH
    je decline
    cmp al, QUOTE
    jne scan_path
    mov r9, rsi
    sub r9, r8
    jmp scan
again:
    dec rsi
    jmp scan
end_scan:
    test ecx, ecx
    jne decline                 # cut short
    cmp r9, 1
    je decline                  # no path: no service is wanted
    cmp r9, MAX_PATH
    ja decline

# Connect. The service must be of our own user, as it asks of us; neither side may keep us waiting for ever.
    mov byte ptr [rbp + ADDRESS], 1     # AF_UNIX
    lea rdi, [rbp + ADDRESS + 2]
    mov rsi, r8
    mov ecx, r9d
    rep movsb
    mov byte ptr [rdi - 1], 0
    mov edi, 1                  # AF_UNIX
    mov esi, CLOSE_ON_EXEC + 1  # SOCK_STREAM
    xor edx, edx
    mov eax, SYS_SOCKET
    syscall
    mov r12d, eax
    test eax, eax
    js decline
    mov byte ptr [rbp + TIMEOUT], REPLY_SECONDS
    mov edx, SO_RCVTIMEO
    call set_timeout
    inc edx
    call set_timeout
    mov edi, r12d
    lea rsi, [rbp + ADDRESS]
    lea edx, [r9 + 2]
    mov eax, SYS_CONNECT
    syscall
    test eax, eax
    jne decline
    mov edi, r12d
    mov esi, SOL_SOCKET
    mov edx, SO_PEERCRED
    lea r10, [rbp + CREDENTIALS]
    lea r8, [rbp + LENGTH]
    mov byte ptr [r8], 12
    mov eax, SYS_GETSOCKOPT
    syscall
    test eax, eax
    jne decline
    mov eax, SYS_GETEUID
    syscall
    cmp eax, [rbp + CREDENTIALS + 4]
    jne decline

# The pod's namespace goes along as a descriptor. What a missing one means each command says.
    mov rsi, [rbp + NETNS_PATH]
    test rsi, rsi
    je send
    cmp byte ptr [rsi], 0
    je send
    mov edi, AT_FDCWD
    mov edx, CLOSE_ON_EXEC      # to read
    mov eax, SYS_OPENAT
    syscall
    test eax, eax
    js send
    mov [rbp + NETNS], eax
    lea rdx, [rbp + CONTROL]
    mov [rbp + MESSAGE + 32], rdx
    mov byte ptr [rbp + MESSAGE + 40], 24
    mov byte ptr [rdx], 20
    mov byte ptr [rdx + 8], SOL_SOCKET
    mov byte ptr [rdx + 12], 1  # SCM_RIGHTS
    mov [rdx + 16], eax
send:
    mov dword ptr [rbp + ASKED], CLOSE_ON_EXEC
    lea rax, [rbp + PIECE]
    mov [rbp + MESSAGE + 16], rax
    mov byte ptr [rbp + MESSAGE + 24], 1
    lea rax, [rbp + HEAD]
    mov [rbp + PIECE], rax
send_more:
    mov rdx, r15
    sub rdx, [rbp + PIECE]
    je end_request
    mov [rbp + PIECE + 8], rdx
    mov edi, r12d
    lea rsi, [rbp + MESSAGE]
    mov edx, MSG_NOSIGNAL
    mov eax, SYS_SENDMSG
    syscall
    cmp eax, -EINTR
    je send_more
    test eax, eax
    jle decline
    add [rbp + PIECE], rax
    mov byte ptr [rbp + MESSAGE + 40], 0        # the descriptor went with the first piece
    jmp send_more
end_request:
    mov edi, r12d
    mov esi, 1                  # no more is written
    mov eax, SYS_SHUTDOWN
    syscall
    test eax, eax
    jne decline

# The reply: 0 or 1 and a newline, what is to be printed, a newline that tells that nothing is missing.
    mov r13, r15
read_reply:
    lea rdx, [rbp + WORKSPACE]
    sub rdx, r13
    je decline
    mov edi, r12d
    mov rsi, r13
    xor eax, eax                # SYS_READ
    syscall
    cmp eax, -EINTR
    je read_reply
    test eax, eax
    js decline
    je end_reply
    add r13, rax
    jmp read_reply
end_reply:
    dec r13
    lea rsi, [r15 + 2]
    cmp r13, rsi
    jb decline
    cmp byte ptr [r13], NEWLINE
    jne decline
    cmp byte ptr [r15 + 1], NEWLINE
    jne decline
    mov al, [r15]
    sub al, '0'
    cmp al, 1
    ja decline
    movzx ebx, al

# From here on there is no way back. Nobody reading our output is no reason to end by a signal.
    mov r14, rsi
    mov edi, SIGPIPE
    lea rsi, [rbp + ACTION]
    mov byte ptr [rsi], 1       # SIG_IGN
    xor edx, edx
    mov r10d, 8
    mov eax, SYS_RT_SIGACTION
    syscall
print:
    mov edi, 1
    mov rsi, r14
    mov rdx, r13
    sub rdx, r14
    je end
    mov eax, SYS_WRITE
    syscall
    cmp eax, -EINTR
    je print
    cmp eax, -EAGAIN
    jne printed
    mov eax, POLLOUT
    call await_ready
    jmp print
printed:
    test eax, eax
    js end
    add r14, rax
    jmp print
end:
    mov edi, ebx
    mov eax, SYS_EXIT_GROUP
    syscall

# Not ours, or something went wrong: all is put back, and the runtime starts.
decline:
    mov rsp, rbx
    test rbp, rbp
    je restore
    mov edi, r12d
    call close
    mov edi, [rbp + NETNS]
    call close
    cmp r14, r15
    jne pour
    cmp dword ptr [rbp + ASKED], 0
    je unmap
# What was taken of standard input, and all that still comes, becomes the new standard input. If the service was asked,
# it is close-on-exec, as no program's is when it starts: the runtime's client then knows and does not ask again.
pour:
    mov rsi, r14
pour_more:
    mov rdx, r15
    sub rdx, rsi
    je poured
    mov edi, [rbp + SPARE]
    mov eax, SYS_WRITE
    syscall
    test eax, eax
    jle replace_input           # no memory: the runtime finds JSON cut short, and says so
    add rsi, rax
    jmp pour_more
poured:
    cmp byte ptr [rbp + AT_END], 0
    jne replace_input
    mov r15, r14
    lea rdx, [rbp + WORKSPACE]
    sub rdx, r15
    call read_some
    test rax, rax
    jle replace_input
    add r15, rax
    jmp pour
replace_input:
    mov edi, [rbp + SPARE]
    xor esi, esi
    xor edx, edx
    mov eax, SYS_LSEEK
    syscall
    mov edx, [rbp + ASKED]
    mov eax, SYS_DUP3
    syscall
unmap:
    mov edi, [rbp + SPARE]
    call close
    mov rdi, rbp
    mov esi, WORKSPACE
    mov eax, SYS_MUNMAP
    syscall
restore:
    pop r15
    pop r14
    pop r13
    pop r12
    pop r11
    pop r10
    pop r9
    pop r8
    pop rdi
    pop rsi
    pop rbp
    pop rbx
    pop rdx
    pop rcx
    pop rax
    popfq
    jmp original_entry

# Whether the text at rsi begins with the pattern at rdx. If so, rsi is behind it.
begins:
    mov al, [rdx]
    test al, al
    je begins_end
    cmp al, [rsi]
    jne begins_end
    inc rdx
    inc rsi
    jmp begins
begins_end:
    ret

put_hex:
    add al, '0'
    cmp al, '9'
    jbe put_digit
    add al, 39                  # from behind 9 to a
put_digit:
    stosb
    ret

# The next byte of the configuration that is no white space, in al.
next_sign:
    cmp rsi, r15
    jae decline
    lodsb
    cmp al, ' '
    jbe next_sign
    ret

# At most rdx bytes of standard input to r15: how many in rax, 0 at its end, minus the errno.
read_some:
    xor edi, edi
    mov rsi, r15
    xor eax, eax                # SYS_READ
    syscall
    cmp eax, -EINTR
    je read_some
    cmp eax, -EAGAIN
    jne read_end
    push rdx
    mov eax, POLLIN
    call await_ready
    pop rdx
    jmp read_some
read_end:
    ret

# Until descriptor edi is ready for what eax says.
await_ready:
    mov [rbp + POLLED], edi
    mov [rbp + POLLED + 4], eax
    lea rdi, [rbp + POLLED]
    mov esi, 1
    or rdx, -1
    mov eax, SYS_POLL
    syscall
    ret

set_timeout:
    mov edi, r12d
    mov esi, SOL_SOCKET
    lea r10, [rbp + TIMEOUT]
    mov r8d, 16
    mov eax, SYS_SETSOCKOPT
    syscall
    ret

# Of a descriptor that was never opened, -1, there is nothing to close: the kernel says so, and that is all.
close:
    mov eax, SYS_CLOSE
    syscall
    ret

name:
    .asciz "calico"
command_is:
    .asciz "CNI_COMMAND="
commands:
    .asciz "ADD"
    .asciz "DEL"
    .asciz "CHECK"
    .asciz "STATUS"
    .asciz "GC"
    .asciz ""
cni:
    .asciz "CNI_"
netns_is:
    .asciz "CNI_NETNS="
prefix_is:
    .asciz "FELIX_INTERFACEPREFIX="
times_are:
    .asciz "CALICO_CNI_TIMES="
head:
    .ascii "{\"env\":{"
socket_key:
    .asciz "service_socket\""
usual_path:
    .asciz "/var/run/calico/cni.sock"
