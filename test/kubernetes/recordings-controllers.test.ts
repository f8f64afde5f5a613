// Replays recordings of Calico's controllers with Calico's datastore in etcd, step by step, with shorter periods.
import { afterAll, beforeAll } from "bun:test";
import { runCommandLine } from "../../src/calicoctl/index.ts";
import type { KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { type Cluster, type Environment, isAvailable, placeOf, startCluster } from "./cluster.ts";
import { ControllersRun, EtcdKeys } from "./controllers-run.ts";
import { isSame, type Json, normalizedJson, readRecording, replay, type Score } from "./replay.ts";

const FOLDER = "kubernetes/controllers";
const RESOURCES = "/calico/resources/v3/projectcalico.org";
const PERIOD = "400ms";
/** Long, because the machine may be busy; only a difference waits for the whole time. */
const TIMEOUT_MS = 20_000;
type Kube = KubeObject & { readonly status?: unknown };
type Keys = Readonly<Record<string, Json>>;

let cluster: Cluster;
let etcd: EtcdServer;
let keys: EtcdKeys;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster();
  etcd = await EtcdServer.start();
  keys = new EtcdKeys(etcd);
}, 600_000);
afterAll(async () => {
  await etcd?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});

interface Step {
  readonly do: string;
  readonly object?: Kube;
  readonly kind?: string;
  readonly namespace?: string;
  readonly name?: string;
  readonly patch?: object;
  readonly keys?: Keys | string[];
  readonly args?: string[];
  readonly stdin?: string;
  readonly before?: Keys;
  readonly written?: Keys;
  readonly deleted?: string[];
  readonly nothingFor?: number;
}
interface SequenceFile {
  readonly env: Record<string, string>;
  readonly cases: { readonly name: string; readonly steps: Step[] }[];
}

const environment = (env: Environment): Environment => ({
  DATASTORE_TYPE: "etcdv3",
  ETCD_ENDPOINTS: etcd.url,
  KUBECONFIG: cluster.server.kubeconfig,
  ...env,
  ...(env["RECONCILER_PERIOD"] === undefined ? {} : { RECONCILER_PERIOD: PERIOD }),
});

const stored = (value: Json): string => (typeof value === "string" ? filled(value) : filled(JSON.stringify(value)));
/** Replaces the recorded placeholders by any valid value. */
const filled = (text: string): string =>
  text
    .replaceAll('"UID"', '"2f5c0b5e-0000-4000-8000-000000000001"')
    .replaceAll(/("timestamp":)"TIME"/g, '$1"2026-01-01 00:00:00.000000 +0000 UTC"')
    .replaceAll("TIME", "2026-01-01T00:00:00Z");

const readable = (snapshot: Record<string, string>): Record<string, Json> =>
  Object.fromEntries(
    Object.entries(snapshot).map(([key, value]) => {
      try {
        return [key, normalizedJson(JSON.parse(value) as Json)];
      } catch {
        return [key, value];
      }
    }),
  );

/** Keys that the program writes in every step; not compared. */
const OWN = /\/(clusterinformations|kubecontrollersconfigurations|tiers)\//;

function difference(base: Record<string, Json>, now: Record<string, Json>): { written: Keys; deleted: string[] } {
  const written = Object.fromEntries(
    Object.entries(now).filter(([key, value]) => !OWN.test(key) && !isSame(base[key], value)),
  );
  return {
    written,
    deleted: Object.keys(base)
      .filter((key) => !(key in now) && !OWN.test(key))
      .sort(),
  };
}

async function kubernetes(step: Step): Promise<void> {
  if (step.object !== undefined) {
    const { namespace } = step.object.metadata;
    if (namespace !== undefined) await cluster.put("/api/v1/namespaces", { metadata: { name: namespace } });
    return cluster.apply(step.object);
  }
  const { kind = "", name = "", namespace } = step;
  const place = placeOf({ kind, metadata: { name, ...(namespace === undefined ? {} : { namespace }) } });
  const path = `${place}/${name}`;
  if (step.do === "patch")
    await cluster.api.json({ method: "PATCH", path, body: step.patch, contentType: "application/merge-patch+json" });
  else {
    if (step.do !== "finalize") await cluster.delete(path);
    if (kind === "Namespace" && step.do !== "deleteOnly") await finalize(path);
  }
}

