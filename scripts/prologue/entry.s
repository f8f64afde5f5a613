# What runs before the runtime when the executable is started as the CNI plugin `calico`: hand the call to the node's
# service, print its answer, end. In every other case, and whenever anything is not as expected, nothing has happened:
# registers, stack, descriptors and standard input are as they came, and the runtime starts and decides.
#
# The other client of the same wire is src/cni/service-client.ts; the wire is written down in src/cni/service-protocol.ts.
# GNU syntax: `as` makes the same bytes of these files as the assembler beside them does, which a test holds. In order: constants.s,
# entry.s, request.s, destination.s, exchange.s, decline.s, routines.s.
#
#   rbx  the saved registers; above them what the kernel left: argc, argv, 0, environment, 0
#   rbp  the workspace, 0 while there is none
#   r12  the connection, -1 while there is none
#   r13  the environment; then the end of the reply
#   r14  where standard input begins in the workspace, r15 where it ends: equal while nothing was taken of it

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
