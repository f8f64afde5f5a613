// calicoctl doctor: what is wrong with the cluster, and with this host when it is a node, with cause, evidence and fix.
// Exit 0 nothing found, 3 something, 1 could not look, 2 asked wrongly.
import { Ipam } from "../../ipam/index.ts";
import type { Resource } from "../../model/index.ts";
import { openStore } from "../client.ts";
import type { Call } from "../command.ts";
import { examine } from "../doctor/examine.ts";
import { CLUSTER_KINDS, type ClusterFacts, clusterFacts } from "../doctor/facts.ts";
import { printFindings } from "../doctor/print.ts";
import { Failure } from "../failure.ts";
import { readCluster } from "../input/cluster.ts";
import { toJson } from "../output/json.ts";
import { readableOnly } from "../readable.ts";

const FOUND = 3;

export async function run(call: Call): Promise<number> {
  const output = call.flags.value("output") ?? "text";
  if (output !== "text" && output !== "json")
    throw new Failure(`--output is ${output}, want text or json`, { exitCode: 2 });
  const directory = call.flags.value("from");
  const cluster = directory === undefined ? await readDatastore(call) : await readFolder(call, directory);
  const looksHere = directory === undefined && !call.flags.has("no-host");
  const host = looksHere ? await thisHost(call, cluster) : undefined;
  const findings = examine(cluster, host);
  const { size } = cluster.nodes;
  const here =
    host === undefined ? (looksHere ? "; this host is no node of it" : "") : ` and on this host, node ${host.node}`;
  const examined = `the cluster (${size} ${size === 1 ? "node" : "nodes"})${here}`;
  call.world.out(
    output === "json" ? toJson({ nodes: size, host: host?.node ?? null, findings }) : printFindings(findings, examined),
  );
  return findings.length === 0 ? 0 : FOUND;
}

async function readDatastore(call: Call): Promise<ClusterFacts> {
  await using store = await openStore(call, { requests: "many" });
  const { datastore } = store;
  const skip = (error: Error) => call.world.err(`Skipped: ${error.message}\n`);
  const lists = await Promise.all(
    CLUSTER_KINDS.map(async (kind) => {
      const { items } = await datastore.list({ type: "resource", kind });
      const resources = items.map(({ value }) => value as Resource);
      return readableOnly(kind, resources, skip);
    }),
  );
  const affinities = await datastore.list({ type: "blockAffinity", affinityType: "host" });
  const pools = await new Ipam({ datastore }).utilization().then(
    (read) => read.pools,
    (error: Error) => {
      skip(error);
      return [];
    },
  );
  return clusterFacts(
    lists.flat(),
    affinities.items.map(({ key, value }) => ({ host: key.host, cidr: key.cidr, affinity: value })),
    new Map(
      pools.map(({ cidr, capacity, available }) => [
        cidr,
        { capacity: Number(capacity), available: Number(available) },
      ]),
    ),
  );
}

async function readFolder(call: Call, directory: string): Promise<ClusterFacts> {
  const { resources, blocks } = await readCluster(directory, call.world);
  return clusterFacts(resources, blocks);
}

/** Only where calico-node has started as a node that the datastore knows. */
async function thisHost(call: Call, cluster: ClusterFacts) {
  const { nodeHere, readHost } = await import("../doctor/read-host.ts");
  const node = nodeHere(call.world.env);
  return node === undefined || !cluster.nodes.has(node) ? undefined : readHost(node, cluster);
}
