// Whether packets fit their way, pods find their gateway, sessions are up and the node's parts run.
import { asMismatch, type BirdSession, sessionCause } from "../../bgp/index.ts";
import type { ClusterFacts, HostFacts, HostLink } from "./facts.ts";
import { type Finding, listed, patch } from "./finding.ts";
import { nodesByAddress, type Plans } from "./plans.ts";

/** What each tunnel adds to a packet, and the settings that say how large one may be. */
const TUNNELS = {
  "vxlan.calico": { overhead: 50, setting: "vxlanMTU", pool: "vxlan" },
  "vxlan-v6.calico": { overhead: 70, setting: "vxlanMTUV6", pool: "vxlan" },
  tunl0: { overhead: 20, setting: "ipipMTU", pool: "ipip" },
  "wireguard.cali": { overhead: 60, setting: "wireguardMTU", pool: undefined },
  "wg-v6.cali": { overhead: 80, setting: "wireguardMTUV6", pool: undefined },
} as const;

export function* mtuFaults(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  const path = smallestPath(cluster, host);
  if (path === undefined) return;
  let forPods = path.mtu;
  let because = `${path.mtu} bytes on the way (${path.where})`;
  for (const link of host.links) {
    const tunnel = Object.hasOwn(TUNNELS, link.name) ? TUNNELS[link.name as keyof typeof TUNNELS] : undefined;
    if (tunnel === undefined || !link.isUp || !isUsed(cluster, tunnel.pool)) continue;
    const most = path.mtu - tunnel.overhead;
    if (most < forPods) {
      forPods = most;
      because = `${path.mtu} on the way (${path.where}) less ${tunnel.overhead} of ${link.name}`;
    }
    if (link.mtu > most)
      yield mtuFault(host, [link], most, tunnel.setting, [
        `${link.name} has MTU ${link.mtu}`,
        `the way to other nodes carries ${path.mtu} (${path.where}), the tunnel adds ${tunnel.overhead}`,
      ]);
  }
  const tooLarge = host.links.filter((link) => link.name.startsWith("cali") && link.isUp && link.mtu > forPods);
  if (tooLarge.length > 0)
    yield mtuFault(host, tooLarge, forPods, "mtu", [
      `${listed(tooLarge.map(({ name, mtu }) => `${name} has MTU ${mtu}`))}`,
      because,
    ]);
}

function mtuFault(
  host: HostFacts,
  links: readonly HostLink[],
  most: number,
  setting: string,
  evidence: readonly string[],
): Finding {
  const isPods = setting === "mtu";
  const names = listed(links.map(({ name }) => name));
  return {
    id: "mtu",
    severity: "error",
    object: `host ${host.node}`,
    problem: `${names} on ${host.node} ${links.length === 1 ? "takes" : "take"} packets of ${Math.max(...links.map(({ mtu }) => mtu))} bytes, of which the way to other nodes carries ${most}`,
    cause:
      "packets that do not fit are dropped, or cut where that is allowed: connections open and then hang at the first large answer",
    evidence,
    fix: isPods
      ? `set mtu ${most} in the CNI configuration (or let it be 0, then /var/lib/calico/mtu counts) and start the pods again`
      : `set ${setting}: ${most} in FelixConfiguration default, or 0 to let it be found`,
    node: host.node,
    interface: links[0]?.name ?? "",
    setting: isPods ? `mtu: ${most}` : `FelixConfiguration(default) spec.${setting}: ${most}`,
  };
}

const isUsed = (cluster: ClusterFacts, pool: "vxlan" | "ipip" | undefined): boolean =>
  pool === undefined || cluster.pools.some((each) => each[pool]);

/** The link the Node's address is on, or a narrower way to some other node. */
function smallestPath(cluster: ClusterFacts, host: HostFacts) {
  const node = cluster.nodes.get(host.node);
  const own = host.links.find((link) =>
    link.networks.some(
      ({ address }) => address === node?.networks[4]?.address || address === node?.networks[6]?.address,
    ),
  );
  const ways = [...host.pathMtu].map(([name, mtu]) => ({ mtu, where: `to node ${name}` }));
  if (own !== undefined) ways.push({ mtu: own.mtu, where: own.name });
  return ways.sort((a, b) => a.mtu - b.mtu)[0];
}

export function* noPodGateway(host: HostFacts): Generator<Finding> {
  if (host.routesToPodGateway !== false) return;
  const pods = host.links.filter(({ name }) => name.startsWith("cali")).map(({ name }) => name);
  yield {
    id: "no-default-route",
    severity: pods.length > 0 ? "error" : "warning",
    object: `host ${host.node}`,
    problem: `${host.node} has no route to 169.254.1.1: pods on it find no gateway`,
    cause:
      "pods ask by ARP for 169.254.1.1, and the host answers in its place (proxy ARP) only for addresses it has a route to; without a default route it has none",
    evidence: ["the kernel finds no route to 169.254.1.1", `${pods.length} pod interfaces on this host`],
    fix: "add a default route (ip route add default via GATEWAY); where there is none to have, ip route add 169.254.1.1/32 dev INTERFACE will do",
    node: host.node,
    ...(pods[0] === undefined ? {} : { interface: pods[0] }),
    setting: "ip route add default via <gateway>",
  };
}

