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
# What was taken of standard input, and all that still comes, becomes the new standard input. If the request was sent and
# not declined, it is close-on-exec, as no program's is when it starts: the runtime then reports a broken connection.
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
