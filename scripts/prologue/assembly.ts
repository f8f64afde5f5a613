// Assembly text, read: GNU's Intel syntax, as far as the prologue needs it. What is not understood is an error, never a guess.

export type Size = 8 | 16 | 32 | 64;

export type Operand =
  | { readonly kind: "register"; readonly number: number; readonly size: Size }
  | { readonly kind: "immediate"; readonly value: number }
  /** What lies at a register and so many bytes; the size only where the text gives it. */
  | { readonly kind: "memory"; readonly base: number; readonly offset: number; readonly size?: Size }
  /** The address of a label, taken relative to the next instruction. */
  | { readonly kind: "address"; readonly label: string }
  | { readonly kind: "label"; readonly label: string };

export interface Instruction {
  readonly kind: "instruction";
  readonly mnemonic: string;
  readonly operands: readonly Operand[];
  /** As it was written, for complaints. */
  readonly text: string;
}
export type Statement =
  | Instruction
  | { readonly kind: "label"; readonly name: string }
  | { readonly kind: "data"; readonly bytes: Uint8Array };

export class AssemblyError extends Error {
  override readonly name = "AssemblyError";
  constructor(text: string, why: string) {
    super(`${text}: ${why}`);
  }
}

type Named = readonly [name: string, register: { readonly number: number; readonly size: Size }];
const NAMES = ["ax", "cx", "dx", "bx", "sp", "bp", "si", "di"];
const REGISTERS = new Map<string, Named[1]>([
  ...NAMES.map((name, number): Named => [`r${name}`, { number, size: 64 }]),
  ...NAMES.map((name, number): Named => [`e${name}`, { number, size: 32 }]),
  ...["al", "cl", "dl", "bl"].map((name, number): Named => [name, { number, size: 8 }]),
  ...NAMES.map((_, i): Named => [`r${i + 8}`, { number: i + 8, size: 64 }]),
  ...NAMES.map((_, i): Named => [`r${i + 8}d`, { number: i + 8, size: 32 }]),
]);
const SIZES: Readonly<Record<string, Size>> = { byte: 8, word: 16, dword: 32, qword: 64 };

export function parseAssembly(source: string): Statement[] {
  const constants = new Map<string, number>();
  const statements: Statement[] = [];
  for (const line of source.split("\n")) {
    const text = withoutComment(line).trim();
    if (text === "" || text === ".intel_syntax noprefix") continue;
    const [, label] = /^([a-z_]+):$/.exec(text) ?? [];
    const [, constant, expression] = /^([A-Z][A-Z0-9_]*)\s*=\s*(.+)$/.exec(text) ?? [];
    if (label !== undefined) statements.push({ kind: "label", name: label });
    else if (constant !== undefined) constants.set(constant, evaluate(expression ?? "", constants));
    else if (text.startsWith(".")) statements.push({ kind: "data", bytes: parseData(text) });
    else statements.push(parseInstruction(text, constants));
  }
  return statements;
}

/** A # inside quotes begins no comment. */
function withoutComment(line: string): string {
  return /^(?:"(?:\\.|[^"\\])*"|'.'|[^#"'])*/.exec(line)?.[0] ?? "";
}

function parseData(text: string): Uint8Array {
  const [, directive, quoted] = /^\.(ascii|asciz)\s+("(?:\\["\\n]|[ !#-[\]-~])*")$/.exec(text) ?? [];
  if (directive === undefined || quoted === undefined)
    throw new AssemblyError(text, "want .ascii or .asciz and a text");
  return new TextEncoder().encode((JSON.parse(quoted) as string) + (directive === "asciz" ? "\0" : ""));
}

function parseInstruction(text: string, constants: ReadonlyMap<string, number>): Instruction {
  const [, mnemonic, rest] = /^(rep \w+|\w+)(?:\s+(.*))?$/.exec(text) ?? [];
  if (mnemonic === undefined) throw new AssemblyError(text, "no instruction");
  const operands = rest === undefined ? [] : rest.split(",").map((operand) => parseOperand(operand.trim(), constants));
  return { kind: "instruction", mnemonic, operands, text };
}

function parseOperand(text: string, constants: ReadonlyMap<string, number>): Operand {
  const register = REGISTERS.get(text);
  if (register !== undefined) return { kind: "register", ...register };
  const [, address] = /^\[rip \+ ([a-z_]+)\]$/.exec(text) ?? [];
  if (address !== undefined) return { kind: "address", label: address };
  const [, size, baseName, offset] = /^(?:(byte|word|dword|qword) ptr )?\[(\w+)(?: ([+-] .+))?\]$/.exec(text) ?? [];
  if (baseName !== undefined) {
    const base = REGISTERS.get(baseName);
    if (base?.size !== 64) throw new AssemblyError(text, "an address begins with a 64-bit register");
    return {
      kind: "memory",
      base: base.number,
      offset: offset === undefined ? 0 : evaluate(`0 ${offset}`, constants),
      ...(size === undefined ? {} : { size: SIZES[size] as Size }),
    };
  }
  if (/^[a-z_]+$/.test(text)) return { kind: "label", label: text };
  return { kind: "immediate", value: evaluate(text, constants) };
}

/** Sums, differences and products of numbers, characters and constants, from left to right. */
function evaluate(text: string, constants: ReadonlyMap<string, number>): number {
  const [first, ...rest] = text.split(/ ([-+*]) /);
  let value = term(first ?? "", constants);
  for (let i = 0; i + 1 < rest.length; i += 2) {
    const right = term(rest[i + 1] ?? "", constants);
    value = rest[i] === "+" ? value + right : rest[i] === "-" ? value - right : value * right;
  }
  return value;
}

function term(text: string, constants: ReadonlyMap<string, number>): number {
  if (text.startsWith("-")) return -term(text.slice(1), constants);
  if (/^(0x[0-9a-f]+|[0-9]+)$/.test(text)) return Number(text);
  if (/^'.'$/.test(text)) return text.charCodeAt(1);
  const value = constants.get(text);
  if (value === undefined) throw new AssemblyError(text, "neither a number nor a constant defined above");
  return value;
}
