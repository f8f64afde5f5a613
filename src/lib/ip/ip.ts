// Parses, formats and compares IP addresses and prefixes. They are represented as canonical text (for IPv6 RFC 5952), so
// that equal values are `===` and one Map key. For arithmetic they are converted to bigint, or to number for IPv4.
import { quote } from "../shorten.ts";

export type IpVersion = 4 | 6;
/** One address in canonical text, such as `10.0.0.1` or `fd00::1`. */
export type IpAddress = string & { readonly __brand: "IpAddress" };
/** A prefix in canonical text with the host bits cleared, such as `10.0.0.0/26`. */
export type Cidr = string & { readonly __brand: "Cidr" };
/** An address with the prefix length of its network, as interfaces and nodes have them. */
export interface IpNetwork {
  readonly address: IpAddress;
  readonly length: number;
}

export class ParseError extends Error {
  override readonly name = "ParseError";
  /** @param wanted the expected format, with an example */
  constructor(
    readonly what: string,
    readonly text: string,
    readonly wanted: string,
  ) {
    super(`${quote(text)} is not a valid ${what}: ${wanted}`);
  }
}

export const addressBits = (version: IpVersion): 32 | 128 => (version === 4 ? 32 : 128);

export function parseAddress(text: string): IpAddress {
  const address = tryParseAddress(text);
  if (address === undefined) throw new ParseError("IP address", text, "want 10.0.0.1 or fd00::1");
  return address;
}

/** Undefined if the value is not an address. For values that were not validated. */
export function tryParseAddress(text: unknown): IpAddress | undefined {
  if (typeof text !== "string") return undefined;
  if (text.includes(":")) {
    const groups = parseV6(text);
    if (groups === undefined) return undefined;
    // An IPv4-mapped address (RFC 4291 section 2.5.5.2) is converted to the IPv4 address, as in Go.
    return isMappedV4(groups) ? formatV4(wordOf(groups, 6)) : formatGroups(groups);
  }
  const value = parseV4(text);
  return value === undefined ? undefined : formatV4(value);
}

/** Returns canonical text with host bits cleared. An address without length becomes a /32 or /128. */
export function parseCidr(text: string): Cidr {
  const cidr = tryParseCidr(text);
  if (cidr === undefined) throw new ParseError("CIDR", text, "want 10.0.0.0/26 or fd00::/122");
  return cidr;
}

export function tryParseCidr(text: unknown): Cidr | undefined {
  if (typeof text === "string" && isCanonicalV4Cidr(text)) return text as Cidr;
  const network = tryParseNetwork(text);
  return network === undefined ? undefined : maskCidr(network.address, network.length);
}

/** Parses `10.0.0.5/24` and keeps the host bits. An address without length has length 32 or 128. */
export function parseNetwork(text: string): IpNetwork {
  const network = tryParseNetwork(text);
  if (network === undefined) throw new ParseError("CIDR", text, "want 10.0.0.5/24 or fd00::5/64");
  return network;
}

export function tryParseNetwork(text: unknown): IpNetwork | undefined {
  if (typeof text !== "string") return undefined;
  const slash = text.indexOf("/");
  if (slash < 0) {
    const address = tryParseAddress(text);
    return address === undefined ? undefined : { address, length: addressBits(ipVersion(address)) };
  }
  const address = tryParseAddress(text.slice(0, slash));
  const lengthText = text.slice(slash + 1);
  if (address === undefined || !/^(0|[1-9]\d{0,2})$/.test(lengthText)) return undefined;
  const mapped = text.lastIndexOf(":", slash) >= 0 && ipVersion(address) === 4;
  const length = Number(lengthText) - (mapped ? 96 : 0);
  return length < 0 || length > addressBits(ipVersion(address)) ? undefined : { address, length };
}

export function ipVersion(text: IpAddress | Cidr): IpVersion {
  return text.includes(":") ? 6 : 4;
}

export function cidrAddress(cidr: Cidr): IpAddress {
  return cidr.slice(0, cidr.indexOf("/")) as IpAddress;
}

export function cidrLength(cidr: Cidr): number {
  return Number(cidr.slice(cidr.indexOf("/") + 1));
}