/** Deletes the namespace completely, because no namespace controller runs here. */
async function finalize(path: string): Promise<void> {
  const namespace = await cluster.api.get<KubeObject>(path);
  await cluster.api.json({ method: "PUT", path: `${path}/finalize`, body: { ...namespace, spec: { finalizers: [] } } });
}

async function calicoctl(args: readonly string[], stdin = ""): Promise<void> {
  let text = "";
  const code = await runCommandLine("calicoctl", args, {
    env: environment({}),
    out: (line) => void (text += line),
    err: (line) => void (text += line),
    readStdin: () => Buffer.from(stdin),
    isTerminal: () => false,
  });
  if (code !== 0) throw new Error(`calicoctl ${args.join(" ")}: ${text}`);
}

/** Executes the step, and returns the contents of etcd right after it, before a controller acts. */
async function perform(step: Step): Promise<Record<string, Json>> {
  const base = readable(await keys.snapshot());
  if (step.do === "put")
    for (const [key, value] of Object.entries(step.keys as Keys)) {
      await keys.put(key, stored(value));
      base[key] = readable({ [key]: stored(value) })[key] ?? null;
    }
  else if (step.do === "drop")
    for (const key of step.keys as string[]) {
      await keys.drop(key);
      delete base[key];
    }
  else if (step.do === "ctl") await calicoctl(step.args ?? [], step.stdin);
  else if (step.do !== "wait") await kubernetes(step);
  return base;
}

async function judge(score: Score, what: string, base: Record<string, Json>, step: Step): Promise<void> {
  const wanted = { written: step.written ?? {}, deleted: [...(step.deleted ?? [])].sort() };
  const now = async () => difference(base, readable(await keys.snapshot()));
  if (step.nothingFor !== undefined) await Bun.sleep(step.nothingFor >= 4 ? 900 : 250);
  else
    await eventually(async () => isSame(await now(), wanted), score.isException(what) ? 300 : TIMEOUT_MS).catch(
      () => {},
    );
  score.same(what, [wanted], await now());
}

async function clearKubernetes(): Promise<void> {
  for (const place of [
    "/api/v1/pods",
    "/apis/networking.k8s.io/v1/networkpolicies",
    "/api/v1/serviceaccounts",
    "/api/v1/nodes",
  ]) {
    const kind = { pods: "Pod", networkpolicies: "NetworkPolicy", serviceaccounts: "ServiceAccount", nodes: "Node" };
    for (const item of (await cluster.api.list(place)).items) {
      const path = placeOf({ ...item, kind: kind[place.split("/").at(-1) as keyof typeof kind] });
      await cluster.delete(`${path}/${item.metadata.name}`);
    }
  }
  for (const { metadata } of (await cluster.api.list("/api/v1/namespaces")).items) {
    if (/^(default|kube-.*)$/.test(metadata.name)) continue;
    await cluster.delete(`/api/v1/namespaces/${metadata.name}`);
    await finalize(`/api/v1/namespaces/${metadata.name}`);
  }
}

/** Waits until every namespace has its profile: then the first writes have ended. */
async function isWorking(): Promise<boolean> {
  const namespaces = (await cluster.api.list("/api/v1/namespaces")).items;
  const present = new Set(Object.keys(await keys.snapshot()));
  return namespaces.every(({ metadata }) => present.has(`${RESOURCES}/profiles/kns.${metadata.name}`));
}

