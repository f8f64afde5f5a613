// Checks that pods can reach their gateway, that BGP sessions are up, and that calico-node's processes run.
import { asMismatch, type BirdSession, sessionCause } from "../../bgp/index.ts";
import type { ClusterFacts, HostFacts } from "./facts.ts";
import { type Finding, patchCommand } from "./finding.ts";
import { nodesByAddress, type Plans } from "./plans.ts";

export function* noPodGateway(host: HostFacts): Generator<Finding> {
  if (host.routesToPodGateway !== false) return;
  const pods = host.links.filter(({ name }) => name.startsWith("cali")).map(({ name }) => name);
  yield {
    id: "no-default-route",
    severity: pods.length > 0 ? "error" : "warning",
    object: `host ${host.node}`,
    problem: `${host.node} has no route to 169.254.1.1: its pods cannot reach their gateway`,
    cause:
      "pods send ARP requests for 169.254.1.1, and the host answers them (proxy ARP) only for addresses that it has a route to; without a default route it has none to this address",
    evidence: ["the kernel has no route to 169.254.1.1", `${pods.length} pod interfaces on this host`],
    fix: "add a default route (ip route add default via GATEWAY); if the network has no gateway, ip route add 169.254.1.1/32 dev INTERFACE is sufficient",
    node: host.node,
    interface: pods[0],
    setting: "ip route add default via <gateway>",
  };
}

/** @param explained neighbours whose session is down for a reason that another finding reports */
export function* sessionsDown(
  cluster: ClusterFacts,
  plans: Plans,
  host: HostFacts,
  explained: ReadonlySet<string>,
): Generator<Finding> {
  for (const version of [4, 6] as const)
    for (const session of host.birds[version]?.sessions ?? []) {
      const cause = session.kind === "other" ? undefined : sessionCause(session, host.sessionEvidence(session));
      const neighbor = session.neighbor ?? session.name;
      if (cause === undefined || explained.has(neighbor)) continue;
      yield {
        id: "session-down",
        severity: session.kind === "localWorkload" ? "warning" : "error",
        object: `host ${host.node}`,
        problem: `${host.node} has no session with ${neighbor}: ${session.bgpState || session.state}`,
        cause,
        evidence: [`BIRD: ${describe(session)}`],
        fix: asNumberFix(cluster, plans, host, session) ?? generalFix(cluster, host, session),
        node: host.node,
        peer: neighbor,
      };
    }
}

/** Advice if the cause is not known on this side. */
function generalFix(cluster: ClusterFacts, host: HostFacts, session: BirdSession): string {
  const { neighbor = session.name, port = 179 } = session;
  const other = nodesByAddress(cluster).get(neighbor);
  const there = other === undefined ? `the BGP status on ${neighbor}` : `calicoctl doctor on node ${other}`;
  return `check the other side (${there}), and whether TCP port ${port} is open between the two in both directions; calicoctl bgp plan ${host.node} shows which object requests this session`;
}

/** Advice if the session is down because of an AS number: which one to change, and where. */
function asNumberFix(cluster: ClusterFacts, plans: Plans, host: HostFacts, session: BirdSession): string | undefined {
  const mismatch = asMismatch(session, host.sessionEvidence(session));
  if (mismatch === undefined) return undefined;
  const { neighbor = session.name, localAs = "?", neighborAs = "?" } = session;
  const other = nodesByAddress(cluster).get(neighbor);
  const because = plans.groupOf.get(host.node)?.externalPeers.find((each) => each.neighbor === neighbor)?.because;
  const bgpPeer = /^BGPPeer (\S+)$/.exec(because ?? "")?.[1];
  if (mismatch.actual !== undefined) {
    const command =
      bgpPeer !== undefined
        ? patchCommand("bgppeer", bgpPeer, { asNumber: mismatch.actual })
        : other !== undefined
          ? patchCommand("node", other, { bgp: { asNumber: mismatch.actual } })
          : `replace asNumber ${neighborAs} with ${mismatch.actual}`;
    return `node ${host.node} expects AS ${neighborAs} from ${otherSide(neighbor, other)}, which is in AS ${mismatch.actual}: ${command}, or move ${other ?? neighbor} to AS ${neighborAs}`;
  }
  const forThisSession =
    bgpPeer === undefined
      ? ""
      : `, or only for this session ${patchCommand("bgppeer", bgpPeer, { localASNumber: "AS" })}`;
  return `node ${host.node} is in AS ${localAs} and expects AS ${neighborAs} from ${otherSide(neighbor, other)}, which expects another AS from node ${host.node}: configure AS ${localAs} there, or set the expected AS on the node (${patchCommand("node", host.node, { bgp: { asNumber: "AS" } })}, and AS=… for its calico-node if AS is set there${forThisSession})`;
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
        problem: `${name} ${isStuck === true ? "is running but does nothing" : "is not running"} on ${host.node}`,
        cause: detail,
        evidence: ["/var/run/calico/supervisor.json and the host's processes"],
        fix:
          fix ??
          "read the last lines of its log in /var/log/calico or `journalctl -u calico-node`; calicoctl node diags collects the logs",
        node: host.node,
      };
}
