// Reads protocol buffers fast: a list of a cluster has hundreds of thousands of fields.
// https://protobuf.dev/programming-guides/encoding/
import { ProtoError } from "../../lib/protobuf.ts";

const VARINT = 0;
const FIXED64 = 1;
const BYTES = 2;
const FIXED32 = 5;
/** Of 64 bits. */
const MOST_VARINT_BYTES = 10;

/** Walks the fields of one message. Every `next` must be followed by the read that fits, or by `passOver`. */
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
    for (let shift = 0n; shift < BigInt(7 * MOST_VARINT_BYTES); shift += 7n) {
      const byte = this.#byte();
      value |= BigInt(byte & 0x7f) << shift;
      if (byte < 0x80) return BigInt.asIntN(64, value);
    }
    throw tooLong();
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

  passOver(): void {
    if (this.#wire === VARINT) this.#varint();
    else if (this.#wire === BYTES) this.#span();
    else if (this.#wire === FIXED64) this.#offset += 8;
    else if (this.#wire === FIXED32) this.#offset += 4;
    else throw new ProtoError(`unknown wire type ${this.#wire}`);
  }

  #span(): [number, number] {
    const length = this.#varint();
    const start = this.#offset;
    const end = start + length;
    if (end > this.#end) throw new ProtoError("field runs past its message");
    this.#offset = end;
    return [start, end];
  }

  #varint(): number {
    let value = 0;
    let scale = 1;
    for (let i = 0; i < MOST_VARINT_BYTES; i++, scale *= 128) {
      const byte = this.#byte();
      value += (byte & 0x7f) * scale;
      if (byte < 0x80) return value;
    }
    throw tooLong();
  }

  #byte(): number {
    const byte = this.#buffer[this.#offset];
    if (byte === undefined || this.#offset >= this.#end) throw new ProtoError("message ends in a field");
    this.#offset++;
    return byte;
  }
}

const tooLong = (): ProtoError => new ProtoError(`number of more than ${MOST_VARINT_BYTES} bytes`);
