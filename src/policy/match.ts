// Whether one rule matches one packet, and if not, why. Written for reading: each criterion is a question to the state
// about the packet's addresses, with no sets or marks in between.
import { type Cidr, cidrContains, type IpAddress, ipVersion } from "../lib/ip/ip.ts";
import { ipProtocolNumber } from "../lib/ip/ip-protocol.ts";
import type { Rule, RulePort, RuleProtocol, RuleSide } from "../model/index.ts";
import { carriesPorts, familyOf, type Packet, protocolName } from "./packet.ts";
import type { Owner, PolicyState } from "./state.ts";

/** The first criterion that did not hold, for people: `destination port is 81, want 80 or 443`. */
export type Mismatch = string;

/** Undefined when the rule matches. */
export function whyNoMatch(rule: Rule, packet: Packet, state: PolicyState): Mismatch | undefined {
  return (
    family(rule, packet) ??
    protocol(rule, packet) ??
    icmp(rule, packet) ??
    side("source", rule, packet, state) ??
    side("destination", rule, packet, state)
  );
}

/** Which family a rule is for: as it says, or as its protocol says; with CIDRs of the other family only, not for this one. */
function family(rule: Rule, packet: Packet): Mismatch | undefined {
  const version = familyOf(packet);
  const wanted = rule.ipVersion ?? (rule.protocol === "icmp" ? 4 : rule.protocol === "icmpv6" ? 6 : undefined);
  if (wanted !== undefined && wanted !== version) return `the packet is IPv${version}, the rule is for IPv${wanted}`;
  for (const which of ["source", "destination"] as const)
    for (const list of ["nets", "notNets"] as const) {
      const nets = rule[which][list];
      if (nets !== undefined && nets.length > 0 && !nets.some((net) => ipVersion(net) === version))
        return `the packet is IPv${version}, the rule's ${which} CIDRs are not`;
    }
  return undefined;
}

function protocol(rule: Rule, packet: Packet): Mismatch | undefined {
  const is = (wanted: RuleProtocol) => ipProtocolNumber(wanted) === packet.protocol;
  const name = protocolName(packet.protocol);
  if (rule.protocol !== undefined && !is(rule.protocol)) return `protocol is ${name}, want ${rule.protocol}`;
  if (rule.notProtocol !== undefined && is(rule.notProtocol)) return `protocol is ${name}, want any but that`;
  return undefined;
}

function icmp(rule: Rule, packet: Packet): Mismatch | undefined {
  const is = (wanted: { readonly type: number; readonly code?: number }) =>
    packet.icmp?.type === wanted.type && (wanted.code === undefined || packet.icmp.code === wanted.code);
  const text = ({ type, code }: { readonly type: number; readonly code?: number }) =>
    `type ${type}${code === undefined ? "" : ` code ${code}`}`;
  if (rule.icmp !== undefined && !is(rule.icmp))
    return packet.icmp === undefined ? "the packet is not ICMP" : `ICMP ${text(packet.icmp)}, want ${text(rule.icmp)}`;
  if (rule.notIcmp !== undefined && is(rule.notIcmp)) return `ICMP ${text(rule.notIcmp)} is left out`;
  return undefined;
}

type Which = "source" | "destination";

function side(which: Which, rule: Rule, packet: Packet, state: PolicyState): Mismatch | undefined {
  const wanted = rule[which];
  const address = packet[which];
  return (
    nets(which, wanted, address) ??
    selectors(which, wanted, address, state) ??
    service(which, wanted, packet, state) ??
    ports(which, rule, packet, state)
  );
}

function nets(which: Which, wanted: RuleSide, address: IpAddress): Mismatch | undefined {
  const inside = (list: readonly Cidr[]) => list.find((net) => cidrContains(net, address));
  if (wanted.nets !== undefined && wanted.nets.length > 0 && inside(wanted.nets) === undefined)
    return `${which} ${address} is not in ${shortList(wanted.nets)}`;
  const excluded = inside(wanted.notNets ?? []);
  return excluded === undefined ? undefined : `${which} ${address} is in ${excluded}, which is left out`;
}

