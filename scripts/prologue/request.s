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
    lea rdx, [rip + times_are]  # who wants the runtime's times starts the runtime
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