/** Returns the prefix of this length that contains the address. */
export function maskCidr(address: IpAddress, length: number): Cidr {
  if (ipVersion(address) === 4) {
    const value = parseV4(address) ?? 0;
    const mask = length === 0 ? 0 : (-1 << (32 - length)) >>> 0;
    return `${formatV4((value & mask) >>> 0)}/${length}` as Cidr;
  }
  const groups = parseV6(address) ?? NO_GROUPS;
  const masked = groups.map((group, i) => group & (0xffff0000 >> Math.min(16, Math.max(0, length - 16 * i))));
  return `${formatGroups(masked)}/${length}` as Cidr;
}

/** The address as /32 or /128. */
export function hostCidr(address: IpAddress): Cidr {
  return `${address}/${addressBits(ipVersion(address))}` as Cidr;
}

export function addressToBigInt(address: IpAddress): bigint {
  if (!address.includes(":")) return BigInt(parseV4(address) ?? 0);
  const groups = parseV6(address) ?? NO_GROUPS;
  const [first = 0n, second = 0n, third = 0n, last = 0n] = [0, 2, 4, 6].map((i) => BigInt(wordOf(groups, i)));
  return (((((first << 32n) | second) << 32n) | third) << 32n) | last;
}

/** For IPv4 addresses only. */
export function addressToNumber(address: IpAddress): number {
  return parseV4(address) ?? 0;
}

export function addressFromNumber(value: number): IpAddress {
  return formatV4(value);
}

export function addressFromBigInt(value: bigint, version: IpVersion): IpAddress {
  if (value < 0n || value >> BigInt(addressBits(version)) !== 0n)
    throw new RangeError(`no IPv${version} address ${value}`);
  return version === 4 ? formatV4(Number(value)) : formatV6(value);
}

/** @throws RangeError if the result is outside the address family */
export function addressPlus(address: IpAddress, offset: number | bigint): IpAddress {
  return addressFromBigInt(addressToBigInt(address) + BigInt(offset), ipVersion(address));
}

/** Returns 4 or 16 bytes in network byte order. */
export function addressBytes(address: IpAddress): Uint8Array {
  if (!address.includes(":")) {
    const value = parseV4(address) ?? 0;
    return Uint8Array.of(value >>> 24, (value >>> 16) & 255, (value >>> 8) & 255, value & 255);
  }
  const bytes = new Uint8Array(16);
  for (const [i, group] of (parseV6(address) ?? NO_GROUPS).entries()) {
    bytes[2 * i] = group >>> 8;
    bytes[2 * i + 1] = group & 255;
  }
  return bytes;
}

export function addressFromBytes(bytes: Uint8Array, start = 0, length = bytes.length - start): IpAddress {
  const at = (i: number): number => bytes[start + i] ?? 0;
  if (length === 4) return `${at(0)}.${at(1)}.${at(2)}.${at(3)}` as IpAddress;
  if (length !== 16) throw new RangeError(`an address has 4 or 16 bytes, not ${length}`);
  const groups: number[] = [];
  for (let i = 0; i < 16; i += 2) groups.push((at(i) << 8) | at(i + 1));
  return formatGroups(groups);
}

/** Returns whether `outer` contains all of `inner`; false if the families differ. */
export function cidrContains(outer: Cidr, inner: Cidr | IpAddress): boolean {
  if (ipVersion(outer) !== ipVersion(inner)) return false;
  const slash = inner.indexOf("/");
  const address = (slash < 0 ? inner : inner.slice(0, slash)) as IpAddress;
  const length = cidrLength(outer);
  if (slash >= 0 && Number(inner.slice(slash + 1)) < length) return false;
  return maskCidr(address, length) === outer;
}

export function cidrsOverlap(a: Cidr, b: Cidr): boolean {
  return cidrContains(a, b) || cidrContains(b, a);
}

/** Returns the number of addresses in the prefix. */
export function cidrSize(cidr: Cidr): bigint {
  return 1n << BigInt(addressBits(ipVersion(cidr)) - cidrLength(cidr));
}

function parseV4(text: string, length = text.length): number | undefined {
  let value = 0;
  let part = -1;
  let dots = 0;
  for (let i = 0; i < length; i++) {
    const code = text.charCodeAt(i);
    if (code === 46) {
      if (part < 0 || ++dots > 3) return undefined;
      value = value * 256 + part;
      part = -1;
    } else if (code >= 48 && code <= 57) {
      if (part === 0) return undefined; // a leading zero might mean octal; Go rejects it too
      part = part < 0 ? code - 48 : part * 10 + code - 48;
      if (part > 255) return undefined;
    } else return undefined;
  }
  return dots === 3 && part >= 0 ? value * 256 + part : undefined;
}

