// Writes netlink messages front to back into one growing buffer. The length of a message or nested attribute is filled in
// when it ends, so no part is built separately and copied. `#reserve` may replace the buffer: call it before reading `#view`.
// https://docs.kernel.org/userspace-api/netlink/intro.html
import { addressBytes, type IpAddress } from "../../lib/ip/ip.ts";
import type { RawAttribute } from "./netlink-reader.ts";
import { allocate, type Bytes } from "../sys/sys.ts";

const NLM_F_REQUEST = 0x1;
export const NLM_F_ACK = 0x4;
export const NLM_F_REPLACE = 0x100;
export const NLM_F_EXCL = 0x200;
export const NLM_F_CREATE = 0x400;
export const NLM_F_APPEND = 0x800;
export const NLM_F_DUMP = 0x300;

const NLA_F_NESTED = 0x8000;
const HEADER = 16;
const MAX_ATTRIBUTE = 0xffff;
const INITIAL_BYTES = 4096;
/** A larger buffer is freed by `reset`. Only the first batches after a start need one. */
const MAX_KEPT_BYTES = 1 << 20;
const encoder = new TextEncoder();

export class NetlinkWriter {
  #bytes: Bytes;
  #view: DataView<ArrayBuffer>;
  #length = 0;
  #messages = 0;
  #firstSequence: number;

  /** @param firstSequence sequence number of the first message; the following messages have consecutive numbers */
  constructor(firstSequence = 1, initialBytes = INITIAL_BYTES) {
    this.#firstSequence = firstSequence;
    this.#bytes = allocate(initialBytes);
    this.#view = new DataView(this.#bytes.buffer);
  }

  /** Only the first `length` bytes are written. A write that grows the buffer replaces it. */
  get buffer(): Bytes {
    return this.#bytes;
  }
  get length(): number {
    return this.#length;
  }
  get messages(): number {
    return this.#messages;
  }
  get firstSequence(): number {
    return this.#firstSequence;
  }
  /** Returns a copy of the written bytes. */
  toBytes(from = 0): Bytes {
    return this.#bytes.slice(from, this.#length);
  }

  reset(firstSequence: number): void {
    if (this.#bytes.length > MAX_KEPT_BYTES) {
      this.#bytes = allocate(INITIAL_BYTES);
      this.#view = new DataView(this.#bytes.buffer);
    }
    this.#firstSequence = firstSequence;
    this.#length = 0;
    this.#messages = 0;
  }

  /** Allocates the expected size at once. Growing to it step by step would copy and discard as many bytes again. */
  reserveCapacity(bytes: number): void {
    if (bytes > this.#bytes.length && this.#length === 0) {
      this.#bytes = allocate(bytes);
      this.#view = new DataView(this.#bytes.buffer);
    }
  }

  /** @param body writes the family's fixed header and then the attributes */
  message(type: number, flags: number, body: () => void): void {
    const start = this.beginMessage(type, flags);
    body();
    this.endMessage(start);
  }
  /** `message` without a closure, for hot paths. Returns the argument of `endMessage`. */
  beginMessage(type: number, flags: number): number {
    this.#align();
    const start = this.#reserve(HEADER);
    this.#view.setUint16(start + 4, type, true);
    this.#view.setUint16(start + 6, flags | NLM_F_REQUEST, true);
    this.#view.setUint32(start + 8, this.#firstSequence + this.#messages, true);
    this.#view.setUint32(start + 12, 0, true);
    return start;
  }
  endMessage(start: number): void {
    this.#align();
    this.#view.setUint32(start, this.#length - start, true);
    this.#messages++;
  }

  // Fields of fixed headers, without attribute headers.
  putU8(value: number): void {
    const at = this.#reserve(1);
    this.#view.setUint8(at, value);
  }
  putU16(value: number): void {
    const at = this.#reserve(2);
    this.#view.setUint16(at, value, true);
  }
  putU32(value: number): void {
    const at = this.#reserve(4);
    this.#view.setUint32(at, value >>> 0, true);
  }
  putI32(value: number): void {
    const at = this.#reserve(4);
    this.#view.setInt32(at, value, true);
  }
  putBe16(value: number): void {
    const at = this.#reserve(2);
    this.#view.setUint16(at, value);
  }
  putBytes(bytes: Uint8Array): void {
    const at = this.#reserve(bytes.length);
    this.#bytes.set(bytes, at);
  }
  putZero(length: number): void {
    const at = this.#reserve(length);
    this.#bytes.fill(0, at, at + length);
  }

