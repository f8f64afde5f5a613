// Reads and compares the neighbour's state, which must not change: addresses and their allocations, pods, policies, routes.
import type { Lab } from "../../src/lab/lab.ts";
import type { Api } from "./api.ts";
import { NEIGHBOUR, type Scene } from "./scene.ts";

/** State by subject. */
export type NeighbourState = Readonly<Record<string, string>>;

interface Block {
  readonly spec: {
    readonly cidr: string;
    readonly allocations: readonly (number | null)[];
    readonly attributes: readonly { readonly secondary?: Readonly<Record<string, string>> }[];
  };
}
interface Stored {
  readonly metadata: {
    readonly name: string;
    readonly labels?: object;
    readonly annotations?: object;
    readonly uid: string;
  };
  readonly spec: object;
  readonly status?: { readonly podIPs?: object };
}
const CALICO = "/apis/crd.projectcalico.org/v1";

export async function neighbourState(lab: Lab, scene: Scene, api: Api): Promise<NeighbourState> {
  const own = scene.pods.filter(({ namespace }) => namespace === NEIGHBOUR);
  const state: Record<string, string> = {};
  const pods = await api.get<{ readonly items: readonly Stored[] }>(`/api/v1/namespaces/${NEIGHBOUR}/pods`);
  for (const { name } of own) {
    const found = pods.items.find(({ metadata }) => metadata.name === name);
    const { labels, annotations, uid } = found?.metadata ?? {};
    state[`pod ${name}`] = JSON.stringify({ uid, labels, annotations, podIPs: found?.status?.podIPs });
  }
  const policies = await api.get<{ readonly items: readonly Stored[] }>(
    `${CALICO}/namespaces/${NEIGHBOUR}/networkpolicies`,
  );
  for (const { metadata, spec } of policies.items) state[`policy ${metadata.name}`] = JSON.stringify(spec);
  const owners = await allocations(api);
  for (const address of own.flatMap(({ addresses }) => addresses)) {
    state[`allocation of ${address}`] = owners.get(address) ?? "none";
    for (const { name: node } of lab.plan.nodes) {
      const { stdout } = lab.host(node).run(["ip", "route", "get", address]);
      state[`route to ${address} on ${node}`] = /\bdev (\S+)/.exec(stdout)?.[1] ?? "none";
    }
  }
  return state;
}

/** Returns the pod of every allocated address. */
export async function allocations(api: Api): Promise<ReadonlyMap<string, string>> {
  const { items } = await api.get<{ readonly items: readonly Block[] }>(`${CALICO}/ipamblocks`);
  return new Map(
    items.flatMap(({ spec: { cidr, allocations: indexes, attributes } }) =>
      indexes.flatMap((index, ordinal) => {
        if (index === null) return [];
        const { namespace, pod } = attributes[index]?.secondary ?? {};
        return [[addressAt(cidr, ordinal), `${namespace}/${pod}`] as const];
      }),
    ),
  );
}

/** Returns the n-th address of a block. Addresses of a block in the lab differ only in the last byte. */
function addressAt(cidr: string, ordinal: number): string {
  const network = cidr.replace(/\/.*/, "");
  const at = Math.max(network.lastIndexOf("."), network.lastIndexOf(":")) + 1;
  const [head, last] = [network.slice(0, at), network.slice(at)];
  if (!network.includes(":")) return `${head}${Number(last) + ordinal}`;
  return ordinal === 0 ? network : `${head}${(Number.parseInt(last || "0", 16) + ordinal).toString(16)}`;
}

/** Returns one line per difference. */
export const changes = (before: NeighbourState, now: NeighbourState): string[] =>
  [...new Set([...Object.keys(before), ...Object.keys(now)])]
    .filter((what) => before[what] !== now[what])
    .map((what) => `${what}: ${before[what] ?? "none"} became ${now[what] ?? "none"}`);
