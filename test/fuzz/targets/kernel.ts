// Targets for netlink replies of the kernel, and for packets that pods send to the host.
//
// A parser may reject a message with a NetlinkError. Accepted values must be valid for their types: addresses and prefixes in
// canonical text, numbers within the bounds of the format.
import { isGratuitous } from "../../../src/kernel/route/gratuitous-arp.ts";
import { parseInterfaceAddress } from "../../../src/kernel/route/addresses.ts";
import { parseFlow } from "../../../src/kernel/netfilter/conntrack.ts";
import { parseHeader, parseMembers } from "../../../src/kernel/netfilter/ipset.ts";
import { parseLink } from "../../../src/kernel/route/links.ts";
import { parseMountinfo } from "../../../src/kernel/sys/mountinfo.ts";
import { parseArpRequest } from "../../../src/kernel/route/neighbour-responder.ts";
import { parseFdbEntry, parseNeighbour } from "../../../src/kernel/route/neighbours.ts";
import { NetlinkError } from "../../../src/kernel/sys/kernel-error.ts";
import { forEachMessage, type NetlinkMessage } from "../../../src/kernel/netlink/netlink-reader.ts";
import { parseExtendedAck } from "../../../src/kernel/netlink/netlink-socket.ts";
import { NetlinkWriter } from "../../../src/kernel/netlink/netlink-writer.ts";
import {
  parseChain,
  parseElements,
  parseFlowtable,
  parseRule as parseNftRule,
  parseSet,
  parseTable,
} from "../../../src/kernel/netfilter/nft-dump.ts";
import type { SetElement } from "../../../src/kernel/netfilter/nft-set.ts";
import { parseRoute, RTM_NEWROUTE, type Route, writeRoute } from "../../../src/kernel/route/route-message.ts";
import { parseRule } from "../../../src/kernel/route/rules.ts";
import { parseRedirect, parseTokenBucket } from "../../../src/kernel/route/traffic-control.ts";
import { WireguardDumpParser } from "../../../src/kernel/wireguard/wireguard-message.ts";
import { tryParseAddress, tryParseCidr } from "../../../src/lib/ip/ip.ts";
import { bytes } from "../structure/bytes.ts";
import { netlink } from "../structure/netlink.ts";
import { text } from "../structure/text.ts";
import { type FuzzTarget, require, requireEqual, textOf } from "../target.ts";

/** Calls `parse` for every message. @returns true if `parse` accepted at least one */
function eachMessage(input: Uint8Array, parse: (message: NetlinkMessage) => unknown): boolean {
  const copy = new Uint8Array(input);
  let isAccepted = false;
  forEachMessage(copy, copy.length, (message) => {
    if (parse(message) !== undefined) isAccepted = true;
  });
  return isAccepted;
}

function requireAddress(text: string | undefined, what: string): void {
  if (text === undefined) return;
  const parsed = tryParseAddress(text);
  require(parsed !== undefined, `${what}: ${text} is not an address`);
  // An IPv4-mapped address has two text forms: that of the kernel's 16 bytes, and the IPv4 address.
  require(parsed === text || text.startsWith("::ffff:"), `${what}: ${text} is not canonical`);
}

function requirePrefix(text: string | undefined, what: string): void {
  if (text === undefined) return;
  require(/^\S+\/\d+$/.test(text) && tryParseCidr(text) !== undefined, `${what}: ${text} is not a prefix`);
}

function checkRoute(message: NetlinkMessage): Route | undefined {
  const route = parseRoute(message);
  if (route === undefined) return undefined;
  requirePrefix(route.destination, "destination");
  requireAddress(route.gateway, "gateway");
  requireAddress(route.source, "source");
  for (const hop of route.nextHops ?? []) {
    requireAddress(hop.gateway, "gateway of a next hop");
    require(hop.weight >= 1 && hop.weight <= 256, `weight ${hop.weight}`);
  }
  if (message.type !== RTM_NEWROUTE || tryParseCidr(route.destination) !== route.destination) return route;
  const w = new NetlinkWriter();
  w.message(RTM_NEWROUTE, 0, () => writeRoute(w, route));
  const again = w.toBytes();
  forEachMessage(again, again.length, (written) => {
    const { isDead: _again, ...second } = parseRoute(written) ?? { isDead: false };
    const { isDead: _first, ...first } = route;
    requireEqual(second, first, "route written and parsed again");
  });
  return route;
}

function parseFlowChecked(message: NetlinkMessage): unknown {
  const flow = parseFlow(message);
  for (const tuple of flow === undefined ? [] : [flow.original, flow.reply]) {
    requireAddress(tuple.source, "source");
    requireAddress(tuple.destination, "destination");
    require(tuple.protocol >= 0 && tuple.protocol <= 255, `protocol ${tuple.protocol}`);
  }
  return flow;
}

