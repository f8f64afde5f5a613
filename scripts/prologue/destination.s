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
