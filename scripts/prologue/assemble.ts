// Assembly text to machine code: every label gets its place, every jump the shortest form that reaches.
import { AssemblyError, parseAssembly } from "./assembly.ts";
import { type Encoded, encode, type Jump, jumpOf, little } from "./encode.ts";

type Piece =
  | { readonly kind: "label"; readonly name: string }
  | { readonly kind: "bytes"; readonly encoded: Encoded }
  | { readonly kind: "jump"; readonly jump: Jump; isLong: boolean };

export interface Program {
  readonly code: Uint8Array;
  /** Where each label is. */
  readonly labels: ReadonlyMap<string, number>;
}

/**
 * @param origin the address of the first byte; what the code does not depend on, only its way to outside labels
 * @param outside labels of other code, with their addresses
 */
export function assemble(source: string, origin = 0, outside: ReadonlyMap<string, number> = new Map()): Program {
  const pieces = parseAssembly(source).map((statement): Piece => {
    if (statement.kind === "label") return statement;
    if (statement.kind === "data") return { kind: "bytes", encoded: { bytes: [...statement.bytes] } };
    const jump = jumpOf(statement);
    if (jump === undefined) return { kind: "bytes", encoded: encode(statement) };
    return { kind: "jump", jump, isLong: jump.short === undefined || outside.has(jump.label) };
  });
  let labels = place(pieces, origin, outside);
  // A jump that grows can push another one's target out of reach, never into it: this ends.
  while (lengthenJumps(pieces, origin, labels)) labels = place(pieces, origin, outside);
  return { code: emit(pieces, origin, labels), labels };
}

function place(pieces: readonly Piece[], origin: number, outside: ReadonlyMap<string, number>): Map<string, number> {
  const labels = new Map(outside);
  let at = origin;
  for (const piece of pieces) {
    if (piece.kind === "label") {
      if (labels.has(piece.name)) throw new AssemblyError(piece.name, "a label that is there already");
      labels.set(piece.name, at);
    }
    at += sizeOf(piece);
  }
  return labels;
}

function lengthenJumps(pieces: readonly Piece[], origin: number, labels: ReadonlyMap<string, number>): boolean {
  let hasChanged = false;
  let at = origin;
  for (const piece of pieces) {
    at += sizeOf(piece);
    if (piece.kind !== "jump" || piece.isLong) continue;
    const distance = addressOf(piece.jump.label, labels) - at;
    if (distance >= -128 && distance <= 127) continue;
    piece.isLong = true;
    hasChanged = true;
  }
  return hasChanged;
}

function emit(pieces: readonly Piece[], origin: number, labels: ReadonlyMap<string, number>): Uint8Array {
  const code: number[] = [];
  for (const piece of pieces) {
    if (piece.kind === "label") continue;
    const end = origin + code.length + sizeOf(piece);
    if (piece.kind === "jump") {
      const opcode = piece.isLong ? piece.jump.long : (piece.jump.short ?? []);
      code.push(...opcode, ...little(addressOf(piece.jump.label, labels) - end, piece.isLong ? 4 : 1));
    } else if (piece.encoded.relativeTo === undefined) code.push(...piece.encoded.bytes);
    else
      code.push(...piece.encoded.bytes.slice(0, -4), ...little(addressOf(piece.encoded.relativeTo, labels) - end, 4));
  }
  return Uint8Array.from(code);
}

function sizeOf(piece: Piece): number {
  if (piece.kind === "label") return 0;
  if (piece.kind === "bytes") return piece.encoded.bytes.length;
  return piece.isLong ? piece.jump.long.length + 4 : (piece.jump.short?.length ?? 0) + 1;
}

function addressOf(label: string, labels: ReadonlyMap<string, number>): number {
  const address = labels.get(label);
  if (address === undefined) throw new AssemblyError(label, "no such label");
  return address;
}
