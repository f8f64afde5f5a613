// Instructions of x86-64 as bytes: those the prologue uses, in the shortest form, of two equals the one GNU `as` takes.
// Intel's Software Developer's Manual, volume 2, has the numbers; chapter 2 has REX, ModR/M and SIB.
import { AssemblyError, type Instruction, type Operand } from "./assembly.ts";

/** Bytes, and what they still miss: the distance to a label from their own end, in their last four bytes. */
export interface Encoded {
  readonly bytes: readonly number[];
  readonly relativeTo?: string;
}
/** A jump: its short form takes a distance of one byte, its long form one of four. A call has no short form. */
export interface Jump {
  readonly label: string;
  readonly short?: readonly number[];
  readonly long: readonly number[];
}

type Register = Extract<Operand, { kind: "register" }>;
type Memory = Extract<Operand, { kind: "memory" }>;

const PLAIN: Readonly<Record<string, readonly number[]>> = {
  cld: [0xfc],
  lodsb: [0xac],
  lodsq: [0x48, 0xad],
  popfq: [0x9d],
  pushfq: [0x9c],
  "rep movsb": [0xf3, 0xa4],
  ret: [0xc3],
  stosb: [0xaa],
  stosd: [0xab],
  stosw: [0x66, 0xab],
  syscall: [0x0f, 0x05],
};
/** By their place in the opcode map. */
const ARITHMETIC = ["add", "or", "adc", "sbb", "and", "sub", "xor", "cmp"];
/** Conditions by their place in the opcode map. */
const CONDITIONS: Readonly<Record<string, number>> = {
  jb: 2,
  jae: 3,
  je: 4,
  jne: 5,
  jbe: 6,
  ja: 7,
  js: 8,
  jl: 12,
  jle: 14,
};

export function jumpOf({ mnemonic, operands }: Instruction): Jump | undefined {
  const [target] = operands;
  if (target?.kind !== "label" || operands.length !== 1) return undefined;
  const { label } = target;
  if (mnemonic === "call") return { label, long: [0xe8] };
  if (mnemonic === "jmp") return { label, short: [0xeb], long: [0xe9] };
  const condition = CONDITIONS[mnemonic];
  return condition === undefined ? undefined : { label, short: [0x70 | condition], long: [0x0f, 0x80 | condition] };
}

export function encode(instruction: Instruction): Encoded {
  const { mnemonic, operands } = instruction;
  const plain = PLAIN[mnemonic];
  if (plain !== undefined && operands.length === 0) return { bytes: plain };
  const [to, from] = operands;
  if (mnemonic === "lea" && to?.kind === "register" && from?.kind === "address")
    return {
      bytes: [...rex(to.size === 64, to.number, 0), 0x8d, modrm(0, to.number, 5), 0, 0, 0, 0],
      relativeTo: from.label,
    };
  const bytes = operands.length === 1 ? encodeOne(mnemonic, to) : encodeTwo(mnemonic, to, from);
  if (bytes === undefined || operands.length > 2)
    throw new AssemblyError(instruction.text, "not an instruction known here");
  return { bytes };
}

function encodeOne(mnemonic: string, operand: Operand | undefined): readonly number[] | undefined {
  if (operand?.kind !== "register") return undefined;
  const { number, size } = operand;
  if (mnemonic === "push" && size === 64) return [...rex(false, 0, number), 0x50 | (number & 7)];
  if (mnemonic === "pop" && size === 64) return [...rex(false, 0, number), 0x58 | (number & 7)];
  if (mnemonic === "inc" && size >= 32) return withRegister([0xff], 0, operand);
  if (mnemonic === "dec" && size >= 32) return withRegister([0xff], 1, operand);
  return undefined;
}

function encodeTwo(mnemonic: string, to?: Operand, from?: Operand): readonly number[] | undefined {
  if (to === undefined || from === undefined) return undefined;
  const arithmetic = ARITHMETIC.indexOf(mnemonic);
  if (arithmetic >= 0) return encodeArithmetic(arithmetic, to, from);
  switch (mnemonic) {
    case "mov":
      return encodeMove(to, from);
    case "lea":
      return to.kind === "register" && to.size >= 32 && from.kind === "memory"
        ? withMemory([0x8d], to.number, from, to.size)
        : undefined;
    case "test":
      return to.kind === "register" && from.kind === "register" && to.size === from.size
        ? withRegister([to.size === 8 ? 0x84 : 0x85], from.number, to)
        : undefined;
    case "movzx":
      return to.kind === "register" && to.size === 32 && from.kind === "register" && from.size === 8
        ? withRegister([0x0f, 0xb6], to.number, { ...from, size: 32 })
        : undefined;
    case "shr":
      return to.kind === "register" && to.size === 8 && from.kind === "immediate"
        ? [...withRegister([0xc0], 5, to), ...little(from.value, 1)]
        : undefined;
    default:
      return undefined;
  }
}

