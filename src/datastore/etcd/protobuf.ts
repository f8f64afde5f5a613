// The wire of protocol buffers, as far as etcd's messages need it: varints, byte strings, nested messages.
// https://protobuf.dev/programming-guides/encoding/

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;

/** Grows one buffer from front to back. Zero values are left out, as proto3 wants. */
export class ProtoWriter {
  #buffer = Buffer.allocUnsafe(256);
  #length = 0;

  number(field: number, value: number | bigint | undefined): this {
    return value === undefined || value === 0 || value === 0n ? this : this.numberOrZero(field, value);
  }

  /** Present even when zero: members of a `oneof` are. */
  numberOrZero(field: number, value: number | bigint): this {
    this.#varint((field << 3) | VARINT);
    if (typeof value === "number" && value >= 0 && value <= 0xffffffff) this.#varint(value);
    else this.#bigVarint(BigInt.asUintN(64, BigInt(value)));
    return this;
  }

  boolean(field: number, value: boolean | undefined): this {
    return this.number(field, value === true ? 1 : 0);
  }

  text(field: number, value: string | undefined): this {
    if (value === undefined || value === "") return this;
    const size = Buffer.byteLength(value);
    this.#varint((field << 3) | BYTES);
    this.#varint(size);
    this.#reserve(size);
    this.#buffer.write(value, this.#length);
    this.#length += size;
    return this;
  }

  bytes(field: number, value: Uint8Array): this {
    this.#varint((field << 3) | BYTES);
    this.#varint(value.length);
    this.#reserve(value.length);
    this.#buffer.set(value, this.#length);
    this.#length += value.length;
    return this;
  }

  /** A nested message; written even when empty, which is how a `oneof` is told. */
  message(field: number, write: (writer: ProtoWriter) => void): this {
    const nested = new ProtoWriter();
    write(nested);
    return this.bytes(field, nested.finish());
  }

  finish(): Buffer {
    return this.#buffer.subarray(0, this.#length);
  }

  #varint(value: number): void {
    this.#reserve(10);
    let rest = value;
    while (rest > 0x7f) {
      this.#buffer[this.#length++] = (rest & 0x7f) | 0x80;
      rest = Math.floor(rest / 128);
    }
    this.#buffer[this.#length++] = rest;
  }

  #bigVarint(value: bigint): void {
    this.#reserve(10);
    let rest = value;
    while (rest > 0x7fn) {
      this.#buffer[this.#length++] = Number(rest & 0x7fn) | 0x80;
      rest >>= 7n;
    }
    this.#buffer[this.#length++] = Number(rest);
  }

  #reserve(size: number): void {
    if (this.#length + size <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#length + size));
    this.#buffer.copy(larger, 0, 0, this.#length);
    this.#buffer = larger;
  }
}

/** Walks the fields of one message. Every `next` must be followed by the read that fits, or by `skip`. */
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

  /** The number of the next field, 0 at the end. */
  next(): number {
    if (this.#offset >= this.#end) return 0;
    const tag = this.#varint();
    this.#wire = tag & 7;
    return tag >>> 3;
  }

  /** Exact up to 2^53, which no revision reaches. */
  number(): number {
    return this.#varint();
  }

  /** All 64 bits, for lease numbers. */
  bigint(): bigint {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.#byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, value);
    }
  }

  boolean(): boolean {
    return this.#varint() !== 0;
  }

  text(): string {
    const [start, end] = this.#span();
    return this.#buffer.toString("utf8", start, end);
  }

  message(): ProtoReader {
    const [start, end] = this.#span();
    return new ProtoReader(this.#buffer, start, end);
  }

  skip(): void {
    if (this.#wire === VARINT) this.#varint();
    else if (this.#wire === BYTES) this.#span();
    else if (this.#wire === FIXED64) this.#offset += 8;
    else if (this.#wire === FIXED32) this.#offset += 4;
    else throw new RangeError(`protobuf: unknown wire type ${this.#wire}`);
  }

  #span(): [number, number] {
    const length = this.#varint();
    const start = this.#offset;
    const end = start + length;
    if (end > this.#end) throw new RangeError("protobuf: field runs past its message");
    this.#offset = end;
    return [start, end];
  }

  #varint(): number {
    let value = 0;
    for (let scale = 1; ; scale *= 128) {
      const byte = this.#byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
  }

  #byte(): number {
    const byte = this.#buffer[this.#offset];
    if (byte === undefined || this.#offset >= this.#end) throw new RangeError("protobuf: message ends in a field");
    this.#offset++;
    return byte;
  }
}
