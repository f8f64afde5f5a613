// Checks whether one rule matches one packet, and if not, why. Each criterion of the rule is looked up directly in the
// state by the packet's addresses; IP sets and marks, which the kernel's rules use instead, do not occur here.
import { type Cidr, cidrContains, type IpAddress, ipVersion } from "../lib/ip/ip.ts";
import { ipProtocolNumber } from "../lib/ip/ip-protocol.ts";
import type { Rule, RulePort, RuleProtocol, RuleSide } from "../model/index.ts";
import { carriesPorts, familyOf, type Packet, protocolName } from "./packet.ts";
import type { Owner, PolicyState } from "./state.ts";

/** Describes the first criterion that the packet does not meet: `destination port is 81, want 80 or 443`. */
export type Mismatch = string;

/** Returns undefined if the rule matches. */
export function findMismatch(rule: Rule, packet: Packet, state: PolicyState): Mismatch | undefined {
  return (
    familyMismatch(rule, packet) ??
    protocolMismatch(rule, packet) ??
    icmpMismatch(rule, packet) ??
    sideMismatch("source", rule, packet, state) ??
    sideMismatch("destination", rule, packet, state)
  );
}

/**
 * The IP version of a rule is given explicitly or by its protocol (icmp, icmpv6). A rule whose CIDRs are all of the
 * other version does not match either.
 */
function familyMismatch(rule: Rule, packet: Packet): Mismatch | undefined {
  const version = familyOf(packet);
  const wanted = rule.ipVersion ?? (rule.protocol === "icmp" ? 4 : rule.protocol === "icmpv6" ? 6 : undefined);
  if (wanted !== undefined && wanted !== version) return `the packet is IPv${version}, the rule is for IPv${wanted}`;
  for (const side of ["source", "destination"] as const)
    for (const list of ["nets", "notNets"] as const) {
      const nets = rule[side][list];
      if (nets !== undefined && nets.length > 0 && !nets.some((net) => ipVersion(net) === version))
        return `the packet is IPv${version}, the rule's ${side} CIDRs are not`;
    }
  return undefined;
}

function protocolMismatch(rule: Rule, packet: Packet): Mismatch | undefined {
  const is = (wanted: RuleProtocol) => ipProtocolNumber(wanted) === packet.protocol;
  const name = protocolName(packet.protocol);
  if (rule.protocol !== undefined && !is(rule.protocol)) return `protocol is ${name}, want ${rule.protocol}`;
  if (rule.notProtocol !== undefined && is(rule.notProtocol)) return `protocol is ${name}, which the rule excludes`;
  return undefined;
}

function icmpMismatch(rule: Rule, packet: Packet): Mismatch | undefined {
  const is = (wanted: { readonly type: number; readonly code?: number }) =>
    packet.icmp?.type === wanted.type && (wanted.code === undefined || packet.icmp.code === wanted.code);
  const text = ({ type, code }: { readonly type: number; readonly code?: number }) =>
    `type ${type}${code === undefined ? "" : ` code ${code}`}`;
  if (rule.icmp !== undefined && !is(rule.icmp))
    return packet.icmp === undefined ? "the packet is not ICMP" : `ICMP ${text(packet.icmp)}, want ${text(rule.icmp)}`;
  if (rule.notIcmp !== undefined && is(rule.notIcmp))
    return `ICMP ${text(packet.icmp ?? rule.notIcmp)}, which the rule excludes`;
  return undefined;
}

type Side = "source" | "destination";

function sideMismatch(side: Side, rule: Rule, packet: Packet, state: PolicyState): Mismatch | undefined {
  const wanted = rule[side];
  const address = packet[side];
  return (
    netsMismatch(side, wanted, address) ??
    selectorMismatch(side, wanted, address, state) ??
    serviceMismatch(side, wanted, packet, state) ??
    portsMismatch(side, rule, packet, state)
  );
}

function netsMismatch(side: Side, wanted: RuleSide, address: IpAddress): Mismatch | undefined {
  const inside = (list: readonly Cidr[]) => list.find((net) => cidrContains(net, address));
  if (wanted.nets !== undefined && wanted.nets.length > 0 && inside(wanted.nets) === undefined)
    return `${side} ${address} is not in ${shortList(wanted.nets)}`;
  const excluded = inside(wanted.notNets ?? []);
  return excluded === undefined ? undefined : `${side} ${address} is in ${excluded}, which the rule excludes`;
}

