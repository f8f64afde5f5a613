// A small executable for tests, in place of the real one: its own code tells in which state it was reached. To standard
// error: every register, the stack pointer, the flags of standard input, the lowest free descriptor. To standard output:
// all of standard input. Then it ends with a code of its own.
import { readFileSync, writeFileSync } from "node:fs";
import { assemble } from "./assemble.ts";
import { addPrologue } from "./prologue.ts";

/** How a run ends when the prologue left it to the executable. */
export const PROBE_EXIT = 77;

const BASE = 0x400000;
/** Behind the headers: the file's, the code's, a note's. */
const CODE_OFFSET = 64 + 2 * 56;
const CODE = BASE + CODE_OFFSET;

const REGISTERS = [
  "rax",
  "rcx",
  "rdx",
  "rbx",
  "rbp",
  "rsi",
  "rdi",
  "r8",
  "r9",
  "r10",
  "r11",
  "r12",
  "r13",
  "r14",
  "r15",
];
const PROBE = `
probe:
    ${REGISTERS.map((register) => `push ${register}`).join("\n    ")}
    lea rax, [rsp + ${8 * REGISTERS.length}]
    push rax
    xor edi, edi
    mov esi, 1                  # F_GETFD
    mov eax, 72                 # fcntl
    syscall
    push rax
    xor edi, edi
    mov eax, 32                 # dup
    syscall
    push rax
    mov edi, eax
    mov eax, 3                  # close
    syscall
    mov edi, 2
    mov rsi, rsp
    mov edx, ${8 * (REGISTERS.length + 3)}
    mov eax, 1                  # write
    syscall
copy:
    xor edi, edi
    lea rsi, [rsp - 4096]
    mov edx, 4096
    xor eax, eax                # read
    syscall
    test eax, eax
    jle end
    mov edi, 1
    lea rsi, [rsp - 4096]
    mov edx, eax
    mov eax, 1                  # write
    syscall
    jmp copy
end:
    mov edi, ${PROBE_EXIT}
    mov eax, 231                # exit_group
    syscall
marked:                         # an entry that gives every register a value of its own
    ${REGISTERS.slice(0, -1)
      .map((register, i) => `mov ${register}, ${0x11110 + i}`)
      .join("\n    ")}
    mov r15, rsp
    jmp prologue
`;

/** What the probe found. */
export interface Found {
  readonly registers: Readonly<Record<string, bigint>>;
  readonly stackPointer: bigint;
  readonly isInputMarked: boolean;
  readonly lowestDescriptor: number;
}

export function readFindings(stderr: Uint8Array): Found {
  const view = new DataView(stderr.buffer, stderr.byteOffset, stderr.byteLength);
  const word = (i: number): bigint => view.getBigUint64(8 * i, true);
  return {
    lowestDescriptor: Number(word(0)),
    isInputMarked: word(1) === 1n,
    stackPointer: word(2),
    registers: Object.fromEntries(REGISTERS.map((register, i) => [register, word(REGISTERS.length + 2 - i)])),
  };
}

/** What each register holds when the prologue is reached through `marked`. */
export const MARKS: Readonly<Record<string, bigint>> = Object.fromEntries(
  REGISTERS.slice(0, -1).map((register, i) => [register, BigInt(0x11110 + i)]),
);

/** The executable's bytes, without a prologue. */
export function probeBytes(): Uint8Array {
  const { code } = assemble(PROBE, CODE, new Map([["prologue", CODE]]));
  const file = new Uint8Array(CODE_OFFSET + code.length);
  const view = new DataView(file.buffer);
  const short = (at: number, ...values: number[]): void =>
    values.forEach((value, i) => view.setUint16(at + 2 * i, value, true));
  const long = (at: number, ...values: number[]): void =>
    values.forEach((value, i) => view.setBigUint64(at + 8 * i, BigInt(value), true));
  file.set([0x7f, 0x45, 0x4c, 0x46, 2, 1, 1]);
  short(16, 2, 62); // an executable for x86-64
  view.setUint32(20, 1, true);
  long(24, CODE, 64, 0);
  short(52, 64, 56, 2, 64, 0, 0);
  view.setUint32(64, 1, true); // everything is one segment, to be read and executed
  view.setUint32(68, 5, true);
  long(72, 0, BASE, BASE, file.length, file.length, 4096);
  view.setUint32(120, 4, true); // and an empty note
  file.set(code, CODE_OFFSET);
  return file;
}

/** An executable with the prologue, or with one made of this text. */
export function writeProbe(path: string, source?: string): void {
  writeFileSync(path, probeBytes(), { mode: 0o755 });
  const whyNot = addPrologue(path, source);
  if (whyNot !== undefined) throw new Error(whyNot);
}

/** One that reaches its prologue with a value of its own in every register. */
export function writeMarkedProbe(path: string, source?: string): void {
  writeProbe(path, source);
  const file = readFileSync(path);
  const prologue = Number(file.readBigUInt64LE(24));
  const { code, labels } = assemble(PROBE, CODE, new Map([["prologue", prologue]]));
  file.set(code, CODE_OFFSET);
  file.writeBigUInt64LE(BigInt(labels.get("marked") ?? 0), 24);
  writeFileSync(path, file);
}
