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
    mov byte ptr [rbp + TIMEOUT], SILENCE_SECONDS
    mov edx, SO_SNDTIMEO
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

# The pod's namespace goes along as a descriptor. What a missing one means each command says; one that is there and cannot be
# opened is not missing: then the runtime says so.
    mov rsi, [rbp + NETNS_PATH]
    test rsi, rsi
    je send
    cmp byte ptr [rsi], 0
    je send
    mov edi, AT_FDCWD
    mov edx, CLOSE_ON_EXEC      # to read
    mov eax, SYS_OPENAT
    syscall
    cmp eax, -ENOENT
    je send
    test eax, eax
    js decline
    mov [rbp + NETNS], eax
    lea rdx, [rbp + CONTROL]
    mov [rbp + MESSAGE + 32], rdx
    mov byte ptr [rbp + MESSAGE + 40], 24
    mov byte ptr [rdx], 20
    mov byte ptr [rdx + 8], SOL_SOCKET
    mov byte ptr [rdx + 12], 1  # SCM_RIGHTS
    mov [rdx + 16], eax
send:
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

# The reply: spaces as signs of life, 0 or 1 and a newline, what is to be printed, a newline that tells that nothing is
# missing. It is waited for without a time limit. If it does not come, the runtime reports that the connection broke and
# does not do the work, because the service may have started.
    mov dword ptr [rbp + ASKED], CLOSE_ON_EXEC
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
# The service declines: it has done nothing. The runtime asks once more, is declined too and does the work.
declined:
    cmp byte ptr [r13], NEWLINE
    jne decline
    and dword ptr [rbp + ASKED], 0
    jmp decline
end_reply:
    dec r13
    mov rsi, r15
skip_signs:
    cmp rsi, r13
    jae decline
    lodsb
    cmp al, ' '
    je skip_signs
    cmp al, '{'
    je declined
    sub al, '0'
    cmp al, 1
    ja decline
    cmp rsi, r13
    jae decline
    cmp byte ptr [rsi], NEWLINE
    jne decline
    inc rsi
    cmp byte ptr [r13], NEWLINE
    jne decline
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
