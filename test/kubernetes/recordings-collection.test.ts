// Replays recordings of Calico's IPAM garbage collection: the same addresses and blocks must be released and kept. Times
// are a tenth of the recorded ones.
import { afterAll, beforeAll } from "bun:test";
import type { KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { durationMs } from "../../src/model/index.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { type Cluster, isAvailable, startCluster } from "./cluster.ts";
import { ControllersRun, EtcdKeys } from "./controllers-run.ts";
import { isSame, type Json, readRecording, replay } from "./replay.ts";

const FOLDER = "kubernetes/ipam-gc";
const RESOURCES = "/calico/resources/v3/projectcalico.org";
const V1 = "/apis/crd.projectcalico.org/v1";
type Kube = KubeObject & { readonly status?: unknown };

interface Case {
  readonly name: string;
  readonly leakGracePeriod: string;
  readonly kubernetes: Kube[];
  readonly calicoNodes?: Json[];
  readonly ipam?: Readonly<Record<string, Json>>;
  readonly customResources?: { readonly name: string; readonly labels?: object; readonly spec: Record<string, Json> }[];
  readonly timeline: { readonly event?: string; readonly released?: string[] }[];
  readonly kept: Readonly<Record<string, string | null>>;
  readonly keptAffinities: string[];
}
interface Kept {
  readonly kept: Record<string, string | null>;
  readonly affinities: string[];
}

let cluster: Cluster;
let etcd: EtcdServer;
let keys: EtcdKeys;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ namespaces: ["ns1"] });
  etcd = await EtcdServer.start();
  keys = new EtcdKeys(etcd);
}, 600_000);
afterAll(async () => {
  await etcd?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});

const filled = (value: Json): string =>
  JSON.stringify(value)
    .replaceAll('"UID"', '"2f5c0b5e-0000-4000-8000-000000000001"')
    .replaceAll(/("timestamp":)"TIME"/g, '$1"2026-01-01 00:00:00.000000 +0000 UTC"')
    .replaceAll("TIME", "2026-01-01T00:00:00Z");

async function clearKubernetes(): Promise<void> {
  for (const pod of (await cluster.api.list("/api/v1/namespaces/ns1/pods")).items)
    await cluster.delete(`/api/v1/namespaces/ns1/pods/${pod.metadata.name}`);
  for (const node of (await cluster.api.list("/api/v1/nodes")).items)
    await cluster.delete(`/api/v1/nodes/${node.metadata.name}`);
}

/** A tenth of a period. */
const shortened = (period: string): string => `${(durationMs(period) ?? 0) / 10}ms`;
const CONFIGURATION = (grace: string) => ({ controllers: { node: { leakGracePeriod: shortened(grace) } } });

interface Block {
  readonly cidr: string;
  readonly allocations: (number | null)[];
  readonly attributes: { readonly handle_id?: string | null }[];
}

function allocationsOf(blocks: readonly Block[]): Record<string, string | null> {
  const found: Record<string, string | null> = {};
  for (const { cidr, allocations, attributes } of blocks) {
    const [base = ""] = cidr.split("/");
    const start = Number(base.split(".").at(-1));
    allocations.forEach((index, ordinal) => {
      if (index === null) return;
      found[base.replace(/\d+$/, String(start + ordinal))] = attributes[index]?.handle_id ?? null;
    });
  }
  return found;
}

async function act(event: string): Promise<void> {
  const pods = /^pods? (?:ns1\/)?(\w+)(?: and (\w+))? deleted$/.exec(event);
  if (pods !== null)
    for (const name of pods.slice(1))
      if (name !== undefined) await cluster.delete(`/api/v1/namespaces/ns1/pods/${name}`);
  if (event.startsWith("Kubernetes node n1 deleted")) await cluster.delete("/api/v1/nodes/n1");
}

/** Replays the recorded events, then waits until the kept addresses are the recorded ones. */
async function play(recorded: Case, env: Record<string, string>, now: () => Promise<Kept>): Promise<Kept> {
  await using program = new ControllersRun({
    KUBECONFIG: cluster.server.kubeconfig,
    ENABLED_CONTROLLERS: "node",
    ...env,
  });
  const wanted: Kept = { kept: { ...recorded.kept }, affinities: [...recorded.keptAffinities].sort() };
  const graceMs = (durationMs(recorded.leakGracePeriod) ?? 0) / 10;
  for (const { event } of recorded.timeline)
    if (event !== undefined) {
      await Bun.sleep(400);
      await act(event);
    }
  // If nothing must be released, wait as long as a release would take.
  const before = await now();
  if (isSame(before, wanted)) await Bun.sleep(Math.min(1500, 3 * graceMs + 600));
  await eventually(async () => isSame(await now(), wanted), 20_000).catch(() => {});
  await Bun.sleep(150);
  const got = await now();
  if (!isSame(got, wanted)) console.error(program.lines.slice(-15).join("\n"));
  return got;
}

