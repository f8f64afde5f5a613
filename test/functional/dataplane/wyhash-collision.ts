// Finds two texts with different beginnings and the same Wyhash (seed 0, as in `Bun.hash`). Wyhash mixes 48 bytes at a time
// into three words: `mix(a ^ secret, b ^ state)`, which is symmetric. Two states are brought to the same value by a block
// of printable text in each: b1 ^ state1 becomes a2 ^ secret, and a1 ^ secret becomes b2 ^ state2.
// https://github.com/wangyi-fudan/wyhash

const MASK = (1n << 64n) - 1n;
const BLOCK = 48;
const SECRET = [0xa0761d6478bd642fn, 0xe7037ed1a0b428dbn, 0x8ebc6af09c88c6e3n, 0x589965cc75374cc3n] as const;
const LANES = [SECRET[1], SECRET[2], SECRET[3]] as const;
const ALPHABET = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789";

type State = readonly bigint[];

/** Returns texts of equal length and hash with the given beginnings, which end in `tail`. The beginnings may end inside JSON. */
export function collidingTexts(first: string, second: string, tail: string): readonly [string, string] {
  const length = BLOCK * (Math.ceil(Math.max(first.length, second.length) / BLOCK) + 1);
  const texts = [prepare(first, length), prepare(second, length)] as const;
  const [one, two] = [stateAfter(texts[0]), stateAfter(texts[1])];
  let [firstBlock, secondBlock] = ["", ""];
  for (const [i, secret] of LANES.entries()) {
    const c = bytesOf((one[i] ?? 0n) ^ secret);
    const d = bytesOf((two[i] ?? 0n) ^ secret);
    const [a, b] = [d.map(printablePair), c.map(printablePair)];
    firstBlock += String.fromCharCode(...a, ...b);
    secondBlock += String.fromCharCode(
      ...b.map((byte, k) => byte ^ (c[k] ?? 0)),
      ...a.map((byte, k) => byte ^ (d[k] ?? 0)),
    );
  }
  return [texts[0] + firstBlock + tail, texts[1] + secondBlock + tail];
}

/** Extends a text to the length, so that each word of the state differs from its secret by printable characters. */
function prepare(beginning: string, length: number): string {
  const filled = beginning.padEnd(length - BLOCK, ".");
  const before = stateAfter(filled);
  return filled + LANES.map((secret, i) => laneText(secret, before[i] ?? 0n)).join("");
}

function laneText(secret: bigint, state: bigint): string {
  for (let n = 0; n < 10_000_000; n++) {
    let text = "";
    for (let rest = n; text.length < 16; rest = Math.floor(rest / ALPHABET.length))
      text += ALPHABET[rest % ALPHABET.length] ?? "";
    const bytes = new TextEncoder().encode(text);
    const after = mix(word(bytes, 0) ^ secret, word(bytes, 8) ^ state);
    if (bytesOf(after ^ secret).every((byte) => findPair(byte) !== undefined)) return text;
  }
  throw new Error("no text found");
}

function stateAfter(text: string): State {
  const bytes = new TextEncoder().encode(text);
  const start = mix(SECRET[0], SECRET[1]);
  const state = [start, start, start];
  for (let at = 0; at + BLOCK <= bytes.length; at += BLOCK)
    for (const [i, secret] of LANES.entries())
      state[i] = mix(word(bytes, at + 16 * i) ^ secret, word(bytes, at + 16 * i + 8) ^ (state[i] ?? 0n));
  return state;
}

function mix(a: bigint, b: bigint): bigint {
  const product = a * b;
  return (product & MASK) ^ (product >> 64n);
}

function word(bytes: Uint8Array, at: number): bigint {
  let value = 0n;
  for (let k = 7; k >= 0; k--) value = (value << 8n) | BigInt(bytes[at + k] ?? 0);
  return value;
}

const bytesOf = (value: bigint): number[] =>
  Array.from({ length: 8 }, (_, k) => Number((value >> BigInt(8 * k)) & 255n));

/** Characters that are printable and not escaped in JSON. */
const isPlain = (byte: number): boolean => byte >= 0x20 && byte <= 0x7e && byte !== 0x22 && byte !== 0x5c;

/** A character that stays printable when the difference is applied to it. */
function findPair(difference: number): number | undefined {
  for (let byte = 0x20; byte <= 0x7e; byte++) if (isPlain(byte) && isPlain(byte ^ difference)) return byte;
  return undefined;
}

function printablePair(difference: number): number {
  const byte = findPair(difference);
  if (byte === undefined) throw new Error(`no printable pair differs by ${difference}`);
  return byte;
}
