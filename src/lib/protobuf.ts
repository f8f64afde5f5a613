// Protocol Buffers wire format, proto3: the few primitives our messages need. Fields are written front to back into one
// growing buffer, in the order of their numbers, defaults left out, so that equal values have equal bytes.
// https://protobuf.dev/programming-guides/encoding/

const VARINT = 0;
const FIXED64 = 1;
const LENGTH = 2;
const FIXED32 = 5;
const encoder = new TextEncoder();
const decoder = new TextDecoder();

export class ProtoWriter {
  #bytes = new Uint8Array(1024);
  #view = new DataView(this.#bytes.buffer);
  #at = 0;

  /** A copy of what was written. */
  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#at);
  }

  /** What was written, until the next write. */
  view(): Uint8Array {
    return this.#bytes.subarray(0, this.#at);
  }

  reset(): void {
    this.#at = 0;
  }

  /** Bytes as they are, outside of any field. */
  raw(bytes: Uint8Array): void {
    this.#room(bytes.length);
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  string(field: number, value: string | undefined): void {
    if (value !== undefined && value !== "") this.#string(field, value);
  }

  /** Every element, empty ones too. */
  strings(field: number, values: readonly string[]): void {
    for (const value of values) this.#string(field, value);
  }

  bool(field: number, value: boolean | undefined): void {
    if (value !== true) return;
    this.#tag(field, VARINT);
    this.#varint(1);
  }

  /** int32, int64, uint32 and enums; negative numbers take ten bytes as the format wants. */
  int(field: number, value: number | undefined): void {
    if (value !== undefined && value !== 0) this.intAlways(field, value);
  }

  /** A member of a oneof, or a field that tells 0 from absent. */
  intAlways(field: number, value: number | bigint): void {
    this.#tag(field, VARINT);
    if (typeof value === "bigint" || value < 0) this.#bigVarint(BigInt.asUintN(64, BigInt(value)));
    else this.#varint(value);
  }

  double(field: number, value: number): void {
    if (value === 0) return;
    this.#tag(field, FIXED64);
    this.#room(8);
    this.#view.setFloat64(this.#at, value, true);
    this.#at += 8;
  }

  /** A nested message, also when it turns out empty. */
  message(field: number, write: () => void): void {
    this.#tag(field, LENGTH);
    const start = this.#at;
    this.#room(1);
    this.#at++; // most lengths fit in one byte; longer ones shift what was written
    write();
    const length = this.#at - start - 1;
    const size = varintSize(length);
    if (size > 1) {
      this.#room(size - 1);
      this.#bytes.copyWithin(start + size, start + 1, this.#at);
    }
    const end = start + size + length;
    this.#at = start;
    this.#varint(length);
    this.#at = end;
  }

  messages<T>(field: number, values: readonly T[], write: (value: T) => void): void {
    for (const value of values) this.message(field, () => write(value));
  }

  /** map<string, string>, in the order of the keys. */
  stringMap(field: number, map: Readonly<Record<string, string>>): void {
    for (const key of Object.keys(map).sort())
      this.message(field, () => {
        this.string(1, key);
        this.string(2, map[key]);
      });
  }

  #string(field: number, value: string): void {
    this.#tag(field, LENGTH);
    const room = value.length * 3;
    this.#room(room + 5);
    const size = varintSize(room); // of the greatest length it could have
    const { written } = encoder.encodeInto(value, this.#bytes.subarray(this.#at + size));
    const actual = varintSize(written);
    if (actual < size) this.#bytes.copyWithin(this.#at + actual, this.#at + size, this.#at + size + written);
    this.#varint(written);
    this.#at += written;
  }

  #tag(field: number, wire: number): void {
    this.#varint(field * 8 + wire);
  }

  #varint(value: number): void {
    this.#room(10);
    let rest = value;
    while (rest > 127) {
      this.#bytes[this.#at++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.#bytes[this.#at++] = rest;
  }

  #bigVarint(value: bigint): void {
    this.#room(10);
    let rest = value;
    while (rest > 127n) {
      this.#bytes[this.#at++] = Number(rest & 127n) | 128;
      rest >>= 7n;
    }
    this.#bytes[this.#at++] = Number(rest);
  }

  #room(size: number): void {
    if (this.#at + size <= this.#bytes.length) return;
    const bigger = new Uint8Array(Math.max(this.#bytes.length * 2, this.#at + size));
    bigger.set(this.#bytes.subarray(0, this.#at));
    this.#bytes = bigger;
    this.#view = new DataView(bigger.buffer);
  }
}

function varintSize(value: number): number {
  let size = 1;
  for (let rest = value; rest > 127; rest = Math.floor(rest / 128)) size++;
  return size;
}

export class ProtoError extends Error {
  override readonly name = "ProtoError";
}

/** One field as it stands on the wire. */
export class ProtoField {
  readonly number: number;
  readonly #wire: number;
  readonly #value: bigint;
  readonly #bytes: Uint8Array;

  constructor(number: number, wire: number, value: bigint, bytes: Uint8Array) {
    this.number = number;
    this.#wire = wire;
    this.#value = value;
    this.#bytes = bytes;
  }

  string(): string {
    return decoder.decode(this.bytes());
  }
  bytes(): Uint8Array {
    if (this.#wire !== LENGTH) throw new ProtoError(`field ${this.number} has wire type ${this.#wire}, not 2`);
    return this.#bytes;
  }
  /** Signed, as int32 and int64 are. */
  int(): number {
    return Number(BigInt.asIntN(64, this.#value));
  }
  bool(): boolean {
    return this.#value !== 0n;
  }
  double(): number {
    if (this.#wire !== FIXED64) throw new ProtoError(`field ${this.number} has wire type ${this.#wire}, not 1`);
    return new DataView(this.#bytes.buffer, this.#bytes.byteOffset, 8).getFloat64(0, true);
  }
  fields(): Generator<ProtoField> {
    return readFields(this.bytes());
  }
}

/** The fields of one message in the order they stand. Throws on bytes that are no message. */
export function* readFields(bytes: Uint8Array): Generator<ProtoField> {
  let at = 0;
  const varint = (): bigint => {
    let value = 0n;
    for (let shift = 0n; shift < 70n; shift += 7n) {
      const byte = bytes[at++];
      if (byte === undefined) throw new ProtoError("message ends inside a number");
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asUintN(64, value);
    }
    throw new ProtoError("number of more than ten bytes");
  };
  const take = (size: number): Uint8Array => {
    if (size > bytes.length - at) throw new ProtoError("message ends inside a field");
    at += size;
    return bytes.subarray(at - size, at);
  };
  const none = new Uint8Array(0);
  while (at < bytes.length) {
    const tag = Number(varint());
    const number = Math.floor(tag / 8);
    const wire = tag % 8;
    if (number === 0) throw new ProtoError("field number 0");
    if (wire === VARINT) yield new ProtoField(number, wire, varint(), none);
    else if (wire === LENGTH) yield new ProtoField(number, wire, 0n, take(Number(varint())));
    else if (wire === FIXED64) yield new ProtoField(number, wire, 0n, take(8));
    else if (wire === FIXED32) yield new ProtoField(number, wire, 0n, take(4));
    else throw new ProtoError(`field ${number} has unknown wire type ${wire}`);
  }
}