replay("kubernetes-ipam-gc etcd", FOLDER, async (score) => {
  for (const recorded of readRecording<{ cases: Case[] }>(`${FOLDER}/cases.json`).cases) {
    await clearKubernetes();
    await keys.clear();
    for (const object of recorded.kubernetes) await cluster.apply(object);
    for (const node of recorded.calicoNodes ?? []) {
      const { name } = (node as { metadata: { name: string } }).metadata;
      await keys.put(`${RESOURCES}/nodes/${name}`, filled(node));
    }
    for (const [key, value] of Object.entries(recorded.ipam ?? {})) await keys.put(key, filled(value));
    const put = (plural: string, kind: string, name: string, spec: Json) =>
      keys.put(
        `${RESOURCES}/${plural}/${name}`,
        filled({
          kind,
          apiVersion: "projectcalico.org/v3",
          metadata: { name, uid: "UID", creationTimestamp: "TIME" },
          spec,
        }),
      );
    await put("ippools", "IPPool", "p4", { cidr: "10.65.0.0/16", blockSize: 28, nodeSelector: "all()" });
    await put(
      "kubecontrollersconfigurations",
      "KubeControllersConfiguration",
      "default",
      CONFIGURATION(recorded.leakGracePeriod),
    );
    const datastoreReady = recorded.name !== "datastore-not-ready";
    await put("clusterinformations", "ClusterInformation", "default", { clusterGUID: "g", datastoreReady });
    const now = async (): Promise<Kept> => {
      const blocks = Object.values(await keys.snapshot("/calico/ipam/v2/assignment/")).map(
        (text) => JSON.parse(text) as Block,
      );
      const hosts = Object.keys(await keys.snapshot("/calico/ipam/v2/host/"));
      return {
        kept: allocationsOf(blocks),
        affinities: hosts.map((key) => key.replace("/calico/ipam/v2/host/", "")).sort(),
      };
    };
    const got = await play(recorded, { DATASTORE_TYPE: "etcdv3", ETCD_ENDPOINTS: etcd.url }, now);
    score.same(`${recorded.name} addresses`, [recorded.kept], got.kept);
    score.same(`${recorded.name} affinities`, [[...recorded.keptAffinities].sort()], got.affinities);
  }
});

replay("kubernetes-ipam-gc kubernetes", FOLDER, async (score) => {
  const pluralOf = (spec: Record<string, Json>) =>
    "handleID" in spec ? "ipamhandles" : "allocations" in spec ? "ipamblocks" : "blockaffinities";
  const kinds = { ipamhandles: "IPAMHandle", ipamblocks: "IPAMBlock", blockaffinities: "BlockAffinity" } as const;
  for (const recorded of readRecording<{ cases: Case[] }>(`${FOLDER}/kubernetes-datastore.json`).cases) {
    await clearKubernetes();
    await cluster.clear();
    for (const object of recorded.kubernetes) await cluster.apply(object);
    const put = (plural: string, kind: string, name: string, spec: unknown, labels: object = {}) =>
      cluster.put(`${V1}/${plural}`, {
        apiVersion: "crd.projectcalico.org/v1",
        kind,
        metadata: { name, labels },
        spec,
      });
    for (const { name, labels, spec } of recorded.customResources ?? []) {
      const plural = pluralOf(spec);
      await put(plural, kinds[plural], name, withoutNull(spec), labels);
    }
    await put("ippools", "IPPool", "p4", { cidr: "10.65.0.0/16", blockSize: 28, nodeSelector: "all()" });
    await put(
      "kubecontrollersconfigurations",
      "KubeControllersConfiguration",
      "default",
      CONFIGURATION(recorded.leakGracePeriod),
    );
    const now = async (): Promise<Kept> => {
      const blocks = (await cluster.api.list<KubeObject & { spec: Block }>(`${V1}/ipamblocks`)).items.map(
        ({ spec }) => spec,
      );
      const { items } = await cluster.api.list(`${V1}/blockaffinities`);
      return { kept: allocationsOf(blocks), affinities: items.map(({ metadata }) => metadata.name).sort() };
    };
    const got = await play(recorded, { DATASTORE_TYPE: "kubernetes" }, now);
    score.same(`${recorded.name} addresses`, [recorded.kept], got.kept);
    score.same(`${recorded.name} affinities`, [[...recorded.keptAffinities].sort()], got.affinities);
  }
});

/** Removes null values, which Calico wrote and the schema rejects; an absent field means the same. */
function withoutNull(value: Json): Json {
  if (Array.isArray(value)) return value.map((item) => (item === null ? null : withoutNull(item)));
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(
    Object.entries(value).flatMap(([name, inner]) => (inner === null ? [] : [[name, withoutNull(inner)]])),
  );
}