for (const file of ["namespaces", "serviceaccounts", "policy-sequences", "workloadendpoints", "nodes", "hostendpoints"])
  replay(`kubernetes-controllers ${file}`, FOLDER, async (score) => {
    await clearKubernetes();
    await keys.clear();
    const { env, cases } = readRecording<SequenceFile>(`${FOLDER}/${file}.json`);
    const first = environment(file === "workloadendpoints" ? { ...env, RECONCILER_PERIOD: "3s" } : env);
    if (file === "hostendpoints") {
      for (const [key, value] of Object.entries(readRecording<Keys>(`${FOLDER}/hostendpoints-node.json`)))
        if (key.startsWith("/")) await keys.put(key, stored(value));
      await cluster.apply({ kind: "Node", metadata: { name: "n1" } });
    }
    for (const name of ["sa1", "ns1", "ns2"]) await cluster.put("/api/v1/namespaces", { metadata: { name } });
    let program = new ControllersRun(first);
    try {
      if (file !== "hostendpoints") await eventually(isWorking, TIMEOUT_MS);
      for (const { name, steps } of cases) {
        if (name === "no-calico-node-daemonset") continue; // Calico waits here, calico-ts must not
        if (name === "disable-removes-all") await createDeleted(steps[0]?.deleted ?? []);
        for (const [i, step] of steps.entries()) {
          const what = `${name} ${i} ${step.do}`;
          if (step.do === "start") {
            await program[Symbol.asyncDispose]();
            for (const [key, value] of Object.entries(step.before ?? {})) await keys.put(key, stored(value));
            const labels = { empty: "", "kubernetes.io/hostname": "n8", z: "1" };
            await cluster.apply({ kind: "Node", metadata: { name: "n8", labels } });
            const base = readable(await keys.snapshot());
            program = new ControllersRun(first);
            await judge(score, what, base, step);
          } else if (!step.do.startsWith("DaemonSet")) await judge(score, what, await perform(step), step);
        }
      }
      if (score.failures > 0)
        console.error(
          program.lines
            .filter((line) => /WARN|ERROR/.test(line))
            .slice(-20)
            .join("\n"),
        );
    } finally {
      await program[Symbol.asyncDispose]();
    }
  });

const GUID = /("clusterGUID":)"[0-9a-f]{32}"/g;
const withoutGuid = <T>(value: T): T => JSON.parse(JSON.stringify(value).replace(GUID, '$1"GUID"')) as T;

replay("kubernetes-controllers first start", FOLDER, async (score) => {
  await clearKubernetes();
  await keys.clear();
  const { env, written } = readRecording<{ env: Environment; written: Keys }>(`${FOLDER}/_start.json`);
  await using _program = new ControllersRun({ ...environment({}), ...env });
  const now = async () => withoutGuid(readable(await keys.snapshot()));
  await eventually(async () => isSame(await now(), written), TIMEOUT_MS).catch(() => {});
  const found = await now();
  for (const key of new Set([...Object.keys(written), ...Object.keys(found)]))
    score.same(key.replace(`${RESOURCES}/`, ""), [written[key]], found[key]);
});

replay("kubernetes-controllers first start in Kubernetes", FOLDER, async (score) => {
  type Found = Readonly<Record<string, readonly { readonly metadata: { readonly name: string } }[]>>;
  const { objects } = readRecording<{ objects: Found }>(`${FOLDER}/_start-kubernetes-datastore.json`);
  await cluster.clear();
  await using _program = new ControllersRun({ KUBECONFIG: cluster.server.kubeconfig, DATASTORE_TYPE: "kubernetes" });
  const now = async () => {
    const found = (await cluster.customResources()).map(({ plural, name, value }) => {
      const { metadata, spec } = value as { metadata: object; spec: object };
      return [`${plural}/${name}`, { metadata, spec }] as const;
    });
    return withoutGuid(normalizedJson(Object.fromEntries(found)));
  };
  const wanted = Object.fromEntries(
    Object.entries(objects).flatMap(([plural, items]) =>
      items.map((item) => [`${plural}/${item.metadata.name}`, item as object] as const),
    ),
  );
  await eventually(async () => isSame(await now(), wanted), TIMEOUT_MS).catch(() => {});
  const found: Readonly<Record<string, unknown>> = await now();
  for (const name of new Set([...Object.keys(wanted), ...Object.keys(found)]))
    score.same(name, [wanted[name]], found[name]);
});

