# What is called from more than one place, and all texts.

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