function encodeArithmetic(operation: number, to: Operand, from: Operand): readonly number[] | undefined {
  const row = operation << 3;
  if (to.kind === "register" && from.kind === "register" && to.size === from.size)
    return withRegister([row | (to.size === 8 ? 0 : 1)], from.number, to);
  if (to.kind === "register" && from.kind === "memory")
    return withMemory([row | (to.size === 8 ? 2 : 3)], to.number, from, to.size);
  if (to.kind === "memory" && from.kind === "register")
    return withMemory([row | (from.size === 8 ? 0 : 1)], from.number, to, from.size);
  if (from.kind !== "immediate") return undefined;
  const { value } = from;
  if (to.kind === "register") {
    if (to.size === 8)
      return to.number === 0
        ? [row | 4, ...little(value, 1)]
        : [...withRegister([0x80], operation, to), ...little(value, 1)];
    if (fitsByte(value)) return [...withRegister([0x83], operation, to), ...little(value, 1)];
    if (to.number === 0) return [...rex(to.size === 64, 0, 0), row | 5, ...little(value, 4)];
    return [...withRegister([0x81], operation, to), ...little(value, 4)];
  }
  if (to.kind !== "memory" || to.size === undefined || to.size === 16) return undefined;
  if (to.size === 8) return [...withMemory([0x80], operation, to, 8), ...little(value, 1)];
  return fitsByte(value)
    ? [...withMemory([0x83], operation, to, to.size), ...little(value, 1)]
    : [...withMemory([0x81], operation, to, to.size), ...little(value, 4)];
}

function encodeMove(to: Operand, from: Operand): readonly number[] | undefined {
  if (to.kind === "register") {
    const { number, size } = to;
    if (from.kind === "register" && from.size === size)
      return withRegister([size === 8 ? 0x88 : 0x89], from.number, to);
    if (from.kind === "memory") return withMemory([size === 8 ? 0x8a : 0x8b], number, from, size);
    if (from.kind !== "immediate") return undefined;
    if (size === 8) return [0xb0 | number, ...little(from.value, 1)];
    if (size === 32) return [...rex(false, 0, number), 0xb8 | (number & 7), ...little(from.value, 4)];
    return [...withRegister([0xc7], 0, to), ...little(from.value, 4)];
  }
  if (to.kind !== "memory") return undefined;
  if (from.kind === "register" && (to.size ?? from.size) === from.size)
    return withMemory([from.size === 8 ? 0x88 : 0x89], from.number, to, from.size);
  if (from.kind !== "immediate" || to.size === undefined || to.size === 16) return undefined;
  return to.size === 8
    ? [...withMemory([0xc6], 0, to, 8), ...little(from.value, 1)]
    : [...withMemory([0xc7], 0, to, to.size), ...little(from.value, 4)];
}

/** An opcode with a register operand, and what else its ModR/M byte names. */
function withRegister(opcode: readonly number[], field: number, { number, size }: Register): number[] {
  return [...rex(size === 64, field, number), ...opcode, modrm(3, field, number)];
}

/** An opcode with an operand in memory. */
function withMemory(opcode: readonly number[], field: number, { base, offset }: Memory, size: number): number[] {
  // Without an offset the numbers of rbp and r13 mean something else; those of rsp and r12 always ask for a SIB byte.
  const mode = offset === 0 && (base & 7) !== 5 ? 0 : fitsByte(offset) ? 1 : 2;
  return [
    ...rex(size === 64, field, base),
    ...opcode,
    modrm(mode, field, base),
    ...((base & 7) === 4 ? [0x24] : []),
    ...little(offset, mode === 2 ? 4 : mode),
  ];
}

/** The prefix for 64 bits and for the registers from r8 on, where it is needed. */
function rex(isWide: boolean, field: number, base: number): number[] {
  const bits = (isWide ? 8 : 0) | (field >= 8 ? 4 : 0) | (base >= 8 ? 1 : 0);
  return bits === 0 ? [] : [0x40 | bits];
}

const modrm = (mode: number, field: number, base: number): number => (mode << 6) | ((field & 7) << 3) | (base & 7);

const fitsByte = (value: number): boolean => value >= -128 && value <= 127;

/** A number of so many bytes, the lowest first. One that does not fit is an error, signed or not. */
export function little(value: number, length: number): number[] {
  const limit = 2 ** (8 * length);
  if (!Number.isInteger(value) || value >= limit || value < -limit / 2)
    throw new AssemblyError(String(value), `does not fit ${length} bytes`);
  return Array.from({ length }, (_, i) => Number((BigInt(value) >> BigInt(8 * i)) & 0xffn));
}
