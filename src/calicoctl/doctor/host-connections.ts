// Finds connections of addresses that belonged to pods of this host and belong to nobody now. Established connections pass
// before policy, so the next pod with such an address could be reached by its predecessor's connections.
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
 * Between the removal of an interface and that of its endpoint, the connections of a pod that is being deleted look the
 * same. Felix deletes them with the endpoint; what is still there after this time was left behind.
 */
const REMOVAL_MS = 5_000;
const MOST_SHOWN = 4;

/**
 * Connections of addresses in this node's own blocks that no route of a local pod, of the node itself or of a borrowing
 * node leads to. Undefined if we may not read them.
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
  await delay(REMOVAL_MS);
  const earlier = new Set(first.map(({ address }) => address));
  return read().filter(({ address }) => earlier.has(address));
}

/** @param routeTo the best route to an address, undefined if there is none or it rejects packets */
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

/** The ends of a connection behind all translation: Felix deletes the connections of a removed address by the same two. */
const ends = ({ original, reply }: Flow): readonly IpAddress[] => [original.source, reply.source];

/** Local pods, addresses of this node and addresses that another node borrowed have a route of their own. */
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
    problem: `${node} tracks ${plural(count, "connection")} of ${plural(addresses.length, "address", "addresses")} of its blocks that no pod has: they would reach the next pod with the address past its policy`,
    cause:
      "the pods were removed without deleting their connections: by Calico or an older version of calico-ts, or while Felix did not run",
    evidence: stale
      .slice(0, MOST_SHOWN)
      .map(({ address, count: own, example }) => `${address}: ${plural(own, "connection")}, such as ${example}`),
    fix: `for a in ${addresses.join(" ")}; do conntrack -D --orig-src $a; conntrack -D --reply-src $a; done (package conntrack)`,
    node,
    ...(addresses.length === 1 ? { address: addresses[0] } : {}),
  };
}
