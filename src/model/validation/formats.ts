// Checks text formats that many fields share: names, labels, addresses, interfaces, BGP communities. The schemas in
// kinds/ contain the matching error messages.
import { cidrsOverlap, parseCidr, tryParseAddress, tryParseNetwork, maskCidr, ipVersion } from "../../lib/ip/ip.ts";
import type { Cidr, IpVersion } from "../../lib/ip/ip.ts";

const LABEL = "[a-z0-9](?:[-a-z0-9]*[a-z0-9])?";
const DNS_LABEL = new RegExp(`^${LABEL}$`);
const SUBDOMAIN = new RegExp(`^${LABEL}(?:\\.${LABEL})*$`);
const QUALIFIED_PART = /^[A-Za-z0-9](?:[-A-Za-z0-9_.]*[A-Za-z0-9])?$/;

export const isSubdomain = (text: string): boolean => text.length <= 253 && SUBDOMAIN.test(text);
/** A DNS label without the length limit. */
export const isDashed = (text: string): boolean => DNS_LABEL.test(text);
export const isDnsLabel = (text: string): boolean => text.length <= 63 && DNS_LABEL.test(text);

/** `[prefix/]name`, the format of Kubernetes label keys. */
export function isQualifiedName(text: string): boolean {
  const slash = text.indexOf("/");
  const name = text.slice(slash + 1);
  return name.length <= 63 && QUALIFIED_PART.test(name) && (slash < 0 || isSubdomain(text.slice(0, slash)));
}
export const isLabelValue = (text: string): boolean => text === "" || (text.length <= 63 && QUALIFIED_PART.test(text));

/** A timestamp in the format of RFC 3339. */
export const isTimestamp = (text: string): boolean =>
  /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?(Z|[-+]\d\d:\d\d)$/.test(text) && !Number.isNaN(Date.parse(text));

/** A port name as in Kubernetes: at most 15 of a–z, 0–9 and single dashes, with at least one letter. */
export const isPortName = (text: string): boolean =>
  text.length <= 15 && DNS_LABEL.test(text) && /[a-z]/.test(text) && !text.includes("--");

export const isInterface = (text: string): boolean => text === "*" || /^[a-zA-Z0-9_.-]{1,15}$/.test(text);
/** The name of one interface. Names that would have to be quoted in rules are not allowed. */
export const isInterfaceName = (text: string): boolean =>
  /^[a-zA-Z0-9_.-]{1,15}$/.test(text) && text !== "." && text !== "..";
/** An interface name that may contain `*` in any position. */
export const isInterfacePattern = (text: string): boolean => /^[a-zA-Z0-9_.*-]{1,15}$/.test(text);
export const isContainerId = (text: string): boolean => /^[a-zA-Z0-9](?:[-a-zA-Z0-9]*[a-zA-Z0-9])?$/.test(text);
export const isMac = (text: string): boolean => /^[0-9a-fA-F]{2}([:-][0-9a-fA-F]{2}){5}$/.test(text);

export function isAddress(text: string, version?: IpVersion): boolean {
  const address = tryParseAddress(text);
  return address !== undefined && (version === undefined || ipVersion(address) === version);
}
/** A CIDR or address; host bits may be set. */
export function isNetwork(text: string, version?: IpVersion): boolean {
  const network = tryParseNetwork(text);
  return network !== undefined && (version === undefined || ipVersion(network.address) === version);
}
/** A CIDR or address without host bits. */
export function isMaskedNetwork(text: string, version?: IpVersion): boolean {
  const network = tryParseNetwork(text);
  if (network === undefined || (version !== undefined && ipVersion(network.address) !== version)) return false;
  return maskCidr(network.address, network.length) === `${network.address}/${network.length}`;
}
export const isMaskedCidr = (text: string): boolean =>
  text.includes(":") ? text.includes("/") && isMaskedNetwork(text) : isMaskedV4(text);

/** `a.b.c.d/n` without host bits. This is called very often, so it parses in one pass and creates no strings. */
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
/** Returns the link-local range that the CIDR overlaps. */
export const overlappedLinkLocal = (cidr: Cidr): Cidr | undefined =>
  LINK_LOCAL.find((range) => cidrsOverlap(range, cidr));
