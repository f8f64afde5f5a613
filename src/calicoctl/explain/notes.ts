// What policy alone does not tell, and who asks wants to know: that nobody has the address, that the answer will not find
// its way back, that a policy meant for this pod selects another.
import { cidrContains, type IpAddress } from "../../lib/ip/ip.ts";
import { ignoreUnreadable, type IpPool, readPolicyTarget, readPool, type Resource } from "../../model/index.ts";
import { type Packet, type Party, policyName, type PolicyState, type Verdict } from "../../policy/index.ts";

interface Question {
  readonly packet: Packet;
  readonly source: Party;
  readonly destination: Party;
}
const MOST_POLICIES = 3;

export function beyondPolicy(
  state: PolicyState,
  resources: readonly Resource[],
  question: Question,
  verdict: Verdict,
): readonly string[] {
  const { packet, source, destination } = question;
  const pools = resources.flatMap((each) => (each.kind === "IPPool" ? (readPool(each, ignoreUnreadable) ?? []) : []));
  const notes = [...unowned(pools, packet.source, source), ...unowned(pools, packet.destination, destination)];
  for (const address of new Set([packet.source, packet.destination])) notes.push(...shared(state, address));
  if (verdict.action === "allow") notes.push(...wayBack(pools, question));
  notes.push(
    ...unselected(resources, source, "egress", verdict),
    ...unselected(resources, destination, "ingress", verdict),
  );
  return notes;
}

const around = (pools: readonly IpPool[], address: IpAddress): IpPool | undefined =>
  pools.find(({ cidr }) => cidrContains(cidr, address));

/** An address of pods that no pod has. */
function* unowned(pools: readonly IpPool[], address: IpAddress, party: Party): Generator<string> {
  const pool = around(pools, address);
  if (pool === undefined || party.kind === "workload" || party.kind === "host") return;
  yield `${address} is of pool ${pool.name}, and no workload has it: nobody is there (calicoctl ipam show --ip=${address})`;
}

/** Two workloads with one address: packets find one of them, and rules may mean the other. */
function* shared(state: PolicyState, address: IpAddress): Generator<string> {
  const owners = state.workloads.filter(({ value }) =>
    [...value.ipv4Nets, ...value.ipv6Nets].some((net) => net.slice(0, net.indexOf("/")) === address),
  );
  if (owners.length < 2) return;
  const names = owners.map(({ key }) => `${key.workload} on ${key.host}`);
  yield `${address} is the address of ${owners.length} workloads (${names.slice(0, 3).join(", ")}): only one of them is reached; calicoctl ipam check`;
}

/** What leaves the pools keeps the pod's address unless the pool says otherwise. */
function* wayBack(pools: readonly IpPool[], { packet, source, destination }: Question): Generator<string> {
  const pool = around(pools, packet.source);
  const isOutside = destination.kind !== "workload" && destination.kind !== "host";
  if (source.kind !== "workload" || pool === undefined || !isOutside) return;
  if (around(pools, packet.destination) !== undefined || pool.natOutgoing) return;
  yield `it leaves with the pod's own address, since pool ${pool.name} has no natOutgoing: the other side needs a route back to ${pool.cidr}`;
}

/** Policies of the workload's namespace that do not select it: a label with a slip of the pen looks like this. */
function* unselected(
  resources: readonly Resource[],
  party: Party,
  type: "ingress" | "egress",
  verdict: Verdict,
): Generator<string> {
  if (party.kind !== "workload") return;
  const { workload } = party.workload.key;
  const [namespace = ""] = workload.split("/");
  const asked = new Set(
    verdict.checkpoints
      .filter(({ endpoint }) => endpoint === `workload ${workload}`)
      .flatMap(({ tiers }) => tiers.flatMap(({ policies }) => policies.map(({ key }) => policyName(key)))),
  );
  const others = resources.flatMap((resource) => {
    if (resource.kind !== "NetworkPolicy" || resource.metadata.namespace !== namespace) return [];
    const { selector, types } = readPolicyTarget(resource.spec, ignoreUnreadable);
    const name = `NetworkPolicy ${namespace}/${resource.metadata.name}`;
    return asked.has(name) || !types.includes(type) ? [] : [`${name} (${selector})`];
  });
  if (others.length === 0) return;
  const more = others.length > MOST_POLICIES ? ` and ${others.length - MOST_POLICIES} more` : "";
  yield `${type} policies of the namespace that do not select ${workload}: ${others.slice(0, MOST_POLICIES).join(", ")}${more}`;
}
