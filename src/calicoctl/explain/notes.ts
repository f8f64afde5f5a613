// Adds notes to a verdict about facts outside policy: no workload has the address, replies may have no route back, or a
// policy of the namespace does not select the pod.
import { cidrContains, type IpAddress } from "../../lib/ip/ip.ts";
import { ignoreUnreadable, type IpPool, readPolicyTarget, readPool, type Resource } from "../../model/index.ts";
import { type Packet, type Party, policyName, type PolicyState, type Verdict } from "../../policy/index.ts";

interface Query {
  readonly packet: Packet;
  readonly source: Party;
  readonly destination: Party;
}
const MAX_POLICIES = 3;

export function notesOutsidePolicy(
  state: PolicyState,
  resources: readonly Resource[],
  query: Query,
  verdict: Verdict,
): readonly string[] {
  const { packet, source, destination } = query;
  const pools = resources.flatMap((each) => (each.kind === "IPPool" ? (readPool(each, ignoreUnreadable) ?? []) : []));
  const notes = [...unowned(pools, packet.source, source), ...unowned(pools, packet.destination, destination)];
  for (const address of new Set([packet.source, packet.destination])) notes.push(...shared(state, address));
  if (verdict.action === "allow") notes.push(...routeBack(pools, query));
  notes.push(
    ...unselected(resources, source, "egress", verdict),
    ...unselected(resources, destination, "ingress", verdict),
  );
  return notes;
}

const poolOf = (pools: readonly IpPool[], address: IpAddress): IpPool | undefined =>
  pools.find(({ cidr }) => cidrContains(cidr, address));

/** Notes that an address is in a pool, but belongs to no workload or host. */
function* unowned(pools: readonly IpPool[], address: IpAddress, party: Party): Generator<string> {
  const pool = poolOf(pools, address);
  if (pool === undefined || party.kind === "workload" || party.kind === "host") return;
  yield `${address} is in pool ${pool.name}, but no workload has it (calicoctl ipam show --ip=${address})`;
}

/** Notes that several workloads have the address: packets reach one of them, and rules may apply to another. */
function* shared(state: PolicyState, address: IpAddress): Generator<string> {
  const owners = state.workloads.filter(({ value }) =>
    [...value.ipv4Nets, ...value.ipv6Nets].some((net) => net.slice(0, net.indexOf("/")) === address),
  );
  if (owners.length < 2) return;
  const names = owners.map(({ key }) => `${key.workload} on ${key.host}`);
  yield `${address} is the address of ${owners.length} workloads (${names.slice(0, 3).join(", ")}): packets reach only one of them; run calicoctl ipam check`;
}

/** Notes that packets to outside the pools keep the pod's address, because its pool has no natOutgoing. */
function* routeBack(pools: readonly IpPool[], { packet, source, destination }: Query): Generator<string> {
  const pool = poolOf(pools, packet.source);
  const isOutside = destination.kind !== "workload" && destination.kind !== "host";
  if (source.kind !== "workload" || pool === undefined || !isOutside) return;
  if (poolOf(pools, packet.destination) !== undefined || pool.natOutgoing) return;
  yield `the packet leaves with the pod's own address, because pool ${pool.name} has no natOutgoing: the other side needs a route back to ${pool.cidr}`;
}

/** Notes policies of the workload's namespace that do not select it, for example because of a misspelled label. */
function* unselected(
  resources: readonly Resource[],
  party: Party,
  type: "ingress" | "egress",
  verdict: Verdict,
): Generator<string> {
  if (party.kind !== "workload") return;
  const { workload } = party.workload.key;
  const [namespace = ""] = workload.split("/");
  const evaluated = new Set(
    verdict.checkpoints
      .filter(({ endpoint }) => endpoint === `workload ${workload}`)
      .flatMap(({ tiers }) => tiers.flatMap(({ policies }) => policies.map(({ key }) => policyName(key)))),
  );
  const others = resources.flatMap((resource) => {
    if (resource.kind !== "NetworkPolicy" || resource.metadata.namespace !== namespace) return [];
    const { selector, types } = readPolicyTarget(resource.spec, ignoreUnreadable);
    const name = `NetworkPolicy ${namespace}/${resource.metadata.name}`;
    return evaluated.has(name) || !types.includes(type) ? [] : [`${name} (${selector})`];
  });
  if (others.length === 0) return;
  const more = others.length > MAX_POLICIES ? ` and ${others.length - MAX_POLICIES} more` : "";
  yield `${type} policies of the namespace that do not select ${workload}: ${others.slice(0, MAX_POLICIES).join(", ")}${more}`;
}
