// Tests the plugin on a real API server, with the manifest's account: pods, their annotations, and addresses in custom
// resources. Also replays recordings of Calico, if they exist next to the checkout.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { canRun, CniHost, k8s, type Pod, type PluginRun } from "../functional/cni/cni-host.ts";
import { type Accounts, installAccounts } from "./accounts.ts";
import type { ApiServer } from "./api-server.ts";
import { type Cluster as KubeCluster, isAvailable, startCluster, suite as apiSuite } from "./cluster.ts";
import { type Forwarder, forwardInto } from "../support/host-forwarder.ts";
import { Score } from "./replay.ts";

const suite = canRun ? apiSuite : test.skip; // needs root and the executable
const recordings = join(import.meta.dir, "../../../shared/golden/cni/kubernetes");
const CALICO = "/apis/crd.projectcalico.org/v1";

type Json = Record<string, unknown>;
let kube: KubeCluster;
let accounts: Accounts;
let server: ApiServer;

async function api(method: string, path: string, body?: unknown): Promise<Json> {
  const answer = await fetch(`${server.url}${path}`, {
    method,
    headers: { authorization: `Bearer ${server.adminToken}`, "content-type": "application/json" },
    tls: { rejectUnauthorized: false },
    body: body === undefined ? undefined : JSON.stringify(body),
  });
  const json = (await answer.json()) as Json;
  if (!answer.ok && answer.status !== 404) throw new Error(`${method} ${path}: ${json["message"]}`);
  return json;
}
const create = (path: string, kind: string, metadata: object, rest: object = {}) =>
  api("POST", path, {
    apiVersion: path.startsWith(CALICO) ? "crd.projectcalico.org/v1" : "v1",
    kind,
    metadata,
    ...rest,
  });
const itemsOf = async (path: string) =>
  ((await api("GET", path))["items"] ?? []) as (Json & {
    metadata: { name: string; namespace?: string; annotations?: Record<string, string> };
  })[];

beforeAll(async () => {
  if (!canRun || !isAvailable) return;
  kube = await startCluster();
  accounts = await installAccounts(kube);
  ({ server } = kube);
  await create("/api/v1/namespaces", "Namespace", { name: "ns1" });
  await create("/api/v1/namespaces", "Namespace", {
    name: "ns2",
    annotations: { "cni.projectcalico.org/ipv4pools": '["10.66.0.0/24"]' },
  });
  await create(
    "/api/v1/nodes",
    "Node",
    { name: "n1" },
    { spec: { podCIDR: "10.244.1.0/24", podCIDRs: ["10.244.1.0/24", "fd00:244:1::/64"] } },
  );
  await create(
    `${CALICO}/ippools`,
    "IPPool",
    { name: "p4" },
    { spec: { cidr: "10.65.0.0/24", blockSize: 26, nodeSelector: "all()" } },
  );
  await create(
    `${CALICO}/ippools`,
    "IPPool",
    { name: "p6" },
    { spec: { cidr: "fd00:65::/112", blockSize: 122, nodeSelector: "all()" } },
  );
  await create(
    `${CALICO}/ippools`,
    "IPPool",
    { name: "other" },
    { spec: { cidr: "10.66.0.0/24", blockSize: 26, nodeSelector: "!all()" } },
  );
  await create(
    `${CALICO}/clusterinformations`,
    "ClusterInformation",
    { name: "default" },
    { spec: { datastoreReady: true } },
  );
}, 600_000);
afterAll(async () => await kube?.[Symbol.asyncDispose]());