function parseNftables(message: NetlinkMessage): unknown {
  const elements: SetElement[] = [];
  switch (message.type & 0xff) {
    case 0:
      return parseTable(message);
    case 3:
      return parseChain(message);
    case 6:
      return parseNftRule(message, true);
    case 9:
      return parseSet(message);
    case 12:
      parseElements(message, elements);
      for (const { key } of elements) require(key instanceof Uint8Array, "an element has a key");
      return elements.length > 0 ? elements : undefined;
    case 22:
      return parseFlowtable(message);
    default:
      return undefined;
  }
}

const isOneOf = (message: NetlinkMessage, ...types: readonly number[]): boolean => types.includes(message.type);

function checkRule(message: NetlinkMessage): unknown {
  const rule = parseRule(message);
  requirePrefix(rule?.source, "source");
  requirePrefix(rule?.destination, "destination");
  return rule;
}

function checkLink(message: NetlinkMessage): unknown {
  if (isOneOf(message, 36, 37, 44, 45)) return parseTokenBucket(message) ?? parseRedirect(message);
  const link = parseLink(message);
  requireAddress(link?.vxlan?.local, "VXLAN's local address");
  requireAddress(link?.ipip?.remote, "IPIP's remote address");
  return link;
}

const target = (about: string, header: number, parse: (message: NetlinkMessage) => unknown): FuzzTarget => ({
  about,
  structure: netlink(() => header),
  rejections: [NetlinkError],
  run: (input) => eachMessage(input, parse),
});

export const targets: Readonly<Record<string, FuzzTarget>> = {
  "netlink-route": target("routes and routing rules, as dumps and events", 12, (message) =>
    isOneOf(message, 32, 33) ? checkRule(message) : checkRoute(message),
  ),
  "netlink-link": {
    ...target("links, bandwidth limits and redirects, as dumps and events", 16, checkLink),
    structure: netlink((type) => (type < 20 ? 16 : 20)), // ifinfomsg, tcmsg
  },
  "netlink-address": target("addresses of interfaces", 8, (message) => {
    const found = parseInterfaceAddress(message);
    requireAddress(found?.address, "address");
    if (found !== undefined) requirePrefix(`${found.address}/${found.length}`, "address with its length");
    return found;
  }),
  "netlink-neighbour": target("neighbours and forwarding entries", 12, (message) => {
    const entry = parseNeighbour(message) ?? parseFdbEntry(message);
    if (entry?.mac !== undefined) require(/^([0-9a-f]{2}:){5}[0-9a-f]{2}$/.test(entry.mac), `MAC address ${entry.mac}`);
    return entry;
  }),
  "netlink-nftables": target("tables, chains, rules, sets and their elements", 4, parseNftables),
  "netlink-conntrack": target("tracked connections", 4, parseFlowChecked),
  "netlink-ipset": target("IP sets and their members", 4, (message) => {
    const header = parseHeader(message);
    for (const type of ["hash:ip", "hash:net", "hash:ip,port", "hash:net,port"] as const)
      parseMembers(message, type, []);
    return header.name === "" ? undefined : header;
  }),
  "netlink-wireguard": {
    ...target("WireGuard devices and peers", 4, () => undefined),
    run: (input) => {
      const collector = new WireguardDumpParser();
      eachMessage(input, (message) => collector.add(message));
      const device = collector.device();
      for (const peer of device.peers) {
        for (const prefix of peer.allowed) requirePrefix(prefix, "allowed prefix");
        requireAddress(peer.endpoint?.address, "endpoint");
      }
      return device.name !== "";
    },
  },
  "netlink-acknowledgement": target(
    "errors with the kernel's explanation",
    4,
    (message) => parseExtendedAck(message).message,
  ),
  "arp-packet": {
    about: "ARP packets that a pod sends to its host",
    structure: bytes,
    rejections: [],
    run: (input) => {
      isGratuitous(input);
      const request = parseArpRequest(input);
      if (request === undefined) return false;
      const { senderMac, sender, target: asked } = request;
      requireEqual([senderMac.length, sender.length, asked.length], [6, 4, 4], "lengths of addresses");
      return true;
    },
  },
  mountinfo: {
    about: "/proc/self/mountinfo, with paths that containers choose",
    structure: text,
    dictionary: ["\\040", "\\134", "shared:1", " - ", "cgroup2", "master:2"],
    rejections: [],
    run: (input) => parseMountinfo(textOf(input)).length > 0,
  },
};