/** True if parsing and formatting would return the same text. A fast path, because nearly all prefixes are canonical. */
function isCanonicalV4Cidr(text: string): boolean {
  const slash = text.indexOf("/");
  const digits = text.length - slash - 1;
  if (slash < 0 || digits < 1 || digits > 2) return false;
  const tens = digits === 2 ? text.charCodeAt(slash + 1) - 48 : 0;
  const units = text.charCodeAt(text.length - 1) - 48;
  const length = tens * 10 + units;
  if (tens < 0 || tens > 9 || units < 0 || units > 9 || length > 32 || (digits === 2 && tens === 0)) return false;
  const value = parseV4(text, slash);
  return value !== undefined && value % 2 ** (32 - length) === 0;
}

/** Returns the eight groups of an IPv6 address. The last two may be written as an IPv4 address. */
function parseV6(text: string): number[] | undefined {
  const groups: number[] = [];
  let gap = -1; // the number of groups before `::`
  let at = 0;
  if (text.startsWith("::")) {
    gap = 0;
    at = 2;
  }
  while (at < text.length) {
    const start = at;
    let value = 0;
    for (let digit = hexDigit(text, at); digit >= 0; digit = hexDigit(text, ++at)) value = value * 16 + digit;
    if (text.charCodeAt(at) === 46) {
      const v4 = parseV4(text.slice(start));
      if (v4 === undefined) return undefined;
      groups.push(v4 >>> 16, v4 & 0xffff);
      break;
    }
    if (at === start || at > start + 4) return undefined;
    groups.push(value);
    if (at === text.length) break;
    if (text.charCodeAt(at++) !== 58 || at === text.length || groups.length > 7) return undefined;
    if (text.charCodeAt(at) !== 58) continue;
    if (gap >= 0) return undefined;
    gap = groups.length;
    at++;
  }
  const missing = 8 - groups.length;
  if (gap < 0 ? missing !== 0 : missing < 1) return undefined;
  if (missing > 0) groups.splice(gap, 0, ...NO_GROUPS.slice(0, missing));
  return groups;
}

const NO_GROUPS: readonly number[] = [0, 0, 0, 0, 0, 0, 0, 0];
/** -1 if the character is not a hexadecimal digit. */
function hexDigit(text: string, at: number): number {
  const code = text.charCodeAt(at);
  if (code >= 48 && code <= 57) return code - 48;
  const letter = code | 32;
  return letter >= 97 && letter <= 102 ? letter - 87 : -1;
}

const isMappedV4 = (groups: readonly number[]): boolean =>
  groups[5] === 0xffff && groups.every((group, i) => i >= 5 || group === 0);
/** Two groups as a number below 2^32. */
const wordOf = (groups: readonly number[], i: number): number => (groups[i] ?? 0) * 0x10000 + (groups[i + 1] ?? 0);

function formatV4(value: number): IpAddress {
  return `${value >>> 24}.${(value >>> 16) & 255}.${(value >>> 8) & 255}.${value & 255}` as IpAddress;
}

function formatV6(value: bigint): IpAddress {
  const groups: number[] = [];
  for (let shift = 112n; shift >= 0n; shift -= 16n) groups.push(Number((value >> shift) & 0xffffn));
  return formatGroups(groups);
}

function formatGroups(groups: readonly number[]): IpAddress {
  // RFC 5952 section 4.2: `::` replaces the longest run of at least two zero groups, the first of equally long runs.
  let bestStart = -1;
  let bestLength = 1;
  for (let start = 0; start < 8; start++) {
    let length = 0;
    while (start + length < 8 && groups[start + length] === 0) length++;
    if (length > bestLength) [bestStart, bestLength] = [start, length];
    if (length > 0) start += length - 1;
  }
  const hex = (list: readonly number[]) => list.map((group) => group.toString(16)).join(":");
  if (bestStart < 0) return hex(groups) as IpAddress;
  return `${hex(groups.slice(0, bestStart))}::${hex(groups.slice(bestStart + bestLength))}` as IpAddress;
}
