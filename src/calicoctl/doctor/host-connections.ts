// Finds connections of addresses that belonged to removed pods of this host. Packets of established connections are accepted
// before policy, so the next pod with such an address could be reached through the connections of its predecessor.
import { type Conntrack, type Flow, isRejecting, openConntrack, type Rtnetlink } from "../../kernel/index.ts";
import { type Cidr, cidrContains, cidrLength, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import { delay } from "../../lib/retry.ts";
import type { ClusterFacts, HostFacts, KernelRoute } from "./facts.ts";
import { type Finding, plural } from "./finding.ts";

/** Established connections of one address. */
export interface AddressConnections {
  readonly address: IpAddress;
  readonly count: number;
  /** One of them: `udp 10.0.0.1:4000 -> 10.65.0.2:53`. */
  readonly example: string;
}

/**
 * While a pod is deleted, its connections look the same between the removal of its interface and that of its endpoint. Felix
 * deletes them with the endpoint; connections that still exist after this time are stale.
 */
const REMOVAL_DELAY_MS = 5_000;
const MAX_EVIDENCE = 4;

/**
 * Returns the connections of addresses in this node's blocks that have no route to a local pod, to the node itself or to a
 * node that borrowed the address. Returns undefined if doctor may not read connections.
 */
export async function readStaleConnections(
  kernel: Pick<Rtnetlink, "routes">,
  node: string,
  cluster: Pick<ClusterFacts, "blocks">,
): Promise<readonly AddressConnections[] | undefined> {
  const blocks = cluster.blocks.filter(({ host }) => host === node).map(({ cidr }) => cidr);
  let conntrack: Conntrack;
  try {
    conntrack = openConntrack();
    conntrack.list(4, () => false);
  } catch {
    return undefined; // not root, or a kernel without ctnetlink
  }
  using _ = conntrack;
  const read = () => {
    const flows = ([4, 6] as const).flatMap((version) => {
      const own = blocks.filter((block) => ipVersion(block) === version);
      const isOwn = (address: IpAddress) => own.some((block) => cidrContains(block, address));
      return own.length === 0 ? [] : conntrack.list(version, (flow) => ends(flow).some(isOwn));
    });
    return unownedConnections(flows, blocks, (address) => kernel.routes.lookup(address));
  };
  const first = read();
  if (first.length === 0) return [];
  await delay(REMOVAL_DELAY_MS);
  const earlier = new Set(first.map(({ address }) => address));
  return read().filter(({ address }) => earlier.has(address));
}

/** @param routeTo returns the best route to an address, undefined if there is none or it rejects packets */
export function unownedConnections(
  flows: readonly Flow[],
  blocks: readonly Cidr[],
  routeTo: (address: IpAddress) => KernelRoute | undefined,
): readonly AddressConnections[] {
  const byAddress = new Map<IpAddress, Flow[]>();
  for (const flow of flows.filter(({ isReplied }) => isReplied))
    for (const address of new Set(ends(flow)))
      if (blocks.some((block) => cidrContains(block, address)))
        byAddress.set(address, [...(byAddress.get(address) ?? []), flow]);
  return [...byAddress].flatMap(([address, own]) => {
    const [first] = own;
    const isStale = first !== undefined && !isHostRoute(routeTo(address));
    return isStale ? [{ address, count: own.length, example: shown(first) }] : [];
  });
}

/** The two ends of a connection after address translation. Felix deletes the connections of a removed address by the same ends. */
const ends = ({ original, reply }: Flow): readonly IpAddress[] => [original.source, reply.source];

/** Addresses of local pods, of this node, and those that another node borrowed each have a route to the single address. */
const isHostRoute = (route: KernelRoute | undefined): boolean =>
  route !== undefined &&
  !isRejecting(route.type) &&
  cidrLength(route.destination) === (ipVersion(route.destination) === 4 ? 32 : 128);

const PROTOCOLS: Readonly<Record<number, string>> = { 1: "icmp", 6: "tcp", 17: "udp", 58: "icmpv6", 132: "sctp" };

function shown({ original: { protocol, source, sourcePort, destination, destinationPort } }: Flow): string {
  const end = (address: IpAddress, port: number | undefined) =>
    port === undefined ? address : `${address.includes(":") ? `[${address}]` : address}:${port}`;
  return `${PROTOCOLS[protocol] ?? `protocol ${protocol}`} ${end(source, sourcePort)} -> ${end(destination, destinationPort)}`;
}

export function* staleConnections({ node, staleConnections: stale = [] }: HostFacts): Generator<Finding> {
  if (stale.length === 0) return;
  const addresses = stale.map(({ address }) => address);
  const count = stale.reduce((sum, each) => sum + each.count, 0);
  yield {
    id: "stale-connections",
    severity: "warning",
    object: `host ${node}`,
    problem: `${node} tracks ${plural(count, "connection")} of ${plural(addresses.length, "address", "addresses")} of its blocks that no pod has: they would bypass the policy of the next pod with the address`,
    cause:
      "the pods were removed without deleting their connections: by Calico or an older version of calico-ts, or while Felix was not running",
    evidence: stale
      .slice(0, MAX_EVIDENCE)
      .map(({ address, count: own, example }) => `${address}: ${plural(own, "connection")}, such as ${example}`),
    fix: `for a in ${addresses.join(" ")}; do conntrack -D --orig-src $a; conntrack -D --reply-src $a; done (package conntrack)`,
    node,
    ...(addresses.length === 1 ? { address: addresses[0] } : {}),
  };
}
