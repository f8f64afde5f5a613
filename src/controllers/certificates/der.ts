// Writes the DER encoding of ASN.1 values (ITU-T X.690), as far as X.509 certificates need it.

const TAG = {
  boolean: 0x01,
  integer: 0x02,
  bitString: 0x03,
  octetString: 0x04,
  objectIdentifier: 0x06,
  utf8String: 0x0c,
  utcTime: 0x17,
  generalizedTime: 0x18,
  sequence: 0x30,
  set: 0x31,
} as const;
const CONTEXT = 0x80;
const CONSTRUCTED = 0x20;

export const sequence = (...parts: readonly Buffer[]): Buffer => element(TAG.sequence, Buffer.concat(parts));
export const set = (...parts: readonly Buffer[]): Buffer => element(TAG.set, Buffer.concat(parts));
export const boolean = (value: boolean): Buffer => element(TAG.boolean, Buffer.from([value ? 0xff : 0]));
export const octetString = (bytes: Buffer): Buffer => element(TAG.octetString, bytes);
export const utf8String = (text: string): Buffer => element(TAG.utf8String, Buffer.from(text, "utf8"));
/** `[number]` around other elements. */
export const contextConstructed = (number: number, ...parts: readonly Buffer[]): Buffer =>
  element(CONTEXT | CONSTRUCTED | number, Buffer.concat(parts));
/** `[number] IMPLICIT` with plain bytes. */
export const contextPrimitive = (number: number, bytes: Buffer): Buffer => element(CONTEXT | number, bytes);

/** A non-negative integer, most significant byte first. Removes leading zeros; adds one where the sign bit is set. */
export function integer(bytes: Buffer): Buffer {
  const first = bytes.findIndex((byte) => byte !== 0);
  const significant = first === -1 ? Buffer.alloc(1) : bytes.subarray(first);
  const isNegative = ((significant[0] ?? 0) & 0x80) !== 0;
  return element(TAG.integer, isNegative ? Buffer.concat([Buffer.alloc(1), significant]) : significant);
}

/** @param unusedBits number of bits at the end of the last byte that do not belong to the string */
export const bitString = (bytes: Buffer, unusedBits = 0): Buffer =>
  element(TAG.bitString, Buffer.concat([Buffer.from([unusedBits]), bytes]));

/** @param dotted such as `2.5.4.3` */
export function objectIdentifier(dotted: string): Buffer {
  const [first = 0, second = 0, ...others] = dotted.split(".").map(Number);
  return element(TAG.objectIdentifier, Buffer.from([first * 40 + second, ...others.flatMap(base128)]));
}

/** UTCTime until 2049 and GeneralizedTime from 2050, as RFC 5280 section 4.1.2.5 requires. Whole seconds. */
export function time(ms: number): Buffer {
  const digits = new Date(ms)
    .toISOString()
    .replace(/\.\d+Z$/, "Z")
    .replaceAll(/[-:T]/g, "");
  const isLate = new Date(ms).getUTCFullYear() >= 2050;
  return isLate
    ? element(TAG.generalizedTime, Buffer.from(digits, "latin1"))
    : element(TAG.utcTime, Buffer.from(digits.slice(2), "latin1"));
}

/** Returns the encodings of the elements inside `der`, which is one constructed element. */
export function childrenOf(der: Buffer): readonly Buffer[] {
  const { start, end } = contentOf(der, 0);
  const children: Buffer[] = [];
  for (let at = start; at < end; ) {
    const child = contentOf(der, at);
    if (child.end > end) throw new RangeError("DER element is longer than the element that contains it");
    children.push(der.subarray(at, child.end));
    at = child.end;
  }
  return children;
}

function contentOf(der: Buffer, at: number): { readonly start: number; readonly end: number } {
  const short = der.readUInt8(at + 1);
  const lengthBytes = short < 0x80 ? 0 : short & 0x7f;
  if (lengthBytes > 4) throw new RangeError("DER length has more than 4 bytes");
  const start = at + 2 + lengthBytes;
  const end = start + (lengthBytes === 0 ? short : der.readUIntBE(at + 2, lengthBytes));
  if (end > der.length) throw new RangeError("DER element ends after the data");
  return { start, end };
}

function element(tag: number, content: Buffer): Buffer {
  const { length } = content;
  const lengthBytes =
    length < 0x80
      ? [length]
      : length < 0x100
        ? [0x81, length]
        : length < 0x10000
          ? [0x82, length >> 8, length & 0xff]
          : [];
  if (lengthBytes.length === 0) throw new RangeError(`DER element of ${length} bytes: want less than 65536`);
  return Buffer.concat([Buffer.from([tag, ...lengthBytes]), content]);
}

function base128(value: number): readonly number[] {
  const bytes = [value & 0x7f];
  for (let rest = value >>> 7; rest > 0; rest >>>= 7) bytes.unshift((rest & 0x7f) | 0x80);
  return bytes;
}
