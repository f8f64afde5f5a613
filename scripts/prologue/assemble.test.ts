import { execFileSync } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { assemble } from "./assemble.ts";
import { AssemblyError, parseAssembly } from "./assembly.ts";
import { assemblePrologue, PROLOGUE } from "./prologue.ts";

const hex = (source: string, origin?: number, outside?: ReadonlyMap<string, number>): string =>
  assemble(source, origin, outside).code.toHex();

describe("assembler", () => {
  // Bytes as Intel's manual has them.
  const cases: readonly [text: string, want: string][] = [
    ["push rax", "50"],
    ["push r15", "4157"],
    ["pop r8", "4158"],
    ["mov rbx, rsp", "4889e3"],
    ["mov r12d, eax", "4189c4"],
    ["mov eax, 319", "b83f010000"],
    ["mov r10d, 0x22", "41ba22000000"],
    ["mov edi, -100", "bf9cffffff"],
    ["mov rdi, -1", "48c7c7ffffffff"],
    ["mov al, '='", "b03d"],
    ["mov al, [rdx]", "8a02"],
    ["mov rsi, [r14]", "498b36"],
    ["mov rsi, [r13]", "498b7500"],
    ["mov rsi, [rbp]", "488b7500"],
    ["mov rax, [rsp + 8]", "488b442408"],
    ["mov rax, [r12 + 0x100]", "498b842400010000"],
    ["mov [rbp + 8], rsi", "48897508"],
    ["mov byte ptr [rdi - 1], 0", "c647ff00"],
    ["mov byte ptr [rbp + 0x68], 180", "c64568b4"],
    ["mov dword ptr [rbp + 0x10], 0x80000", "c7451000000800"],
    ["lea edx, [r9 + 2]", "418d5102"],
    ["cmp rax, -4095", "483d01f0ffff"],
    ["cmp eax, -4", "83f8fc"],
    ["cmp ecx, 1", "83f901"],
    ["cmp r9, 108", "4983f96c"],
    ["cmp dl, '/'", "80fa2f"],
    ["cmp al, ' '", "3c20"],
    ["cmp al, [rsi]", "3a06"],
    ["cmp byte ptr [rsi], 0", "803e00"],
    ["cmp dword ptr [rbp + 16], 0", "837d1000"],
    ["add [rbp + 32], rax", "48014520"],
    ["sub rdx, [rbp + 32]", "482b5520"],
    ["or r12, -1", "4983ccff"],
    ["and al, 15", "240f"],
    ["shr al, 4", "c0e804"],
    ["test r8, r8", "4d85c0"],
    ["test cl, cl", "84c9"],
    ["movzx ebx, al", "0fb6d8"],
    ["dec r13", "49ffcd"],
    ["inc edx", "ffc2"],
    ["rep movsb", "f3a4"],
    ["stosw", "66ab"],
    ["syscall", "0f05"],
    ['.asciz "a\\"\\n"', "61220a00"],
  ];
  for (const [text, want] of cases) test(text, () => expect(hex(text)).toBe(want));

  test("a jump takes one byte of distance where that reaches, else four", () => {
    const far = "syscall\n".repeat(64);
    expect(hex("again:\n jmp again")).toBe("ebfe");
    expect(hex(`je there\n${far}there:`)).toStartWith("0f8480000000");
    expect(hex(`je there\n${far.slice(0, -8)}there:`)).toStartWith("747e");
    expect(hex("call there\nthere:")).toBe("e800000000");
  });

  test("a jump that grows lengthens the one around it", () => {
    const near = "syscall\n".repeat(62);
    const { code } = assemble(`jmp far\njmp further\n${near}far:\n${near}further:`);
    expect(code.subarray(0, 7).toHex()).toBe("e981000000e9f8");
  });

  test("outside labels are reached from wherever the code is placed", () => {
    expect(hex("jmp outside", 0x1000, new Map([["outside", 0x400]]))).toBe("e9fbf3ffff");
  });

  test("code does not depend on its place but for the way out", () => {
    const [here, there] = [0x1000, 0x7000000].map((at) => assemblePrologue(at, at + 0x500).code.toHex());
    expect(here).toBe(there ?? "");
  });

  const faults = [
    "mov rax, [eax]",
    "mov eax, rbx",
    "mov [rbp], 0",
    "mov eax, UNKNOWN",
    "jmp nowhere",
    "mov byte ptr [rbp], 256",
    "xchg rax, rbx",
    "push eax",
    ".byte 1",
    "a:\na:",
    "mov al, 'ab'",
  ];
  for (const fault of faults)
    test(`is refused: ${JSON.stringify(fault)}`, () => expect(() => assemble(fault)).toThrow(AssemblyError));

  test("a comment may follow anything, and a # in quotes begins none", () => {
    expect(parseAssembly("mov al, '#' # one\n# two\n")).toHaveLength(1);
    expect(hex("mov al, '#'   # a \"quoted\" one")).toBe("b023");
  });
});

const tools = ["as", "ld", "objcopy"].every((tool) => Bun.which(tool) !== null);
if (!tools) console.log("binutils is not installed: the prologue is not compared with GNU as");
test.skipIf(!tools)("GNU as makes the same bytes of the prologue", () => {
  const folder = mkdtempSync(join(tmpdir(), "prologue-as-"));
  try {
    const file = (name: string): string => join(folder, name);
    writeFileSync(file("prologue.s"), PROLOGUE);
    execFileSync("as", ["--64", "-o", file("prologue.o"), file("prologue.s")]);
    const place = ["-Ttext=0x754d000", "--defsym=original_entry=0x1a40600", "-e", "0x754d000"];
    execFileSync("ld", [...place, "-o", file("prologue"), file("prologue.o")]);
    execFileSync("objcopy", ["-O", "binary", "-j", ".text", file("prologue"), file("code")]);
    expect(assemblePrologue(0x754d000, 0x1a40600).code.toHex()).toBe(readFileSync(file("code")).toHex());
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});
