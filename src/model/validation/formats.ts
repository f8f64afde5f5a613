// Text formats shared by many fields: names, labels, interfaces, communities. Each test is a plain predicate; what
// they want, in words, stands in `WANTED`.
import { cidrsOverlap, parseCidr, tryParseAddress, tryParseNetwork, maskCidr, ipVersion } from "../../lib/ip/ip.ts";
import type { Cidr, IpVersion } from "../../lib/ip/ip.ts";

const LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?";
const DNS_LABEL = new RegExp(`^${LABEL}$`);
const SUBDOMAIN = new RegExp(`^${LABEL}(?:\\.${LABEL})*$`);
const QUALIFIED_PART = /^[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

export const isSubdomain = (text: string): boolean => text.length <= 253 && SUBDOMAIN.test(text);
/** Characters of one DNS label, without its length limit. */
export const isDashed = (text: string): boolean => DNS_LABEL.test(text);
export const isDnsLabel = (text: string): boolean => text.length <= 63 && DNS_LABEL.test(text);

/** `[prefix/]name` as Kubernetes has it for label keys. */
export function isQualifiedName(text: string): boolean {
  const slash = text.indexOf("/");
  const name = text.slice(slash + 1);
  return name.length <= 63 && QUALIFIED_PART.test(name) && (slash < 0 || isSubdomain(text.slice(0, slash)));
}
export const isLabelValue = (text: string): boolean => text === "" || (text.length <= 63 && QUALIFIED_PART.test(text));

/** A point in time as RFC 3339 has it. */
export const isTimestamp = (text: string): boolean =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text));

/** A port's name as Kubernetes has it: at most 15 of a–z, 0–9 and single dashes, with a letter. */
export const isPortName = (text: string): boolean =>
  text.length <= 15 && DNS_LABEL.test(text) && /[a-z]/.test(text) && !text.includes("--");

export const isInterface = (text: string): boolean => text === "*" || /^[a-zA-Z0-9_.-]{1,15}$/.test(text);
/** One interface, as the kernel has it; of its names those that stand in rules without quotes. */
export const isInterfaceName = (text: string): boolean =>
  /^[a-zA-Z0-9_.-]{1,15}$/.test(text) && text !== "." && text !== "..";
/** An interface with wildcards anywhere. */
export const isInterfacePattern = (text: string): boolean => /^[a-zA-Z0-9_.*-]{1,15}$/.test(text);
export const isContainerId = (text: string): boolean => /^[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?$/.test(text);
export const isMac = (text: string): boolean => /^[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}$/.test(text);

export function isAddress(text: string, version?: IpVersion): boolean {
  const address = tryParseAddress(text);
  return address !== undefined && (version === undefined || ipVersion(address) === version);
}
/** CIDR or address, host bits free. */
export function isNetwork(text: string, version?: IpVersion): boolean {
  const network = tryParseNetwork(text);
  return network !== undefined && (version === undefined || ipVersion(network.address) === version);
}
/** CIDR or address without host bits. */
export function isMaskedNetwork(text: string, version?: IpVersion): boolean {
  const network = tryParseNetwork(text);
  if (network === undefined || (version !== undefined && ipVersion(network.address) !== version)) return false;
  return maskCidr(network.address, network.length) === `${network.address}/${network.length}`;
}
export const isMaskedCidr = (text: string): boolean =>
  text.includes(":") ? text.includes("/") && isMaskedNetwork(text) : isMaskedV4(text);

/** The hot case, in one pass without making strings: `a.b.c.d/n` with no bit beyond n. */
function isMaskedV4(text: string): boolean {
  let value = 0;
  let part = -1;
  let parts = 0;
  for (let i = 0; i < text.length; i++) {
    const code = text.charCodeAt(i);
    if (code >= 48 && code <= 57) {
      if (part === 0) return false; // a leading zero
      part = part < 0 ? code - 48 : part * 10 + code - 48;
      if (part > 255) return false;
    } else if (part >= 0 && code === (parts === 3 ? 47 : 46) && parts < 4) {
      value = value * 256 + part;
      part = -1;
      parts++;
    } else return false;
  }
  return parts === 4 && part >= 0 && part <= 32 && value % 2 ** (32 - part) === 0;
}

/** `10.0.0.1`, `10.0.0.1:179`, `fd00::1`, `[fd00::1]:179`. */
export function isPeerAddress(text: string): boolean {
  if (isAddress(text)) return true;
  const parts = /^(?:\[([^\]]+)\]|([^:[\]]+)):(\d{1,5})$/.exec(text);
  if (parts === null) return false;
  const port = Number(parts[3]);
  if (port < 1 || port > 65535) return false;
  return parts[1] === undefined ? isAddress(parts[2] ?? "", 4) : isAddress(parts[1], 6);
}

/** `n:n` of 16 bits each, or `n:n:n` of 32 bits each. */
export function isCommunity(text: string): boolean {
  const parts = text.split(":");
  if (parts.length < 2 || parts.length > 3 || !parts.every((part) => /^\d{1,10}$/.test(part))) return false;
  const limit = parts.length === 2 ? 0xffff : 0xffffffff;
  return parts.every((part) => Number(part) <= limit);
}

/** Base64 of 32 bytes. */
export const isWireguardKey = (text: string): boolean => /^[A-Za-z0-9+/]{42}[AEIMQUYcgkosw048]=$/.test(text);

const LINK_LOCAL: readonly Cidr[] = [parseCidr("169.254.0.0/16"), parseCidr("fe80::/10")];
/** The link-local range a pool would touch. */
export const overlappedLinkLocal = (cidr: Cidr): Cidr | undefined =>
  LINK_LOCAL.find((range) => cidrsOverlap(range, cidr));