/** Creates what the recording deletes without having created it: a template, chosen by the name, and the default. */
async function createDeleted(deleted: readonly string[]): Promise<void> {
  const names = deleted.map((key) => key.split("/").at(-1) ?? "");
  const templates = names.flatMap((name) => {
    const generateName = /^n1-(.+)-auto-hep$/.exec(name)?.[1];
    return generateName === undefined
      ? []
      : [{ generateName, nodeSelector: "all()", interfaceCIDRs: ["0.0.0.0/0"], labels: {} }];
  });
  const hostEndpoint = { autoCreate: "Enabled", createDefaultHostEndpoint: "Enabled", templates };
  const spec = { controllers: { node: { hostEndpoint } } };
  const metadata = { name: "default" };
  const configuration = { apiVersion: "projectcalico.org/v3", kind: "KubeControllersConfiguration", metadata, spec };
  await calicoctl(["apply", "-f", "-"], JSON.stringify(configuration));
  const present = async () =>
    Object.keys(await keys.snapshot(`${RESOURCES}/hostendpoints/`)).map((key) => key.split("/").at(-1) ?? "");
  await eventually(async () => new Set(names).isSubsetOf(new Set(await present())), TIMEOUT_MS);
}

replay("kubernetes-controllers networkpolicies", FOLDER, async (score) => {
  interface PolicyCase {
    readonly name: string;
    readonly kubernetes: Kube;
    readonly stored?: Keys;
    readonly note?: string;
  }
  await clearKubernetes();
  await keys.clear();
  const { env, cases } = readRecording<{ env: Environment; cases: PolicyCase[] }>(`${FOLDER}/networkpolicies.json`);
  await cluster.apply({ kind: "Namespace", metadata: { name: "ns1", labels: { team: "a" } } });
  await using _program = new ControllersRun(environment(env));
  await eventually(isWorking, TIMEOUT_MS);
  for (const recorded of cases) {
    if (recorded.stored === undefined && recorded.note === undefined) continue;
    const path = `${placeOf(recorded.kubernetes)}/${recorded.kubernetes.metadata.name}`;
    await cluster.apply(recorded.kubernetes);
    const policies = async () => readable(await keys.snapshot(`${RESOURCES}/networkpolicies/`)) as Record<string, Json>;
    if (recorded.note !== undefined) {
      // The name is too long for Calico; calico-ts must copy the object under a shorter name.
      await eventually(async () => Object.keys(await policies()).length === 1, TIMEOUT_MS).catch(() => {});
      const [name = ""] = Object.keys(await policies()).map((key) => key.split("/").at(-1) ?? "");
      score.check(`${recorded.name.slice(0, 40)} is stored`, name !== "" && name.length <= 253, "a name of 253", name);
    } else {
      const wanted = recorded.stored ?? {};
      await eventually(async () => isSame(await policies(), wanted), TIMEOUT_MS).catch(() => {});
      score.same(recorded.name, [wanted], await policies());
    }
    const body = { metadata: { finalizers: null } };
    await cluster.api.json({ method: "PATCH", path, body, contentType: "application/merge-patch+json" });
    await cluster.delete(path);
    await eventually(async () => Object.keys(await policies()).length === 0, TIMEOUT_MS).catch(() => {});
  }
});

interface ConfigurationCase {
  readonly name: string;
  readonly env: Environment;
  readonly specBefore?: Json;
  readonly spec: Json;
  readonly status: Json;
}
const CONFIGURATION = `${RESOURCES}/kubecontrollersconfigurations/default`;

async function configuration(): Promise<{ spec: Json; status: Json }> {
  const value = readable(await keys.snapshot())[CONFIGURATION] as { spec?: Json; status?: Json } | undefined;
  return { spec: value?.spec ?? null, status: value?.status ?? null };
}