/** @param told neighbours whose session is already explained by a finding of its own */
export function* sessionsDown(
  cluster: ClusterFacts,
  plans: Plans,
  host: HostFacts,
  told: ReadonlySet<string>,
): Generator<Finding> {
  for (const version of [4, 6] as const)
    for (const session of host.birds[version]?.sessions ?? []) {
      const cause = session.kind === "other" ? undefined : sessionCause(session, host.surroundings(session));
      const neighbor = session.neighbor ?? session.name;
      if (cause === undefined || told.has(neighbor)) continue;
      yield {
        id: "session-down",
        severity: session.kind === "localWorkload" ? "warning" : "error",
        object: `host ${host.node}`,
        problem: `${host.node} has no session with ${neighbor}: ${session.bgpState || session.state}`,
        cause,
        evidence: [`BIRD: ${describe(session)}`],
        fix: asFix(cluster, plans, host, session) ?? bothEnds(cluster, host, session),
        node: host.node,
        peer: neighbor,
      };
    }
}

/** Where to look when the cause is not here. */
function bothEnds(cluster: ClusterFacts, host: HostFacts, session: BirdSession): string {
  const { neighbor = session.name, port = 179 } = session;
  const other = nodesByAddress(cluster).get(neighbor);
  const there = other === undefined ? `what ${neighbor} says of it` : `calicoctl doctor on node ${other}`;
  return `look at the other end (${there}), and whether TCP port ${port} is open between the two in both directions; calicoctl bgp plan ${host.node} shows why there is this session`;
}

/** Which number to change where, when two AS numbers keep a session down. */
function asFix(cluster: ClusterFacts, plans: Plans, host: HostFacts, session: BirdSession): string | undefined {
  const mismatch = asMismatch(session, host.surroundings(session));
  if (mismatch === undefined) return undefined;
  const { neighbor = session.name, localAs = "?", neighborAs = "?" } = session;
  const other = nodesByAddress(cluster).get(neighbor);
  const because = plans.sortOf.get(host.node)?.outside.find((each) => each.neighbor === neighbor)?.because;
  const bgpPeer = /^BGPPeer (\S+)$/.exec(because ?? "")?.[1];
  if (mismatch.actual !== undefined) {
    const cure =
      bgpPeer !== undefined
        ? patch("bgppeer", bgpPeer, { asNumber: mismatch.actual })
        : other !== undefined
          ? patch("node", other, { bgp: { asNumber: mismatch.actual } })
          : `set asNumber ${mismatch.actual} where ${neighborAs} stands`;
    return `node ${host.node} expects AS ${neighborAs} of ${otherSide(neighbor, other)}, which is in AS ${mismatch.actual}: ${cure}, or let ${other ?? neighbor} be in AS ${neighborAs}`;
  }
  const forThisSession =
    bgpPeer === undefined ? "" : `, or for this session alone ${patch("bgppeer", bgpPeer, { localASNumber: "AS" })}`;
  return `node ${host.node} is in AS ${localAs} and expects AS ${neighborAs} of ${otherSide(neighbor, other)}, which expects another AS of it: tell it AS ${localAs}, or give the node the AS it expects (${patch("node", host.node, { bgp: { asNumber: "AS" } })}, and AS=… for its calico-node where AS is set${forThisSession})`;
}

const otherSide = (neighbor: string, node: string | undefined): string =>
  node === undefined ? `peer ${neighbor}` : `node ${node} (${neighbor})`;

const describe = (session: BirdSession): string =>
  `${session.name} ${session.state} since ${session.since}, ${session.info || session.bgpState}${
    session.lastError === undefined || session.info.includes(session.lastError)
      ? ""
      : `, last error ${session.lastError}`
  }`;

export function* partsDown(host: HostFacts): Generator<Finding> {
  for (const { name, isRunning, isStuck, detail, fix } of host.parts)
    if (!isRunning)
      yield {
        id: "part-not-running",
        severity: "error",
        object: `host ${host.node}`,
        problem: `${name} ${isStuck === true ? "runs and does nothing" : "does not run"} on ${host.node}`,
        cause: detail,
        evidence: ["/var/run/calico/supervisor.json and the host's processes"],
        fix:
          fix ??
          "look at its last lines in /var/log/calico or `journalctl -u calico-node`; calicoctl node diags collects them",
        node: host.node,
      };
}