  // Attributes.
  u8(type: number, value: number): void {
    const at = this.#header(type, 1);
    this.#view.setUint8(at, value);
  }
  u16(type: number, value: number): void {
    const at = this.#header(type, 2);
    this.#view.setUint16(at, value, true);
  }
  u32(type: number, value: number): void {
    const at = this.#header(type, 4);
    this.#view.setUint32(at, value >>> 0, true);
  }
  i32(type: number, value: number): void {
    const at = this.#header(type, 4);
    this.#view.setInt32(at, value, true);
  }
  u64(type: number, value: bigint | number): void {
    const at = this.#header(type, 8);
    this.#view.setBigUint64(at, BigInt(value), true);
  }
  be16(type: number, value: number): void {
    const at = this.#header(type, 2);
    this.#view.setUint16(at, value);
  }
  be32(type: number, value: number): void {
    const at = this.#header(type, 4);
    this.#view.setUint32(at, value >>> 0);
  }
  be64(type: number, value: bigint | number): void {
    const at = this.#header(type, 8);
    if (value === 0) this.#bytes.fill(0, at, at + 8);
    else this.#view.setBigUint64(at, BigInt(value));
  }
  bytes(type: number, bytes: Uint8Array): void {
    const at = this.#header(type, bytes.length);
    this.#bytes.set(bytes, at);
  }
  /** 4 or 16 bytes in network byte order. */
  address(type: number, address: IpAddress): void {
    this.bytes(type, addressBytes(address));
  }
  /** NUL-terminated text. */
  string(type: number, text: string): void {
    const length = text.length;
    const at = this.#header(type, length + 1);
    for (let i = 0; i < length; i++) {
      const code = text.charCodeAt(i);
      if (code === 0 || code > 127) return this.#encodeString(type, text, at);
      this.#bytes[at + i] = code;
    }
    this.#bytes[at + length] = 0;
  }
  /** Writes an attribute as it was received, including its flags. */
  raw(attribute: RawAttribute): void {
    this.bytes(attribute.rawType, attribute.bytes);
  }

  /** Writes an attribute that contains attributes. */
  nest(type: number, body: () => void): void {
    const start = this.beginNest(type);
    body();
    this.endNest(start);
  }
  /** `nest` without a closure, for hot paths. Returns the argument of `endNest`. */
  beginNest(type: number): number {
    this.#align();
    const start = this.#reserve(4);
    this.#view.setUint16(start + 2, type | NLA_F_NESTED, true);
    return start;
  }
  endNest(start: number): void {
    const length = this.#length - start;
    if (length > MAX_ATTRIBUTE) throw new RangeError(`attribute of ${length} bytes: at most ${MAX_ATTRIBUTE} fit`);
    this.#view.setUint16(start, length, true);
    this.#align();
  }

  /** Writes an attribute header, reserves the padded payload and returns the payload's offset. */
  #header(type: number, payload: number): number {
    this.#align();
    const length = payload + 4;
    if (length > MAX_ATTRIBUTE) throw new RangeError(`attribute of ${length} bytes: at most ${MAX_ATTRIBUTE} fit`);
    const at = this.#reserve((length + 3) & ~3);
    this.#view.setUint16(at, length, true);
    this.#view.setUint16(at + 2, type, true);
    if ((payload & 3) !== 0) this.#view.setUint32(at + (length & ~3), 0, true); // zeroes the padding
    return at + 4;
  }

  #encodeString(type: number, text: string, at: number): void {
    if (text.includes("\0")) throw new RangeError(`${JSON.stringify(text)} contains a NUL`);
    this.#length = at - 4;
    const encoded = encoder.encode(text);
    const start = this.#header(type, encoded.length + 1);
    this.#bytes.set(encoded, start);
    this.#bytes[start + encoded.length] = 0;
  }

  #align(): void {
    const padding = -this.#length & 3;
    if (padding > 0) this.putZero(padding);
  }

  #reserve(count: number): number {
    const at = this.#length;
    const end = at + count;
    if (end > this.#bytes.length) {
      const grown = allocate(Math.max(end, this.#bytes.length * 2));
      grown.set(this.#bytes.subarray(0, at));
      this.#bytes = grown;
      this.#view = new DataView(grown.buffer);
    }
    this.#length = end;
    return at;
  }
}
