// Reads netlink messages in place, without copying them. A message and its readers are valid until the next receive on the
// socket: parse inside the callback, and store values, never the message.
//
// Lengths in messages are checked against the buffer: an attribute that is too short or too long ends the iteration.
// https://docs.kernel.org/userspace-api/netlink/intro.html
import { addressBits, addressFromBytes, type Cidr, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import type { Bytes } from "../sys/sys.ts";

const TYPE_MASK = 0x3fff; // without NLA_F_NESTED and NLA_F_NET_BYTEORDER
const HEADER = 16;

/** An attribute that is stored to be sent back unchanged. */
export interface RawAttribute {
  /** Including the flag bits. */
  readonly rawType: number;
  readonly bytes: Bytes;
}

/** A cursor over the attributes of a message or of a nested attribute: `while (a.next()) switch (a.type) …`. */
export class NetlinkReader {
  #next: number;
  #start = 0;
  #payload = 0;
  #rawType = 0;
  readonly #bytes: Bytes;
  readonly #view: DataView<ArrayBuffer>;
  readonly #end: number;

  constructor(bytes: Bytes, view: DataView<ArrayBuffer>, start: number, end: number) {
    this.#bytes = bytes;
    this.#view = view;
    this.#next = start;
    this.#end = end;
  }

  static fromBytes(bytes: Bytes, start = 0): NetlinkReader {
    return new NetlinkReader(
      bytes,
      new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength),
      start,
      bytes.byteLength,
    );
  }

  next(): boolean {
    const at = this.#next;
    if (at + 4 > this.#end) return false;
    const length = this.#view.getUint16(at, true);
    if (length < 4 || at + length > this.#end) return false;
    this.#rawType = this.#view.getUint16(at + 2, true);
    this.#start = at + 4;
    this.#payload = length - 4;
    this.#next = at + ((length + 3) & ~3);
    return true;
  }

  get type(): number {
    return this.#rawType & TYPE_MASK;
  }
  /** Payload bytes. */
  get length(): number {
    return this.#payload;
  }
  /** Offset of the payload in the buffer. */
  get start(): number {
    return this.#start;
  }
  u8(): number {
    return this.#payload < 1 ? 0 : this.#view.getUint8(this.#start);
  }
  u16(): number {
    return this.#payload < 2 ? 0 : this.#view.getUint16(this.#start, true);
  }
  u32(): number {
    return this.#payload < 4 ? 0 : this.#view.getUint32(this.#start, true);
  }
  i32(): number {
    return this.#payload < 4 ? 0 : this.#view.getInt32(this.#start, true);
  }
  u64(): bigint {
    return this.#payload < 8 ? 0n : this.#view.getBigUint64(this.#start, true);
  }
  be16(): number {
    return this.#payload < 2 ? 0 : this.#view.getUint16(this.#start);
  }
  be32(): number {
    return this.#payload < 4 ? 0 : this.#view.getUint32(this.#start);
  }
  be64(): bigint {
    return this.#payload < 8 ? 0n : this.#view.getBigUint64(this.#start);
  }
  /** The text before the first NUL. */
  string(): string {
    let text = "";
    for (let i = 0; i < this.#payload; i++) {
      const byte = this.#bytes[this.#start + i] ?? 0;
      if (byte === 0) break;
      if (byte > 127) return this.#unicode();
      text += String.fromCharCode(byte);
    }
    return text;
  }
  /** A copy of the payload. */
  bytes(): Bytes {
    return this.#bytes.slice(this.#start, this.#start + this.#payload);
  }
  /**
   * @param offset of the address in the payload
   * @throws NetlinkError unless 4 or 16 bytes follow
   */
  address(offset = 0): IpAddress {
    const length = this.#payload - offset;
    if (length !== 4 && length !== 16) throw malformed(`address of ${length} bytes`);
    return addressFromBytes(this.#bytes, this.#start + offset, length);
  }
  nested(): NetlinkReader {
    return new NetlinkReader(this.#bytes, this.#view, this.#start, this.#start + this.#payload);
  }
  raw(): RawAttribute {
    return { rawType: this.#rawType, bytes: this.bytes() };
  }

  #unicode(): string {
    const payload = this.#bytes.subarray(this.#start, this.#start + this.#payload);
    const nul = payload.indexOf(0);
    return new TextDecoder().decode(nul < 0 ? payload : payload.subarray(0, nul));
  }
}

/** @throws NetlinkError if the length is too large for the address family */
export function prefixOf(address: IpAddress, length: number): Cidr {
  if (length > addressBits(ipVersion(address))) throw malformed(`prefix ${address}/${length}`);
  return `${address}/${length}` as Cidr; // the kernel has cleared the host bits
}

const malformed = (message: string): NetlinkError => new NetlinkError("read a netlink message", "EBADMSG", { message });

export class NetlinkMessage {
  constructor(
    readonly bytes: Bytes,
    readonly view: DataView<ArrayBuffer>,
    /** Offset of the 16-byte nlmsghdr in `bytes`. */
    readonly start: number,
    readonly end: number,
  ) {}

  get type(): number {
    return this.view.getUint16(this.start + 4, true);
  }
  get flags(): number {
    return this.view.getUint16(this.start + 6, true);
  }
  get sequence(): number {
    return this.view.getUint32(this.start + 8, true);
  }
  /** Payload bytes. */
  get length(): number {
    return this.end - this.start - HEADER;
  }
  // Fields of the family's fixed header. A field past the end of a short message is 0.
  u8(offset: number): number {
    return offset + 1 > this.length ? 0 : this.view.getUint8(this.start + HEADER + offset);
  }
  u16(offset: number): number {
    return offset + 2 > this.length ? 0 : this.view.getUint16(this.start + HEADER + offset, true);
  }
  u32(offset: number): number {
    return offset + 4 > this.length ? 0 : this.view.getUint32(this.start + HEADER + offset, true);
  }
  i32(offset: number): number {
    return offset + 4 > this.length ? 0 : this.view.getInt32(this.start + HEADER + offset, true);
  }
  /** @param header length of the family's fixed header, which the attributes follow */
  attributes(header: number): NetlinkReader {
    const start = this.start + HEADER + ((Math.min(header, this.end) + 3) & ~3);
    return new NetlinkReader(this.bytes, this.view, Math.min(start, this.end), this.end);
  }
}

/** Calls `each` for every message of one datagram. */
export function forEachMessage(bytes: Bytes, length: number, each: (message: NetlinkMessage) => void): void {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  for (let at = 0; at + HEADER <= length; ) {
    const size = view.getUint32(at, true);
    if (size < HEADER || at + size > length) return;
    each(new NetlinkMessage(bytes, view, at, at + size));
    at += (size + 3) & ~3;
  }
}
