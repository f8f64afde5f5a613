// Writes and reads the wire format of Protocol Buffers (proto3), as far as our messages need it. Fields are written front to
// back into one growing buffer. Callers write them in the order of their numbers, and default values are omitted, so that
// equal values have equal bytes. https://protobuf.dev/programming-guides/encoding/

const VARINT = 0;
const FIXED64 = 1;
const LENGTH = 2;
const FIXED32 = 5;
const MAX_VARINT_BYTES = 10; // for 64 bits
/** A field number has 29 bits, the wire type 3. */
const MAX_TAG = 2 ** 32 - 1;
const encoder = new TextEncoder();

export class ProtoWriter {
  #bytes = new Uint8Array(1024);
  #view = new DataView(this.#bytes.buffer);
  #at = 0;

  /** Returns a copy of the written bytes. */
  finish(): Uint8Array {
    return this.#bytes.slice(0, this.#at);
  }

  /** The written bytes, valid until the next write. */
  view(): Uint8Array {
    return this.#bytes.subarray(0, this.#at);
  }

  reset(): void {
    this.#at = 0;
  }

  /** Writes bytes without a tag. */
  raw(bytes: Uint8Array): void {
    this.#reserve(bytes.length);
    this.#bytes.set(bytes, this.#at);
    this.#at += bytes.length;
  }

  string(field: number, value: string | undefined): void {
    if (value !== undefined && value !== "") this.#string(field, value);
  }

  /** Empty strings are written too. */
  strings(field: number, values: readonly string[]): void {
    for (const value of values) this.#string(field, value);
  }

  bool(field: number, value: boolean | undefined): void {
    if (value !== true) return;
    this.#tag(field, VARINT);
    this.#varint(1);
  }

  /** int32, int64, uint32 and enums. Negative numbers have ten bytes, as the format requires. */
  int(field: number, value: number | undefined): void {
    if (value !== undefined && value !== 0) this.intAlways(field, value);
  }

  /** For a member of a oneof, or a field in which 0 and absent are different. */
  intAlways(field: number, value: number | bigint): void {
    this.#tag(field, VARINT);
    if (typeof value === "bigint" || value < 0) this.#bigVarint(BigInt.asUintN(64, BigInt(value)));
    else this.#varint(value);
  }

  double(field: number, value: number): void {
    if (value === 0) return;
    this.#tag(field, FIXED64);
    this.#reserve(8);
    this.#view.setFloat64(this.#at, value, true);
    this.#at += 8;
  }

  /** Writes a nested message, even if it is empty. */
  message(field: number, write: () => void): void {
    this.#tag(field, LENGTH);
    const start = this.#at;
    this.#reserve(1);
    this.#at++; // one byte for the length; a longer length moves the message
    write();
    const length = this.#at - start - 1;
    const size = varintSize(length);
    if (size > 1) {
      this.#reserve(size - 1);
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
    const maxBytes = value.length * 3;
    this.#reserve(maxBytes + 5);
    const size = varintSize(maxBytes);
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
    this.#reserve(10);
    let rest = value;
    while (rest > 127) {
      this.#bytes[this.#at++] = (rest % 128) | 128;
      rest = Math.floor(rest / 128);
    }
    this.#bytes[this.#at++] = rest;
  }

  #bigVarint(value: bigint): void {
    this.#reserve(10);
    let rest = value;
    while (rest > 127n) {
      this.#bytes[this.#at++] = Number(rest & 127n) | 128;
      rest >>= 7n;
    }
    this.#bytes[this.#at++] = Number(rest);
  }

  #reserve(size: number): void {
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

/**
 * Reads the fields of one message in their order. No object is created per field, because a list of a large cluster has
 * hundreds of thousands of fields. Each `next` must be followed by the read method of the field's type, or by `skip`. These
 * methods throw `ProtoError` if the bytes are not a message, or if the field has another wire type.
 */
export class ProtoReader {
  readonly #buffer: Buffer;
  readonly #end: number;
  #offset: number;
  #wire = VARINT;

  constructor(buffer: Buffer, start = 0, end = buffer.length) {
    this.#buffer = buffer;
    this.#offset = start;
    this.#end = end;
  }

  /** For bytes that are not a Buffer. The bytes are not copied. */
  static of({ buffer, byteOffset, byteLength }: Uint8Array): ProtoReader {
    return new ProtoReader(Buffer.from(buffer, byteOffset, byteLength));
  }

  /** Moves to the next field and returns its number, or 0 at the end. */
  next(): number {
    if (this.#offset >= this.#end) return 0;
    const tag = this.#varint();
    if (tag < 8 || tag > MAX_TAG) throw new ProtoError("field number out of range");
    this.#wire = tag & 7;
    return tag >>> 3;
  }

  /** True if the current field is a string, bytes or a message. */
  get hasLength(): boolean {
    return this.#wire === LENGTH;
  }

  /** True if the current field is an integer, an enum or a boolean. */
  get isVarint(): boolean {
    return this.#wire === VARINT;
  }

  /** A non-negative integer, exact up to 2^53. Revisions of etcd do not reach that in practice. */
  number(): number {
    this.#expect(VARINT);
    return this.#varint();
  }

  /** A signed 64-bit integer. */
  bigint(): bigint {
    this.#expect(VARINT);
    let value = 0n;
    for (let shift = 0n; shift < BigInt(7 * MAX_VARINT_BYTES); shift += 7n) {
      const byte = this.#byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, value);
    }
    throw tooLong();
  }

  boolean(): boolean {
    return this.number() !== 0;
  }

  double(): number {
    this.#expect(FIXED64);
    const end = this.#advance(8);
    return this.#buffer.readDoubleLE(end - 8);
  }

  text(): string {
    const length = this.#length();
    const end = this.#advance(length);
    return this.#buffer.toString("utf8", end - length, end);
  }

  /** A view of the field's bytes. */
  bytes(): Buffer {
    const length = this.#length();
    const end = this.#advance(length);
    return this.#buffer.subarray(end - length, end);
  }

  message(): ProtoReader {
    const length = this.#length();
    const end = this.#advance(length);
    return new ProtoReader(this.#buffer, end - length, end);
  }

  skip(): void {
    if (this.#wire === VARINT) this.#varint();
    else if (this.#wire === LENGTH) this.#advance(this.#varint());
    else if (this.#wire === FIXED64) this.#advance(8);
    else if (this.#wire === FIXED32) this.#advance(4);
    else throw new ProtoError(`unknown wire type ${this.#wire}`);
  }

  #expect(wire: number): void {
    if (this.#wire !== wire) throw new ProtoError(`field has wire type ${this.#wire}, not ${wire}`);
  }

  #length(): number {
    this.#expect(LENGTH);
    return this.#varint();
  }

  /** Skips `length` bytes and returns the new offset. */
  #advance(length: number): number {
    const end = this.#offset + length;
    if (end > this.#end) throw new ProtoError("field extends past the end of its message");
    this.#offset = end;
    return end;
  }

  #varint(): number {
    let value = 0;
    let scale = 1;
    for (let i = 0; i < MAX_VARINT_BYTES; i++, scale *= 128) {
      const byte = this.#byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
    throw tooLong();
  }

  #byte(): number {
    const byte = this.#buffer[this.#offset];
    if (byte === undefined || this.#offset >= this.#end) throw new ProtoError("message ends inside a field");
    this.#offset++;
    return byte;
  }
}

const tooLong = (): ProtoError => new ProtoError(`varint has more than ${MAX_VARINT_BYTES} bytes`);
