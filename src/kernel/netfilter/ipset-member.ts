// Encodes and parses members of IP sets (ipset(8)). Their text is canonical, so that members can be compared as strings:
//
//   hash:ip         10.0.0.1
//   hash:net        10.0.0.0/8, also with /32 or /128
//   hash:ip,port    10.0.0.1,tcp:80
//   hash:net,port   10.0.0.0/8,tcp:80
//
// ` nomatch` is appended for an exception (ipset(8), "nomatch"). calico-ts writes none, but other programs may.
import {
  addressBits,
  addressBytes,
  hostCidr,
  type IpAddress,
  ipVersion,
  parseAddress,
  parseNetwork,
  ParseError,
} from "../../lib/ip/ip.ts";
import { ipProtocolName, ipProtocolNumber } from "../../lib/ip/ip-protocol.ts";
import type { NetlinkReader } from "../netlink/netlink-reader.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";

export type IpsetType = "hash:ip" | "hash:net" | "hash:ip,port" | "hash:net,port";

const NLA_F_NET_BYTEORDER = 0x4000;
const IPSET_ATTR_IP = 1;
const IPSET_ATTR_CIDR = 3;
const IPSET_ATTR_PORT = 4;
const IPSET_ATTR_PROTO = 7;
const IPSET_ATTR_CADT_FLAGS = 8;
const IPSET_FLAG_NOMATCH = 4;
const NO_MATCH = " nomatch";
const IPSET_ATTR_IPADDR_IPV4 = 1;
const IPSET_ATTR_IPADDR_IPV6 = 2;

export function writeMember(w: NetlinkWriter, type: IpsetType, text: string): void {
  const member = text.endsWith(NO_MATCH) ? text.slice(0, -NO_MATCH.length) : text; // a deletion does not need the flag
  const comma = member.indexOf(",");
  const addressText = comma < 0 ? member : member.slice(0, comma);
  const hasPort = type === "hash:ip,port" || type === "hash:net,port";
  if (hasPort !== comma >= 0)
    throw new ParseError(`member of a ${type} set`, member, "want 10.0.0.1 or 10.0.0.1,tcp:80");
  if (type === "hash:net" || type === "hash:net,port") {
    const { address, length } = parseNetwork(addressText);
    writeAddress(w, address);
    w.u8(IPSET_ATTR_CIDR, length);
  } else writeAddress(w, parseAddress(addressText));
  if (!hasPort) return;
  const colon = member.indexOf(":", comma);
  const protocol = ipProtocolNumber(member.slice(comma + 1, colon));
  const port = Number(member.slice(colon + 1));
  if (protocol === undefined || colon < 0 || !Number.isInteger(port) || port < 0 || port > 65535)
    throw new ParseError(`member of a ${type} set`, member, "want 10.0.0.1,tcp:80");
  w.u8(IPSET_ATTR_PROTO, protocol);
  w.be16(IPSET_ATTR_PORT | NLA_F_NET_BYTEORDER, port);
}

function writeAddress(w: NetlinkWriter, address: IpAddress): void {
  const nest = w.beginNest(IPSET_ATTR_IP);
  w.bytes(
    (ipVersion(address) === 4 ? IPSET_ATTR_IPADDR_IPV4 : IPSET_ATTR_IPADDR_IPV6) | NLA_F_NET_BYTEORDER,
    addressBytes(address),
  );
  w.endNest(nest);
}

/** Returns the canonical text of a listed member. */
export function readMember(a: NetlinkReader, type: IpsetType): string {
  let address: IpAddress | undefined;
  let length: number | undefined;
  let protocol = 0;
  let port = 0;
  let isInverted = false;
  while (a.next()) {
    if (a.type === IPSET_ATTR_IP) {
      const inner = a.nested();
      if (inner.next()) address = inner.address();
    } else if (a.type === IPSET_ATTR_CIDR) length = a.u8();
    else if (a.type === IPSET_ATTR_PORT) port = a.be16();
    else if (a.type === IPSET_ATTR_PROTO) protocol = a.u8();
    else if (a.type === IPSET_ATTR_CADT_FLAGS) isInverted = (a.be32() & IPSET_FLAG_NOMATCH) !== 0;
  }
  let member: string = address ?? "";
  if (address !== undefined && (type === "hash:net" || type === "hash:net,port"))
    member =
      length === undefined ? hostCidr(address) : `${address}/${Math.min(length, addressBits(ipVersion(address)))}`;
  if (type === "hash:ip,port" || type === "hash:net,port") member += `,${ipProtocolName(protocol) ?? protocol}:${port}`;
  if (isInverted) member += NO_MATCH;
  return member;
}
