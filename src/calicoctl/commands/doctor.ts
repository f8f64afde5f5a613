// Implements `calicoctl doctor`, which finds problems of the cluster, and of this host if it is a node.
// Exit codes: 0 no finding, 3 findings, 1 could not run (some or all checks), 2 usage error.
import { NotServed, Unavailable } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import type { KindName, Resource } from "../../model/index.ts";
import { type OpenStore, openStore } from "../resources/client.ts";
import type { Call } from "../table/flags.ts";
import type { doctorGrammar } from "../table/doctor.ts";
import { type Examination, examine, type NotChecked } from "../doctor/examine.ts";
import { CLUSTER_KINDS, type ClusterFacts, clusterFacts, type Source, type Unreadable } from "../doctor/facts.ts";
import { CHECKED_KINDS, CHECKED_KUBERNETES_KINDS } from "../doctor/not-used.ts";
import { readOutsidePools } from "../doctor/outside-pools.ts";
import { printExamination } from "../doctor/print.ts";
import { readCluster } from "../input/cluster.ts";
import { toJson } from "../output/json.ts";
import { readableOnly } from "../resources/readable-resources.ts";

const FOUND = 3;
const COULD_NOT_CHECK = 1;

export async function run(call: Call<typeof doctorGrammar>): Promise<number> {
  const { output } = call.flags;
  const directory = call.flags.from;
  const { cluster, notRead } = directory === undefined ? await readDatastore(call) : await readFolder(call, directory);
  const examinesHost = directory === undefined && !call.flags["no-host"];
  const { host, missing, notChecked } = examinesHost ? await examineHost(call, cluster) : NO_HOST;
  const examination = examine(cluster, host, missing);
  const result: Examination = { ...examination, notChecked: [...notRead, ...notChecked, ...examination.notChecked] };
  const nodes = [...cluster.nodes.keys()];
  const scope = {
    source: directory === undefined ? "the datastore" : `the files in ${directory}`,
    nodes,
    host: host?.node,
    missing: missing?.name,
  };
  call.io.out(
    output === "json"
      ? toJson({
          nodes: nodes.length,
          host: host?.node ?? null,
          notExamined: nodes.filter((name) => name !== host?.node),
          findings: result.findings,
          notChecked: result.notChecked,
        })
      : printExamination(result, scope),
  );
  return result.findings.length > 0 ? FOUND : result.notChecked.length > 0 ? COULD_NOT_CHECK : 0;
}

interface ReadCluster {
  readonly cluster: ClusterFacts;
  /** Sources that could not be read, that no check requires, and that could have led to more findings. */
  readonly notRead: readonly NotChecked[];
}

async function readDatastore(call: Call<typeof doctorGrammar>): Promise<ReadCluster> {
  await using store = await openStore(call, { requests: "many" });
  const skip = (error: Error) => call.io.err(`Skipped: ${error.message}\n`);
  const unreadable = new Map<Source, Error>();
  const attempt = async <T>(source: Source, read: () => Promise<T>, fallback: T): Promise<T> => {
    try {
      return await read();
    } catch (error) {
      // Without a connection to the datastore, or without the Nodes, no check can run.
      if (!(error instanceof Error) || error instanceof Unavailable || source === "Node") throw error;
      unreadable.set(source, error);
      return fallback;
    }
  };
  const lists = await Promise.all([
    ...CLUSTER_KINDS.map((kind) =>
      attempt(kind, async () => readableOnly(kind, await list(store, kind), skip), [] as readonly Resource[]),
    ),
    ...(store.datastore.name === "kubernetes" ? CHECKED_KUBERNETES_KINDS : []).map((kind) =>
      attempt(kind, () => list(store, kind), [] as readonly Resource[]),
    ),
  ]);
  const affinities = await attempt(
    "blocks",
    async () => (await store.datastore.list({ type: "blockAffinity", affinityType: "host" })).items,
    [],
  );
  const { pools, orphans } = await attempt("fill", () => new Ipam({ datastore: store.datastore }).utilization(), {
    pools: [],
    orphans: [],
  });
  const usedOrphans = orphans.filter(({ inUse }) => inUse > 0n).map(({ cidr }) => cidr);
  const outsidePools = await attempt("outsidePools", () => readOutsidePools(store.datastore, usedOrphans), []);
  const cluster = clusterFacts(
    lists.flat(),
    affinities.map(({ key, value }) => ({ host: key.host, cidr: key.cidr, affinity: value })),
    {
      fill: new Map(
        pools.map(({ cidr, capacity, available }) => [
          cidr,
          { capacity: Number(capacity), available: Number(available) },
        ]),
      ),
      outsidePools,
    },
    unreadable,
  );
  return { cluster, notRead: optionalSources(unreadable) };
}

async function list({ datastore }: OpenStore, kind: KindName): Promise<readonly Resource[]> {
  try {
    const { items } = await datastore.list({ type: "resource", kind });
    return items.map(({ value }) => value as Resource);
  } catch (error) {
    // Clusters of older versions do not serve some of Calico's kinds, and many do not serve the Kubernetes policy kinds.
    if (error instanceof NotServed && [...CHECKED_KINDS, ...CHECKED_KUBERNETES_KINDS].includes(kind)) return [];
    throw error;
  }
}

function optionalSources(unreadable: Unreadable): readonly NotChecked[] {
  const optional: readonly string[] = ["CalicoNodeStatus", ...CHECKED_KINDS, ...CHECKED_KUBERNETES_KINDS];
  return [...unreadable]
    .filter(([source]) => optional.includes(source))
    .map(([source, { message }]) => ({ check: `resources of kind ${source}`, reason: message }));
}

async function readFolder(call: Call<typeof doctorGrammar>, directory: string): Promise<ReadCluster> {
  const { resources, blocks } = await readCluster(directory, call.io);
  return { cluster: clusterFacts(resources, blocks), notRead: [] };
}

const NO_HOST = { host: undefined, missing: undefined, notChecked: [] } as const;

/** Reads the facts about this host if the datastore has a Node for it. */
async function examineHost(call: Call<typeof doctorGrammar>, cluster: ClusterFacts) {
  const { localNode, readHost } = await import("../doctor/read-host.ts");
  const local = localNode(call.io.env);
  if (local === undefined) return NO_HOST;
  if (!cluster.nodes.has(local.name)) return { ...NO_HOST, missing: local };
  try {
    return { ...NO_HOST, host: await readHost(local.name, cluster) };
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    return { ...NO_HOST, notChecked: [{ check: `this host (${local.name})`, reason }] };
  }
}
