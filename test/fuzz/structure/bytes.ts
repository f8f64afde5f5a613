// Mutates bytes of any format: flips bits, sets numbers to limits, removes or repeats parts, inserts parts of another input, and
// corrupts length fields.
import type { Random } from "../random.ts";
import { MOST_INPUT_BYTES, type MutationContext, type Structure } from "./structure.ts";

/** Changes any bytes. */
export const bytes: Structure = (input, context) => {
  const mutation = context.random.pick(MUTATIONS);
  return mutation(input, context);
};

const MUTATIONS: readonly [Structure, ...Structure[]] = [
  flipBit,
  flipBit,
  setByte,
  setByte,
  setNumber,
  setNumber,
  corruptLength,
  corruptLength,
  truncate,
  remove,
  insert,
  insertWord,
  duplicate,
  repeat,
  splice,
];

function flipBit(input: Uint8Array, { random }: MutationContext): Uint8Array {
  return changed(input, (copy) => {
    const at = random.below(copy.length);
    copy[at] = (copy[at] ?? 0) ^ (1 << random.below(8));
  });
}

function setByte(input: Uint8Array, { random }: MutationContext): Uint8Array {
  return changed(input, (copy) => {
    copy[random.below(copy.length)] = random.pick([0, 1, 0x7f, 0x80, 0xff, 10, 32, random.byte()]);
  });
}

const LIMITS: readonly [bigint, ...bigint[]] = [
  0n,
  1n,
  -1n,
  127n,
  128n,
  255n,
  256n,
  32767n,
  65535n,
  65536n,
  2n ** 31n - 1n,
  2n ** 31n,
  2n ** 32n - 1n,
  2n ** 53n,
  2n ** 63n - 1n,
];

/** Returns a number of 1 to 8 bytes, in either byte order. */
function setNumber(input: Uint8Array, { random }: MutationContext): Uint8Array {
  const size = random.pick([1, 2, 4, 8]);
  return writeNumber(input, random.below(input.length), size, random.pick(LIMITS), random.oneIn(2));
}

/** Finds a number that may be a length, because it does not exceed the length of what follows, and changes it. */
function corruptLength(input: Uint8Array, { random }: MutationContext): Uint8Array {
  const view = new DataView(input.buffer, input.byteOffset, input.byteLength);
  for (let attempt = 0; attempt < 20; attempt++) {
    const size = random.pick([2, 4]);
    const at = random.below(input.length - size);
    if (at + size > input.length) continue;
    const isLittle = random.oneIn(2);
    const value = size === 2 ? view.getUint16(at, isLittle) : view.getUint32(at, isLittle);
    if (value === 0 || value > input.length - at + 8) continue;
    const rest = input.length - at;
    const wrong = random.pick([0, 1, value - 1, value + 1, value * 2, rest, rest + 1, 2 ** (8 * size) - 1]);
    return writeNumber(input, at, size, BigInt(wrong), isLittle);
  }
  return flipBit(input, { random, dictionary: [], other: () => input });
}

function writeNumber(input: Uint8Array, at: number, size: number, value: bigint, isLittle: boolean): Uint8Array {
  return changed(input, (copy) => {
    for (let i = 0; i < size; i++) {
      const place = at + (isLittle ? i : size - 1 - i);
      if (place < copy.length) copy[place] = Number((value >> BigInt(8 * i)) & 255n);
    }
  });
}

function truncate(input: Uint8Array, { random }: MutationContext): Uint8Array {
  return input.slice(0, random.below(input.length));
}

function remove(input: Uint8Array, { random }: MutationContext): Uint8Array {
  const [start, end] = range(input, random);
  return joined(input.subarray(0, start), input.subarray(end));
}

function insert(input: Uint8Array, { random }: MutationContext): Uint8Array {
  return insertAt(input, random.below(input.length + 1), random.bytes(1 + random.below(16)));
}

function insertWord(input: Uint8Array, context: MutationContext): Uint8Array {
  const { random, dictionary } = context;
  const word = random.pick(dictionary);
  if (word === undefined) return insert(input, context);
  return insertAt(input, random.below(input.length + 1), new TextEncoder().encode(word));
}

function duplicate(input: Uint8Array, { random }: MutationContext): Uint8Array {
  const [start, end] = range(input, random);
  return insertAt(input, random.below(input.length + 1), input.slice(start, end));
}

/** Repeats a part many times; rarely so often that only a parser with linear cost is fast. */
function repeat(input: Uint8Array, { random }: MutationContext): Uint8Array {
  const [start, end] = range(input, random, 64);
  const part = input.slice(start, end);
  const times = random.oneIn(40) ? MOST_INPUT_BYTES / Math.max(1, part.length) : 2 + random.below(50);
  return insertAt(input, end, joined(...Array.from({ length: Math.floor(times) }, () => part)));
}

function splice(input: Uint8Array, { random, other }: MutationContext): Uint8Array {
  const second = other();
  return joined(input.subarray(0, random.below(input.length + 1)), second.subarray(random.below(second.length + 1)));
}

function range(input: Uint8Array, random: Random, most = 4096): [start: number, end: number] {
  const start = random.below(input.length);
  return [start, Math.min(input.length, start + 1 + random.below(random.oneIn(4) ? most : 16))];
}

function changed(input: Uint8Array, change: (copy: Uint8Array) => void): Uint8Array {
  const copy = input.slice();
  if (copy.length > 0) change(copy);
  return copy;
}

const insertAt = (input: Uint8Array, at: number, part: Uint8Array): Uint8Array =>
  joined(input.subarray(0, at), part, input.subarray(at));

const joined = (...parts: readonly Uint8Array[]): Uint8Array => new Uint8Array(Buffer.concat(parts));