/**
 * An owner of the address must match `selector`; if the rule also has `notSelector`, the same owner must not match that.
 * `notSelector` alone also matches addresses without an owner.
 */
function selectorMismatch(side: Side, wanted: RuleSide, address: IpAddress, state: PolicyState): Mismatch | undefined {
  const { selector, notSelector } = wanted;
  if (selector === undefined && notSelector === undefined) return undefined;
  const owners = state.ownersOf(address);
  if (selector !== undefined) {
    if (owners.some((owner) => isSelected(owner, wanted))) return undefined;
    if (owners.length === 0)
      return `${side} ${address} belongs to no endpoint or network set, want one that matches ${selector.text}`;
    const exclusion = notSelector === undefined ? "" : `, excluding ${notSelector.text}`;
    return `${side} ${names(owners)} does not match ${selector.text}${exclusion}`;
  }
  const excluded = owners.find((owner) => notSelector?.matcher(owner.labels));
  if (excluded === undefined) return undefined;
  return `${side} ${excluded.name} matches ${notSelector?.text}, which the rule excludes`;
}

function isSelected(owner: Owner, wanted: RuleSide): boolean {
  const { selector, notSelector } = wanted;
  if (selector !== undefined && !selector.matcher(owner.labels)) return false;
  // Without `selector`, every owner counts as selected: `notSelector` is checked separately, in selectorMismatch.
  return selector === undefined || notSelector === undefined || !notSelector.matcher(owner.labels);
}

/** A destination service matches the backends' addresses and the service's ports, a source service only addresses. */
function serviceMismatch(side: Side, wanted: RuleSide, packet: Packet, state: PolicyState): Mismatch | undefined {
  if (wanted.service === undefined) return undefined;
  const name = `${wanted.service.namespace}/${wanted.service.name}`;
  const backends = state.backendsOf(wanted.service).filter(({ addresses }) => addresses.includes(packet[side]));
  if (backends.length === 0) return `${side} ${packet[side]} is not a backend of service ${name}`;
  if (side === "source") return undefined;
  const isPort = (port: { readonly protocol: string; readonly port: number }) =>
    port.port === packet.destinationPort && ipProtocolNumber(port.protocol) === packet.protocol;
  if (backends.some((backend) => backend.ports.some(isPort))) return undefined;
  return `${protocolName(packet.protocol)} port ${packet.destinationPort ?? "(none)"} is not a port of service ${name}`;
}

function portsMismatch(side: Side, rule: Rule, packet: Packet, state: PolicyState): Mismatch | undefined {
  const { ports: wanted, notPorts } = rule[side];
  if (wanted !== undefined && wanted.length > 0 && !wanted.some((port) => isPort(side, port, rule, packet, state)))
    return `${side} port is ${portOf(side, packet) ?? "(none)"}, want ${shortList(wanted.map(portText))}`;
  const excluded = notPorts?.find((port) => isPort(side, port, rule, packet, state));
  return excluded === undefined
    ? undefined
    : `${side} port is ${portOf(side, packet)}, the rule excludes ${portText(excluded)}`;
}

function isPort(side: Side, wanted: RulePort, rule: Rule, packet: Packet, state: PolicyState): boolean {
  const port = portOf(side, packet);
  if (port === undefined || !carriesPorts(packet.protocol)) return false;
  if (!("name" in wanted)) return port >= wanted.min && port <= wanted.max;
  // A port name is looked up in the owners of the address, but only in those that the rule selects on this side.
  for (const owner of state.ownersOf(packet[side]))
    if (isSelected(owner, rule[side]))
      for (const named of owner.ports)
        if (named.name === wanted.name && named.port === port && ipProtocolNumber(named.protocol) === packet.protocol)
          return true;
  return false;
}

const portOf = (side: Side, packet: Packet): number | undefined =>
  side === "source" ? packet.sourcePort : packet.destinationPort;

const portText = (port: RulePort): string =>
  "name" in port ? port.name : port.min === port.max ? String(port.min) : `${port.min}:${port.max}`;

const names = (owners: readonly Owner[]): string => owners.map((owner) => owner.name).join(", ");

function shortList(items: readonly string[]): string {
  return items.length > 6 ? `${items.slice(0, 5).join(", ")} and ${items.length - 5} more` : items.join(" or ");
}
