// Types and elements of nftables sets and maps, as bytes.
//
// In a key of several fields (a concatenation), each field is padded to four bytes. A set with `interval` contains ranges:
// with one field, a range is two elements (its first key, and the key after its last with a flag); with several fields, it
// is one element with its first and last key. nft stores the byte order of keys in the set's user data; without it,
// `nft list` shows numbers in the wrong byte order.
import { addressBytes, type Cidr, cidrAddress, cidrLength, type IpAddress } from "../../lib/ip/ip.ts";
import type { Verdict } from "./nft-verdict.ts";

export type KeyField = "ipv4_addr" | "ipv6_addr" | "inet_proto" | "inet_service" | "ifname" | "mark";

interface FieldType {
  /** The number that nft uses for the type (`enum datatypes`). The kernel only stores it. */
  readonly id: number;
  readonly length: number;
  readonly hostOrder: boolean;
}
export const FIELD: Readonly<Record<KeyField, FieldType>> = {
  ipv4_addr: { id: 7, length: 4, hostOrder: false },
  ipv6_addr: { id: 8, length: 16, hostOrder: false },
  inet_proto: { id: 12, length: 1, hostOrder: false },
  inet_service: { id: 13, length: 2, hostOrder: false },
  mark: { id: 19, length: 4, hostOrder: true },
  ifname: { id: 41, length: 16, hostOrder: true },
};

export interface SetType {
  readonly key: readonly KeyField[];
  readonly interval?: boolean;
  /** For a map, the type of its values. */
  readonly value?: "verdict" | readonly KeyField[];
}

export interface SetElement {
  readonly key: Uint8Array;
  /** In a set of several fields: the last key of a range. */
  readonly lastKey?: Uint8Array;
  /** In a set of one field: this key is the first one after a range. */
  readonly isEnd?: boolean;
  readonly value?: Verdict | Uint8Array;
}

/** A set inside one rule, such as `tcp dport { 80, 8000-8080 }`. */
export interface InlineSet {
  readonly type: SetType;
  /** At most `length` elements. */
  readonly elements: { readonly length: number } & Iterable<SetElement>;
}

/** Returns the length of a key in bytes; several fields are padded. */
export const keyLength = (fields: readonly KeyField[]): number =>
  fields.length === 1
    ? fields.reduce((sum, field) => sum + FIELD[field].length, 0)
    : fields.reduce((sum, field) => sum + padded(FIELD[field].length), 0);

/** nft's number for the type of a key: six bits per field. */
export const keyTypeId = (fields: readonly KeyField[]): number =>
  fields.reduce((id, field) => (id << 6) | FIELD[field].id, 0);

/** Joins several fields to one key. */
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

/** 16 bytes, padded with zeros. */
export function interfaceNameBytes(name: string): Uint8Array {
  const bytes = new Uint8Array(16);
  if (encoder.encodeInto(name, bytes.subarray(0, 15)).read !== name.length)
    throw new RangeError(`interface name ${JSON.stringify(name)} is longer than 15 bytes`);
  return bytes;
}

/** A number in host byte order, as in registers with marks, conntrack states and address types. */
export const hostWord = (value: number): Uint8Array =>
  Uint8Array.of(value & 255, (value >>> 8) & 255, (value >>> 16) & 255, value >>> 24);

/** Returns the first and last address of a prefix. */
export function prefixRange(cidr: Cidr): { readonly first: Uint8Array; readonly last: Uint8Array } {
  const first = addressBytes(cidrAddress(cidr));
  const last = first.slice();
  for (let bit = cidrLength(cidr); bit < last.length * 8; bit++)
    last[bit >> 3] = (last[bit >> 3] ?? 0) | (0x80 >> (bit & 7));
  return { first, last };
}

/** Returns the elements of a range in a set of one field. There is no end element if no key follows the last. */
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

/** Encodes the set's user data as nft does, so that nft can list the set. */
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
