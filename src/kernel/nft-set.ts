// Sets and maps of nf_tables: what their keys are made of, and their elements as bytes.
//
// A key of several fields (a concatenation) pads each field to four bytes. A set with `interval` holds ranges: with
// one field as pairs of elements (first, and the one after the last with a flag), with several as first and last
// key of one element. nft keeps the byte order of keys in the set's user data; without it `nft list` shows numbers
// back to front.
import { addressBytes, type Cidr, cidrAddress, cidrLength, type IpAddress } from "../lib/ip.ts";
import type { Verdict } from "./nft-verdict.ts";

export type KeyField = "ipv4_addr" | "ipv6_addr" | "inet_proto" | "inet_service" | "ifname" | "mark" | "icmp_type";

interface FieldType {
  /** nft's own number for the type: the kernel only stores it. */
  readonly id: number;
  readonly length: number;
  readonly hostOrder: boolean;
}
export const FIELD: Readonly<Record<KeyField, FieldType>> = {
  ipv4_addr: { id: 7, length: 4, hostOrder: false },
  ipv6_addr: { id: 8, length: 16, hostOrder: false },
  inet_proto: { id: 12, length: 1, hostOrder: false },
  inet_service: { id: 13, length: 2, hostOrder: false },
  icmp_type: { id: 14, length: 1, hostOrder: false },
  mark: { id: 19, length: 4, hostOrder: true },
  ifname: { id: 41, length: 16, hostOrder: true },
};

export interface SetType {
  readonly key: readonly KeyField[];
  readonly interval?: boolean;
  /** What a map's keys lead to. */
  readonly value?: "verdict" | readonly KeyField[];
  /** Elements may expire; the default for those that do not say. */
  readonly timeoutMs?: number;
  readonly maxSize?: number;
}

export interface SetElement {
  readonly key: Uint8Array;
  /** The last key of a range in a set of several fields. */
  readonly lastKey?: Uint8Array;
  /** This key is the first one past a range, in a set of one field. */
  readonly isEnd?: boolean;
  readonly value?: Verdict | Uint8Array;
  readonly timeoutMs?: number;
}

/** A set inside one rule, such as `tcp dport { 80, 8000-8080 }`. */
export interface InlineSet {
  readonly type: SetType;
  /** At most `length` of them. */
  readonly elements: { readonly length: number } & Iterable<SetElement>;
}

/** Bytes of a whole key, fields padded when there are several. */
export const keyLength = (fields: readonly KeyField[]): number =>
  fields.length === 1
    ? fields.reduce((sum, field) => sum + FIELD[field].length, 0)
    : fields.reduce((sum, field) => sum + padded(FIELD[field].length), 0);

/** nft's number for the type: six bits per field. */
export const keyTypeId = (fields: readonly KeyField[]): number =>
  fields.reduce((id, field) => (id << 6) | FIELD[field].id, 0);

/** Several fields as one key. */
export function concatenate(...fields: readonly Uint8Array[]): Uint8Array {
  const key = new Uint8Array(fields.reduce((sum, field) => sum + padded(field.length), 0));
  let offset = 0;
  for (const field of fields) {
    key.set(field, offset);
    offset += padded(field.length);
  }
  return key;
}

export const serviceBytes = (port: number): Uint8Array => Uint8Array.of(port >>> 8, port & 255);

const encoder = new TextEncoder();

/** An interface name fills its 16 bytes with zeros. */
export function interfaceNameBytes(name: string): Uint8Array {
  const bytes = new Uint8Array(16);
  if (encoder.encodeInto(name, bytes.subarray(0, 15)).read !== name.length)
    throw new RangeError(`interface name ${JSON.stringify(name)} is longer than 15 bytes`);
  return bytes;
}

/** A number as the kernel holds it in a register: marks, states, types of addresses. */
export const hostWord = (value: number): Uint8Array =>
  Uint8Array.of(value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24);

/** First and last address of a prefix. */
export function prefixRange(cidr: Cidr): { readonly first: Uint8Array; readonly last: Uint8Array } {
  const first = addressBytes(cidrAddress(cidr));
  const last = first.slice();
  for (let bit = cidrLength(cidr); bit < last.length * 8; bit++)
    last[bit >> 3] = (last[bit >> 3] ?? 0) | (0x80 >> (bit & 7));
  return { first, last };
}

/** The elements that make one range in a set of one field; the end is left out where no key follows the last. */
export function rangeElements(first: Uint8Array, last: Uint8Array): SetElement[] {
  const after = increment(last);
  return after === undefined ? [{ key: first }] : [{ key: first }, { key: after, isEnd: true }];
}

export const prefixElements = (cidr: Cidr): SetElement[] => {
  const { first, last } = prefixRange(cidr);
  return rangeElements(first, last);
};

export const addressElement = (address: IpAddress): SetElement => ({ key: addressBytes(address) });

function increment(key: Uint8Array): Uint8Array | undefined {
  const next = key.slice();
  for (let i = next.length - 1; i >= 0; i--) {
    const byte = next[i] ?? 0;
    next[i] = (byte + 1) & 255;
    if (byte !== 255) return next;
  }
  return undefined;
}

const padded = (length: number): number => (length + 3) & ~3;

const UDATA_SET_KEYBYTEORDER = 0;
const UDATA_SET_DATABYTEORDER = 1;
const UDATA_SET_MERGE_ELEMENTS = 2;
const BYTEORDER_HOST_ENDIAN = 1;
const BYTEORDER_BIG_ENDIAN = 2;

/** What nft itself would leave in the set's user data, so that it lists the set as its own. */
export function setUserData(type: SetType): Uint8Array {
  const parts: Uint8Array[] = [userWord(UDATA_SET_KEYBYTEORDER, byteOrder(type.key))];
  if (type.value !== undefined)
    parts.push(userWord(UDATA_SET_DATABYTEORDER, type.value === "verdict" ? 0 : byteOrder(type.value)));
  else if (type.interval === true && type.key.length === 1) parts.push(userWord(UDATA_SET_MERGE_ELEMENTS, 0));
  const bytes = new Uint8Array(parts.reduce((sum, part) => sum + part.length, 0));
  let offset = 0;
  for (const part of parts) {
    bytes.set(part, offset);
    offset += part.length;
  }
  return bytes;
}

const byteOrder = (fields: readonly KeyField[]): number => {
  const [only] = fields;
  if (fields.length !== 1 || only === undefined) return 0;
  return FIELD[only].hostOrder ? BYTEORDER_HOST_ENDIAN : BYTEORDER_BIG_ENDIAN;
};

function userWord(kind: number, value: number): Uint8Array {
  const bytes = new Uint8Array(6);
  bytes[0] = kind;
  bytes[1] = 4;
  bytes.set(hostWord(value), 2);
  return bytes;
}
