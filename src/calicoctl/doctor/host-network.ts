// Whether pods find their gateway, sessions are up and the node's parts run.
import { asMismatch, type BirdSession, sessionCause } from "../../bgp/index.ts";
import type { ClusterFacts, HostFacts } from "./facts.ts";
import { type Finding, patch } from "./finding.ts";
import { nodesByAddress, type Plans } from "./plans.ts";

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
    interface: pods[0],
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
