// Calculates which members an endpoint or network set contributes to an IP set: its addresses, or its named ports.
import { type Cidr, cidrAddress } from "../../lib/ip/ip.ts";
import type { EndpointPort } from "../../model/index.ts";
import type { NamedPortProtocol } from "./ip-set.ts";

export interface Contributions {
  /** The namespace of a network set; undefined for endpoints and global network sets. */
  readonly namespace?: string;
  readonly nets: readonly Cidr[];
  readonly ports: readonly EndpointPort[];
}

/** A set of addresses, or of the named port `port`. */
export interface ContributedSet {
  readonly port: { readonly name: string; readonly protocol: NamedPortProtocol } | undefined;
  /** If set, network sets of other namespaces contribute nothing. */
  readonly networkSetsOf: string | undefined;
}

const NO_NAMES: readonly string[] = [];

export function contribution(set: ContributedSet, item: Contributions): readonly string[] {
  if (isExcluded(set, item)) return NO_NAMES;
  if (set.port === undefined) return item.nets;
  const members: string[] = [];
  for (const port of portsNamed(item.ports, set.port.name)) {
    const protocol = protocolName(port.protocol);
    if (set.port.protocol !== "any" && protocol !== set.port.protocol) continue;
    for (const net of item.nets) members.push(`${cidrAddress(net)},${protocol}:${port.port}`);
  }
  return members;
}

/** The number of members that the item contributes to the set. */
export function contributionSize(set: ContributedSet, item: Contributions): number {
  if (isExcluded(set, item)) return 0;
  if (set.port === undefined) return item.nets.length;
  const { name, protocol } = set.port;
  const ports = portsNamed(item.ports, name).filter(
    (port) => protocol === "any" || protocolName(port.protocol) === protocol,
  );
  return ports.length * item.nets.length;
}

const isExcluded = ({ networkSetsOf }: ContributedSet, { namespace }: Contributions): boolean =>
  networkSetsOf !== undefined && namespace !== undefined && namespace !== networkSetsOf;

const MAX_PORTS = 1000;
const MAX_PORTS_WITH_ONE_NAME = 20;

/**
 * Returns the named ports of a workload that are used: the first 1,000, and of those with the same name the first 20. Each
 * is a member of the sets of all policies that refer to the name, also in other namespaces. The owner of the workload
 * chooses the names, so that ignoring a port opens nothing that its owner could not open.
 */
export function usedPorts(ports: readonly EndpointPort[]): readonly EndpointPort[] {
  if (ports.length <= 1) return ports;
  const byName = new Map<string, Set<string>>();
  const used = ports.slice(0, MAX_PORTS).filter(({ name, protocol, port }) => {
    let ofName = byName.get(name);
    if (ofName === undefined) byName.set(name, (ofName = new Set()));
    const before = ofName.size;
    if (before < MAX_PORTS_WITH_ONE_NAME) ofName.add(`${protocolName(protocol)}:${port}`);
    return ofName.size > before;
  });
  return used.length === ports.length ? ports : used;
}

/** Longer lists of ports are indexed by name. */
const MAX_UNINDEXED_PORTS = 8;
const portIndexes = new WeakMap<readonly EndpointPort[], ReadonlyMap<string, readonly EndpointPort[]>>();

export function portNames(ports: readonly EndpointPort[]): Iterable<string> {
  if (ports.length === 0) return NO_NAMES; // by far the most frequent case
  return ports.length <= MAX_UNINDEXED_PORTS ? new Set(ports.map(({ name }) => name)) : portIndex(ports).keys();
}

const portsNamed = (ports: readonly EndpointPort[], name: string): readonly EndpointPort[] =>
  ports.length <= MAX_UNINDEXED_PORTS ? ports.filter((port) => port.name === name) : (portIndex(ports).get(name) ?? []);

function portIndex(ports: readonly EndpointPort[]): ReadonlyMap<string, readonly EndpointPort[]> {
  let index = portIndexes.get(ports);
  if (index === undefined) portIndexes.set(ports, (index = Map.groupBy(ports, ({ name }) => name)));
  return index;
}

const PROTOCOL_NAMES: Readonly<Record<number, string>> = { 6: "tcp", 17: "udp", 132: "sctp" };

function protocolName(protocol: string | number): string {
  return typeof protocol === "number" ? (PROTOCOL_NAMES[protocol] ?? String(protocol)) : protocol.toLowerCase();
}

export function samePorts(a: readonly EndpointPort[], b: readonly EndpointPort[]): boolean {
  return (
    a.length === b.length &&
    a.every((port, i) => {
      const other = b[i];
      return port.name === other?.name && port.protocol === other.protocol && port.port === other.port;
    })
  );
}