replay("kubernetes-controllers configuration", FOLDER, async (score) => {
  for (const recorded of readRecording<{ cases: ConfigurationCase[] }>(`${FOLDER}/configuration.json`).cases) {
    await keys.clear();
    const { name, env, specBefore, spec, status } = recorded;
    if (specBefore !== undefined)
      await keys.put(
        CONFIGURATION,
        stored({
          kind: "KubeControllersConfiguration",
          apiVersion: "projectcalico.org/v3",
          metadata: { name: "default", uid: "UID", creationTimestamp: "TIME" },
          spec: specBefore,
        }),
      );
    const own = { ...environment({}), ...env };
    await using program = new ControllersRun(own);
    if (spec === null) {
      await program.ended();
      score.check(name, program.failure instanceof Error, "refused", program.failure);
    } else {
      await eventually(async () => isSame(await configuration(), { spec, status }), TIMEOUT_MS).catch(() => {});
      score.same(name, [{ spec, status }], await configuration());
    }
  }
});

replay("kubernetes-controllers configuration changes", FOLDER, async (score) => {
  interface ChangeCase extends ConfigurationCase {
    readonly restarted: boolean;
  }
  await keys.clear();
  const { cases } = readRecording<{ cases: ChangeCase[] }>(`${FOLDER}/configuration-changes.json`);
  await using program = new ControllersRun(environment({}));
  await eventually(async () => JSON.stringify((await configuration()).status).includes("runningConfig"), TIMEOUT_MS);
  const patch = (spec: object) =>
    calicoctl(["patch", "kubecontrollersconfiguration", "default", "-p", JSON.stringify({ spec })]);
  const period = { controllers: { policy: { reconcilerPeriod: "1m0s" } } };
  const actions: Readonly<Record<string, () => Promise<void>>> = {
    "spec-change": () => patch(period),
    "same-spec-again": () => patch(period),
    "status-tampered": async () => {
      const value = JSON.parse((await keys.snapshot())[CONFIGURATION] ?? "{}") as { status: object };
      const status = { ...value.status, environmentVars: { X: "Y" } };
      await keys.put(CONFIGURATION, JSON.stringify({ ...value, status }));
    },
    deleted: () => keys.drop(CONFIGURATION),
    "metrics-port-change": () => patch({ prometheusMetricsPort: 9095 }),
  };
  for (const { name, restarted, spec, status } of cases) {
    const before = program.restarts;
    await actions[name]?.();
    const isDone = async () =>
      isSame(await configuration(), { spec, status }) && program.restarts > before === restarted;
    await eventually(isDone, TIMEOUT_MS).catch(() => {});
    if (!restarted) await Bun.sleep(300);
    score.same(name, [{ spec, status }], await configuration());
    score.same(`${name} restarts`, [restarted], program.restarts > before);
  }
});

replay("kubernetes-controllers configuration in Kubernetes", FOLDER, async (score) => {
  interface KubernetesCase {
    readonly name: string;
    readonly env: Environment;
    readonly customResource: { readonly spec: Json; readonly status: Json };
  }
  const path = "/apis/crd.projectcalico.org/v1/kubecontrollersconfigurations";
  for (const recorded of readRecording<{ cases: KubernetesCase[] }>(`${FOLDER}/configuration-kubernetes-datastore.json`)
    .cases) {
    await cluster.clear();
    const { spec, status } = recorded.customResource;
    await using _program = new ControllersRun({ KUBECONFIG: cluster.server.kubeconfig, ...recorded.env });
    const now = async () => {
      const { items } = await cluster.api.list<KubeObject & { spec?: Json; status?: Json }>(path);
      return { spec: items[0]?.spec ?? null, status: items[0]?.status ?? null };
    };
    await eventually(async () => (await now()).status !== null, TIMEOUT_MS).catch(() => {});
    score.same(`${recorded.name} spec`, [spec], (await now()).spec);
    score.same(`${recorded.name} status`, [status], (await now()).status);
  }
});