/** Creates a host that reaches the API server from its network namespace, in a cluster without pods and addresses. */
class Cluster implements AsyncDisposable {
  readonly kubeconfig: string;
  readonly #forwarder: Forwarder;
  private constructor(readonly host: CniHost) {
    this.#forwarder = forwardInto(host, server.url);
    this.kubeconfig = accounts.kubeconfig("calico-cni-plugin", this.#forwarder.url);
  }

  static async create(isReady = true): Promise<Cluster> {
    for (const kind of ["ipamblocks", "blockaffinities", "ipamhandles", "ipamconfigs"])
      for (const item of await itemsOf(`${CALICO}/${kind}`))
        await api("DELETE", `${CALICO}/${kind}/${item.metadata.name}`);
    for (const pod of await itemsOf("/api/v1/pods"))
      await api(
        "DELETE",
        `/api/v1/namespaces/${pod.metadata.namespace}/pods/${pod.metadata.name}?gracePeriodSeconds=0`,
      );
    const info = (await api("GET", `${CALICO}/clusterinformations/default`)) as Json & { spec: object };
    await api("PUT", `${CALICO}/clusterinformations/default`, {
      ...info,
      spec: { ...info.spec, datastoreReady: isReady },
    });
    return new Cluster(await CniHost.create());
  }

  conf(more: Json = {}): Json {
    return {
      cniVersion: "1.0.0",
      name: "k8s-pod-network",
      datastore_type: "kubernetes",
      kubernetes: { kubeconfig: this.kubeconfig },
      policy: { type: "k8s" },
      ...more,
    };
  }
  async pod(
    name: string,
    annotations: Record<string, string> = {},
    more: { namespace?: string; spec?: object } = {},
  ): Promise<void> {
    const { namespace = "ns1", spec = {} } = more;
    const noted = Object.fromEntries(Object.entries(annotations).map(([k, v]) => [`cni.projectcalico.org/${k}`, v]));
    await create(
      `/api/v1/namespaces/${namespace}/pods`,
      "Pod",
      { name, annotations: noted, labels: { app: "a" } },
      {
        spec: { nodeName: "n1", serviceAccountName: "sa1", containers: [{ name: "c", image: "i" }], ...spec },
      },
    );
  }
  add(pod: Pod, name: string, conf: Json = {}, namespace = "ns1"): Promise<PluginRun> {
    return this.host.add(pod, { conf: this.conf(conf), ...k8s(namespace, name) });
  }
  del(pod: Pod, name: string, conf: Json = {}, namespace = "ns1"): Promise<PluginRun> {
    return this.host.del(pod, { conf: this.conf(conf), ...k8s(namespace, name) });
  }
  async annotations(name: string, namespace = "ns1"): Promise<Record<string, string>> {
    const pod = (await api("GET", `/api/v1/namespaces/${namespace}/pods/${name}`)) as {
      metadata: { annotations?: Record<string, string> };
    };
    return Object.fromEntries(
      Object.entries(pod.metadata.annotations ?? {}).map(([key, value]) => [
        key.replace("cni.projectcalico.org/", ""),
        value,
      ]),
    );
  }
  async handles(): Promise<string[]> {
    return (await itemsOf(`${CALICO}/ipamhandles`)).map((item) => item.metadata.name);
  }
  async [Symbol.asyncDispose](): Promise<void> {
    this.#forwarder[Symbol.dispose]();
    await this.host[Symbol.asyncDispose]();
  }
}
const ips = (run: PluginRun): string[] => ((run.json["ips"] ?? []) as { address: string }[]).map((ip) => ip.address);

suite("CI-032 CI-033 the pod's annotations contain its addresses and container; DEL empties only the addresses", async () => {
  await using cluster = await Cluster.create();
  await cluster.pod("p1");
  const pod = cluster.host.pod("cid1");
  const dual = { ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" } };
  expect(ips(await cluster.add(pod, "p1", dual))).toEqual(["10.65.0.128/32", "fd00:65::2880/128"]);
  expect(await cluster.annotations("p1")).toEqual({
    containerID: "cid1",
    podIP: "10.65.0.128/32",
    podIPs: "10.65.0.128/32,fd00:65::2880/128",
  });
  expect((await cluster.del(pod, "p1", dual)).code).toBe(0);
  expect(await cluster.annotations("p1")).toEqual({ containerID: "cid1", podIP: "", podIPs: "" });
  expect(await cluster.handles()).toEqual([]);
});

suite("CI-025 pools are selected by pod, by namespace or by name, and a missing pool is an error", async () => {
  await using cluster = await Cluster.create();
  await cluster.pod("named", { ipv4pools: '["other"]' });
  await cluster.pod("cidr", { ipv4pools: '["10.66.0.0/24"]' });
  await cluster.pod("missing", { ipv4pools: '["nope"]' });
  await cluster.pod("inherits", {}, { namespace: "ns2" });
  await cluster.pod("insists", { ipv4pools: '["p4"]' }, { namespace: "ns2" });
  const address = async (name: string, namespace = "ns1") =>
    ips(await cluster.add(cluster.host.pod(), name, {}, namespace))[0];
  expect(await address("named")).toStartWith("10.66.0.");
  expect(await address("cidr")).toStartWith("10.66.0.");
  expect(await address("inherits", "ns2")).toStartWith("10.66.0.");
  expect(await address("insists", "ns2")).toStartWith("10.65.0.");
  expect((await cluster.add(cluster.host.pod(), "missing")).json["msg"]).toContain('error parsing pool "nope"');
});

suite("CI-026 CI-027 CI-028 CI-030 IP families, fixed addresses and MAC are set by annotations", async () => {
  await using cluster = await Cluster.create();
  await cluster.pod("six", { ipFamilies: '["IPv6"]' });
  await cluster.pod("fixed", { ipAddrs: '["10.65.0.50"]' });
  await cluster.pod("again", { ipAddrs: '["10.65.0.50"]' });
  await cluster.pod("free", { ipAddrsNoIpam: '["10.99.0.9"]' });
  await cluster.pod("mac", { hwAddr: "0a:0b:0c:0d:0e:0f" });
  expect(ips(await cluster.add(cluster.host.pod(), "six"))).toEqual(["fd00:65::2880/128"]);
  const fixed = cluster.host.pod("fixed1");
  expect(ips(await cluster.add(fixed, "fixed"))).toEqual(["10.65.0.50/32"]);
  expect((await cluster.add(cluster.host.pod(), "again")).json["msg"]).toContain("resource already exists: 10.65.0.50");
  // The same pod gets its address again in a new container.
  expect(ips(await cluster.add(cluster.host.pod("fixed2"), "fixed"))).toEqual(["10.65.0.50/32"]);
  const before = await cluster.handles();
  expect((await cluster.add(cluster.host.pod(), "free")).json["msg"]).toBe(
    "requested feature is not enabled: ip_addrs_no_ipam",
  );
  const gate = { feature_control: { ip_addrs_no_ipam: true } };
  expect(ips(await cluster.add(cluster.host.pod(), "free", gate))).toEqual(["10.99.0.9/32"]);
  expect(await cluster.handles()).toEqual(before);
  const mac = cluster.host.pod();
  expect((await cluster.add(mac, "mac")).code).toBe(0);
  expect(mac.kernel.links.get("eth0")?.mac).toBe("0a:0b:0c:0d:0e:0f");
});

suite("CI-029 floating addresses need a feature gate; without it the pod's address is released", async () => {
  await using cluster = await Cluster.create();
  await cluster.pod("p1", { floatingIPs: '["1.2.3.4"]' });
  expect((await cluster.add(cluster.host.pod(), "p1")).json["msg"]).toBe(
    "requested feature is not enabled: floating_ips",
  );
  expect(await cluster.handles()).toEqual([]);
  expect((await cluster.add(cluster.host.pod(), "p1", { feature_control: { floating_ips: true } })).code).toBe(0);
});

suite("CI-034 host-local uses the node's pod CIDRs, and DEL works without them", async () => {
  await using cluster = await Cluster.create();
  await cluster.pod("p1");
  const ipam = {
    type: "host-local",
    dataDir: `${cluster.host.folder}/hl`,
    ranges: [[{ subnet: "usePodCidr" }], [{ subnet: "usePodCidrIPv6" }]],
  };
  const pod = cluster.host.pod();
  expect(ips(await cluster.add(pod, "p1", { ipam }))).toEqual(["10.244.1.2/32", "fd00:244:1::2/128"]);
  expect((await cluster.del(pod, "p1", { ipam })).code).toBe(0);
});

suite("CI-024 CI-043 ADD fails for a missing pod, and DEL does not; without policy.type the profile step fails", async () => {
  await using cluster = await Cluster.create();
  const pod = cluster.host.pod();
  expect((await cluster.add(pod, "absent")).json["msg"]).toContain('pods "absent" not found');
  expect((await cluster.del(pod, "absent")).code).toBe(0);
  await cluster.pod("p1");
  expect((await cluster.add(pod, "p1", { policy: {} })).code).toBe(1);
  expect([await cluster.handles(), cluster.host.workloadLinks(), await cluster.annotations("p1")]).toEqual([
    [],
    [],
    {},
  ]);
});

suite("CI-002 -t checks the API server too", async () => {
  await using cluster = await Cluster.create();
  const { collect, DIST } = await import("../functional/cni/cni-host.ts");
  const child = cluster.host.start(`${DIST}/calico`, ["-t"], {});
  const done = collect(child);
  child.stdin?.end(JSON.stringify(cluster.host.conf(cluster.conf())));
  expect(await done).toMatchObject({ code: 0, stdout: "" });
});

suite("CI-079 a token of the plugin's account from a real API server works", async () => {
  const { chooseDatastore, openKubeApi } = await import("../../src/datastore/index.ts");
  const { requestToken } = await import("../../src/cni/kubernetes/token-refresh.ts");
  const { silentLogger } = await import("../../src/lib/log/log.ts");
  const config = chooseDatastore(
    { datastoreType: "kubernetes", kubeconfig: accounts.kubeconfig("calico-node") },
    { env: {} },
  );
  if (config.type !== "kubernetes") throw new Error("wrong datastore");
  const own = await openKubeApi(config, {});
  try {
    const issued = await requestToken({}, silentLogger, own);
    expect(issued!.expiresAtMs - Date.now()).toBeGreaterThan(23 * 3_600_000);
    const review = await create(
      "/apis/authentication.k8s.io/v1/tokenreviews",
      "TokenReview",
      {},
      {
        apiVersion: "authentication.k8s.io/v1",
        spec: { token: issued!.token },
      },
    );
    expect(review["status"]).toMatchObject({
      authenticated: true,
      user: { username: "system:serviceaccount:kube-system:calico-cni-plugin" },
    });
    // calico-node's account may request only the plugin's tokens; for an administrator the account does not exist.
    const asked = { CALICO_CNI_SERVICE_ACCOUNT: "nobody" };
    expect(await requestToken(asked, silentLogger, own).catch((error: Error) => error.message)).toContain("forbidden");
    expect(await requestToken(asked, silentLogger, kube.api)).toBeUndefined();
  } finally {
    own.close();
  }
});

// --- recordings -------------------------------------------------------------------------------------------------
interface Recorded {
  readonly ready: boolean;
  readonly pods: readonly {
    metadata: { name: string; namespace: string; annotations?: Record<string, string> };
    serviceAccountName?: string;
  }[];
  readonly steps: readonly {
    readonly command?: string;
    readonly env: Record<string, string>;
    readonly stdin: Json;
    readonly exitCode: number;
    readonly stdout: unknown;
    readonly after?: { readonly objects?: Record<string, Json>; readonly removed?: readonly string[] };
  }[];
}
if (!existsSync(recordings)) console.log("there are no recordings next to this checkout: nothing is replayed");
else
  for (const file of readdirSync(recordings).filter((name) => name.endsWith(".json") && name !== "test-flag.json"))
    suite(`recorded: ${file.replace(".json", "")}`, async () => {
      const name = file.replace(".json", "");
      const score = new Score("kubernetes-cni");
      const recorded = JSON.parse(readFileSync(join(recordings, file), "utf8")) as Recorded;
      await using cluster = await Cluster.create(recorded.ready);
      for (const { metadata, serviceAccountName } of recorded.pods) {
        const annotations = withoutPrefix(metadata.annotations ?? {});
        await cluster.pod(metadata.name, annotations, { namespace: metadata.namespace, spec: { serviceAccountName } });
      }
      const pods = new Map<string, Pod>();
      for (const [i, step] of recorded.steps.entries()) {
        const id = step.env["CNI_CONTAINERID"]!;
        const pod = pods.get(id) ?? cluster.host.pod(id);
        pods.set(id, pod);
        const { kubernetes: _, nodename: __, ...rest } = step.stdin;
        const ipam = rest["ipam"] as Json;
        const conf = {
          ...rest,
          kubernetes: { kubeconfig: cluster.kubeconfig },
          ipam: { ...ipam, ...("dataDir" in ipam ? { dataDir: `${cluster.host.folder}/hl` } : {}) },
        };
        const run = await cluster.host.call(step.env["CNI_COMMAND"]!, pod, {
          conf,
          env: { CNI_ARGS: step.env["CNI_ARGS"] },
        });
        const where = `${name} step ${i + 1}`;
        score.same(`${where} exit code`, [step.exitCode], run.code);
        if (step.exitCode !== 0) score.same(`${where} error code`, [(step.stdout as Json)["code"]], run.json["code"]);
        else score.same(`${where} result`, [step.stdout], step.stdout === "" ? run.stdout : run.json);
        for (const [place, object] of Object.entries(step.after?.objects ?? {})) {
          const [kind = "", namespace = "", podName = ""] = place.split("/");
          if (kind === "ipamconfigs") continue; // created by the first request
          const [want, got] =
            kind === "pods"
              ? [withoutPrefix(object["annotations"] as Annotations), await cluster.annotations(podName, namespace)]
              : [comparable(object["spec"]), comparable((await api("GET", `${CALICO}/${place}`))["spec"])];
          score.same(`${where} ${place}`, [want], got);
        }
        for (const place of step.after?.removed ?? [])
          score.same(`${where} ${place} is gone`, [404], (await api("GET", `${CALICO}/${place}`))["code"]);
      }
      score.finish();
    });

type Annotations = Readonly<Record<string, string>>;
const withoutPrefix = (annotations: Annotations): Annotations =>
  Object.fromEntries(Object.entries(annotations).map(([k, v]) => [k.replace("cni.projectcalico.org/", ""), v]));

/** Replaces values that differ in each run, and removes what newer releases of Calico write in addition. */
function comparable(spec: unknown): unknown {
  if (spec === undefined) return undefined;
  const {
    sequenceNumber: _,
    sequenceNumberForAllocation: __,
    affinityClaimTime: ___,
    type: ____,
    attributes,
    ...rest
  } = spec as Json;
  if (!Array.isArray(attributes)) return rest;
  return {
    ...rest,
    attributes: attributes.map(({ handle_id, secondary }: Json) => ({
      handle_id,
      secondary: { ...(secondary as Json), timestamp: "" },
    })),
  };
}