/**
 * Who an address belongs to must be among the selected. With both a selector and its negation one owner must satisfy
 * both; the negation alone also lets through addresses that nobody owns.
 */
function selectors(which: Which, wanted: RuleSide, address: IpAddress, state: PolicyState): Mismatch | undefined {
  const { selector, notSelector } = wanted;
  if (selector === undefined && notSelector === undefined) return undefined;
  const owners = state.ownersOf(address);
  if (selector !== undefined) {
    if (owners.some((owner) => isSelected(owner, wanted))) return undefined;
    if (owners.length === 0) return `${which} ${address} is no endpoint or network set, want ${selector.text}`;
    const but = notSelector === undefined ? "" : ` and not ${notSelector.text}`;
    return `${which} ${names(owners)} is not ${selector.text}${but}`;
  }
  const excluded = owners.find((owner) => notSelector?.matcher(owner.labels));
  return excluded === undefined ? undefined : `${which} ${excluded.name} is ${notSelector?.text}, which is left out`;
}

function isSelected(owner: Owner, wanted: RuleSide): boolean {
  const { selector, notSelector } = wanted;
  if (selector !== undefined && !selector.matcher(owner.labels)) return false;
  // Alone, a negation is no selection: it says nothing of who is meant.
  return selector === undefined || notSelector === undefined || !notSelector.matcher(owner.labels);
}

/** A destination service means its addresses with its ports, a source service its addresses. */
function service(which: Which, wanted: RuleSide, packet: Packet, state: PolicyState): Mismatch | undefined {
  if (wanted.service === undefined) return undefined;
  const name = `${wanted.service.namespace}/${wanted.service.name}`;
  const backends = state.backendsOf(wanted.service).filter(({ addresses }) => addresses.includes(packet[which]));
  if (backends.length === 0) return `${which} ${packet[which]} is not behind service ${name}`;
  if (which === "source") return undefined;
  const isPort = (port: { readonly protocol: string; readonly port: number }) =>
    port.port === packet.destinationPort && ipProtocolNumber(port.protocol) === packet.protocol;
  if (backends.some((backend) => backend.ports.some(isPort))) return undefined;
  return `${protocolName(packet.protocol)} port ${packet.destinationPort ?? "(none)"} is not one of service ${name}`;
}

function ports(which: Which, rule: Rule, packet: Packet, state: PolicyState): Mismatch | undefined {
  const { ports: wanted, notPorts } = rule[which];
  if (wanted !== undefined && wanted.length > 0 && !wanted.some((port) => isPort(which, port, rule, packet, state)))
    return `${which} port is ${portOf(which, packet) ?? "(none)"}, want ${shortList(wanted.map(portText))}`;
  const excluded = notPorts?.find((port) => isPort(which, port, rule, packet, state));
  return excluded === undefined ? undefined : `${which} port ${portText(excluded)} is left out`;
}

function isPort(which: Which, wanted: RulePort, rule: Rule, packet: Packet, state: PolicyState): boolean {
  const port = portOf(which, packet);
  if (port === undefined || !carriesPorts(packet.protocol)) return false;
  if (!("name" in wanted)) return port >= wanted.min && port <= wanted.max;
  // A name is what the owners of the address call the port, among those the rule selects on that side.
  for (const owner of state.ownersOf(packet[which]))
    if (isSelected(owner, rule[which]))
      for (const named of owner.ports)
        if (named.name === wanted.name && named.port === port && ipProtocolNumber(named.protocol) === packet.protocol)
          return true;
  return false;
}

const portOf = (which: Which, packet: Packet): number | undefined =>
  which === "source" ? packet.sourcePort : packet.destinationPort;

const portText = (port: RulePort): string =>
  "name" in port ? port.name : port.min === port.max ? String(port.min) : `${port.min}:${port.max}`;

const names = (owners: readonly Owner[]): string => owners.map((owner) => owner.name).join(", ");

function shortList(items: readonly string[]): string {
  return items.length > 6 ? `${items.slice(0, 5).join(", ")} and ${items.length - 5} more` : items.join(" or ");
}
