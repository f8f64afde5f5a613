// Tests each controller on a real API server and a real etcd, including cases that Calico handles wrongly.
import { afterAll, beforeAll, beforeEach, describe, expect } from "bun:test";
import { Client, type Datastore, openDatastore } from "../../src/datastore/index.ts";
import type { KubeObject } from "../../src/datastore/kubernetes/api-client.ts";
import { Ipam } from "../../src/ipam/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import type { KindName, Resource } from "../../src/model/index.ts";
import { EtcdServer } from "../support/etcd-server.ts";
import { freePort } from "../support/free-port.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";
import { ControllersRun, EtcdKeys } from "./controllers-run.ts";

const WITHIN = 20_000;
const TIMEOUT = 120_000;
const RESOURCES = "/calico/resources/v3/projectcalico.org";

let cluster: Cluster;
let etcd: EtcdServer;
let keys: EtcdKeys;
let store: Datastore;
let client: Client;
beforeAll(async () => {
  if (!isAvailable) return;
  cluster = await startCluster({ namespaces: ["ns1", "calico-system"] });
  etcd = await EtcdServer.start();
  keys = new EtcdKeys(etcd);
  store = await openDatastore(etcd.config);
  client = new Client(store);
}, 600_000);
afterAll(async () => {
  await store?.close();
  await etcd?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});
beforeEach(async () => {
  if (isAvailable) await keys.clear();
});

const environment = (env: Record<string, string> = {}) => ({
  DATASTORE_TYPE: "etcdv3",
  ETCD_ENDPOINTS: etcd.url,
  KUBECONFIG: cluster.server.kubeconfig,
  RECONCILER_PERIOD: "300ms",
  ...env,
});
const onlyThese = (controllers: string) => environment({ ENABLED_CONTROLLERS: controllers });
const resource = (kind: KindName, name: string, spec: object, metadata: object = {}): Resource =>
  ({ apiVersion: "projectcalico.org/v3", kind, metadata: { name, ...metadata }, spec }) as Resource;
const put = (kind: KindName, name: string, spec: object, metadata: object = {}): Promise<unknown> =>
  client.apply(resource(kind, name, spec, metadata));
const find = async (kind: KindName, name: string, namespace?: string): Promise<Resource | undefined> =>
  (await client.list({ kind, name, namespace })).items[0];
const there = (kind: KindName, name: string, namespace?: string) => async () =>
  (await find(kind, name, namespace)) !== undefined;
const gone = (kind: KindName, name: string, namespace?: string) => async () =>
  (await find(kind, name, namespace)) === undefined;
const patch = (path: string, body: object): Promise<unknown> =>
  cluster.api.json({ method: "PATCH", path, body, contentType: "application/merge-patch+json" });
const finalize = async (name: string): Promise<void> => {
  const path = `/api/v1/namespaces/${name}`;
  await cluster.delete(path);
  const object = await cluster.api.get<KubeObject>(path);
  await cluster.api.json({ method: "PUT", path: `${path}/finalize`, body: { ...object, spec: { finalizers: [] } } });
};
const kubeNode = (name: string, labels: Record<string, string> = {}, annotations: Record<string, string> = {}) =>
  cluster.put("/api/v1/nodes", { metadata: { name, labels, annotations } });
const calicoNode = (name: string, metadata: object = {}, spec: object = {}) =>
  put("Node", name, { orchRefs: [{ orchestrator: "k8s", nodeName: name }], ...spec }, metadata);

describe("copies", () => {
  const POLICIES = "/apis/networking.k8s.io/v1/namespaces/ns1/networkpolicies";
  const policy = (name: string, port: number) =>
    cluster.put(POLICIES, {
      metadata: { name },
      spec: { podSelector: { matchLabels: { app: "web" } }, ingress: [{ ports: [{ port, protocol: "TCP" }] }] },
    });

  suite(
    "TC-K08 TC-K12 network policies are copied, repaired, and deleted with the originals",
    async () => {
      await put("NetworkPolicy", "by-hand", { selector: "all()" }, { namespace: "ns1" });
      await put("NetworkPolicy", "knp.default.surplus", { selector: "all()" }, { namespace: "ns1" });
      await policy("web", 80);
      await using _program = new ControllersRun(onlyThese("policy"));
      const name = "knp.default.web";
      await eventually(there("NetworkPolicy", name, "ns1"), WITHIN);
      expect((await find("NetworkPolicy", name, "ns1"))?.spec).toMatchObject({
        selector: "projectcalico.org/orchestrator == 'k8s' && app == 'web'",
        ingress: [{ action: "Allow", protocol: "TCP", destination: { ports: [80] } }],
        types: ["Ingress"],
      });
      await eventually(gone("NetworkPolicy", "knp.default.surplus", "ns1"), WITHIN);
      await policy("web", 81);
      const ports = async () => JSON.stringify((await find("NetworkPolicy", name, "ns1"))?.spec);
      await eventually(async () => (await ports()).includes("81"), WITHIN);
      // A copy is changed, and another deleted, without the controller. A user's additions to a copy are kept.
      const copy = await client.get({ kind: "NetworkPolicy", name, namespace: "ns1" });
      await client.update({
        ...copy,
        metadata: { ...copy.metadata, annotations: { note: "mine" } },
        spec: { ...copy.spec, selector: "all()" },
      });
      await eventually(async () => (await ports()).includes("app == 'web'"), WITHIN);
      expect((await find("NetworkPolicy", name, "ns1"))?.metadata.annotations).toEqual({ note: "mine" });
      await client.delete({ kind: "NetworkPolicy", name, namespace: "ns1" });
      await eventually(there("NetworkPolicy", name, "ns1"), WITHIN);
      await cluster.delete(`${POLICIES}/web`);
      await eventually(gone("NetworkPolicy", name, "ns1"), WITHIN);
      expect(await find("NetworkPolicy", "by-hand", "ns1")).toBeDefined();
    },
    TIMEOUT,
  );

  suite(
    "TC-K09 namespaces become profiles, and changes of a terminating namespace are ignored",
    async () => {
      await put("Profile", "kns.surplus", {});
      await put("Profile", "by-hand", {});
      await cluster.put("/api/v1/namespaces", { metadata: { name: "team", labels: { color: "red" } } });
      await using _program = new ControllersRun(onlyThese("profile"));
      await eventually(there("Profile", "kns.team"), WITHIN);
      const labels = async () =>
        ((await find("Profile", "kns.team"))?.spec as { labelsToApply?: Record<string, string> } | undefined)
          ?.labelsToApply;
      expect(await labels()).toMatchObject({ "pcns.color": "red", "pcns.projectcalico.org/name": "team" });
      await patch("/api/v1/namespaces/team", { metadata: { labels: { color: "blue" } } });
      await eventually(async () => (await labels())?.["pcns.color"] === "blue", WITHIN);
      await eventually(gone("Profile", "kns.surplus"), WITHIN);
      await cluster.delete("/api/v1/namespaces/team"); // it stays Terminating, because no namespace controller runs here
      await patch("/api/v1/namespaces/team", { metadata: { labels: { color: "green" } } });
      await Bun.sleep(700);
      expect((await labels())?.["pcns.color"]).toBe("blue");
      await finalize("team");
      await eventually(gone("Profile", "kns.team"), WITHIN);
      expect(await find("Profile", "by-hand")).toBeDefined();
    },
    TIMEOUT,
  );

  suite(
    "TC-K10 service accounts become profiles",
    async () => {
      const path = "/api/v1/namespaces/ns1/serviceaccounts";
      await cluster.put(path, { metadata: { name: "robot", labels: { job: "build" } } });
      await using _program = new ControllersRun(onlyThese("serviceaccount"));
      await eventually(there("Profile", "ksa.ns1.robot"), WITHIN);
      expect((await find("Profile", "ksa.ns1.robot"))?.spec).toEqual({
        labelsToApply: { "pcsa.job": "build", "pcsa.projectcalico.org/name": "robot" },
      } as never);
      await cluster.delete(`${path}/robot`);
      await eventually(gone("Profile", "ksa.ns1.robot"), WITHIN);
    },
    TIMEOUT,
  );

  suite(
    "TC-K08 TC-K10 policies and service accounts with long names are copied too",
    async () => {
      const long = (letter: string, length: number) => letter.repeat(length);
      const path = "/api/v1/namespaces/ns1/serviceaccounts";
      await cluster.put(path, { metadata: { name: long("s", 200) } });
      await policy(`${long("p", 252)}a`, 80);
      await policy(`${long("p", 252)}b`, 80);
      await using _program = new ControllersRun(onlyThese("policy,serviceaccount"));
      await eventually(there("Profile", `ksa.ns1.${long("s", 200)}`), WITHIN);
      const copies = async () => (await client.list({ kind: "NetworkPolicy" })).items;
      await eventually(async () => (await copies()).length === 2, WITHIN);
      await Bun.sleep(700); // the reconciler must not delete the copies
      expect((await copies()).map(({ metadata }) => metadata.name.length)).toEqual([253, 253]);
      for (const last of ["a", "b"]) await cluster.delete(`${POLICIES}/${long("p", 252)}${last}`);
      await cluster.delete(`${path}/${long("s", 200)}`);
      await eventually(async () => (await copies()).length === 0, WITHIN);
    },
    TIMEOUT,
  );

  suite(
    "TC-K11 a pod's labels and service account are copied to its endpoint, which is neither created nor deleted",
    async () => {
      const pods = "/api/v1/namespaces/ns1/pods";
      const pod = (name: string) =>
        cluster.apply({
          kind: "Pod",
          metadata: { name, namespace: "ns1", labels: { app: "one" } },
          spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }], serviceAccountName: "default" },
          status: { phase: "Running", podIP: "10.65.0.1", podIPs: [{ ip: "10.65.0.1" }] },
        } as never);
      const name = "n1-k8s-web-eth0";
      await put(
        "WorkloadEndpoint",
        name,
        {
          node: "n1",
          orchestrator: "k8s",
          pod: "web",
          endpoint: "eth0",
          containerID: "c1",
          interfaceName: "cali1",
          ipNetworks: ["10.65.0.1/32"],
          profiles: ["kns.ns1"],
        },
        { namespace: "ns1", labels: { stale: "yes" } },
      );
      await pod("web");
      await pod("bare");
      await using _program = new ControllersRun(onlyThese("workloadendpoint"));
      const now = () => find("WorkloadEndpoint", name, "ns1");
      await eventually(async () => (await now())?.metadata.labels?.["app"] === "one", WITHIN);
      expect((await now())?.metadata.labels?.["stale"]).toBeUndefined();
      await patch(`${pods}/web`, { metadata: { labels: { app: "two" } } });
      await eventually(async () => (await now())?.metadata.labels?.["app"] === "two", WITHIN);
      expect((await now())?.spec).toMatchObject({ containerID: "c1", serviceAccountName: "default" });
      await cluster.delete(`${pods}/web`);
      await cluster.delete(`${pods}/bare`);
      await Bun.sleep(700);
      expect((await client.list({ kind: "WorkloadEndpoint" })).items.map(({ metadata }) => metadata.name)).toEqual([
        name,
      ]);
    },
    TIMEOUT,
  );
});

suite(
  "TC-K13 etcd is compacted once per period",
  async () => {
    await using _program = new ControllersRun({ ...onlyThese("policy"), COMPACTION_PERIOD: "300ms" });
    await put("GlobalNetworkSet", "churn", { nets: ["10.0.0.0/24"] });
    const before = (await store.list({ type: "resource", kind: "GlobalNetworkSet" })).revision;
    const isForgotten = () => {
      try {
        etcd.etcdctl("get", "/calico", "--prefix", "--limit=1", `--rev=${Number(before) - 1}`);
        return false;
      } catch (error) {
        return String(error).includes("compacted");
      }
    };
    for (let i = 0; i < 200 && !isForgotten(); i++) {
      await put("GlobalNetworkSet", "churn", { nets: [`10.0.${i}.0/24`] });
      await Bun.sleep(50);
    }
    expect(isForgotten()).toBe(true);
    expect(await find("GlobalNetworkSet", "churn")).toBeDefined();
  },
  TIMEOUT,
);

suite(
  "TC-K06 the start waits for a datastore that does not answer, for a limited time",
  async () => {
    const nobody = { ETCD_ENDPOINTS: `http://127.0.0.1:${await freePort()}` };
    await using program = new ControllersRun({ ...onlyThese("node"), ...nobody }, { timings: { startupMs: 700 } });
    await program.ended();
    expect(String(program.failure)).toContain("the datastore cannot be initialised");
  },
  TIMEOUT,
);

describe("nodes", () => {
  suite(
    "TC-K14 a deleted node's data is deleted, even with an empty IPAM host key; other nodes' data is kept",
    async () => {
      for (const name of ["n1", "n2"]) await kubeNode(name);
      await calicoNode("n1");
      await calicoNode("n2");
      await put("Node", "plain", {});
      await put("Node", "other", { orchRefs: [{ orchestrator: "openstack", nodeName: "other" }] });
      await put("IPPool", "p4", { cidr: "10.65.0.0/16", blockSize: 28 });
      await put("HostEndpoint", "h1", { node: "n1", interfaceName: "eth0" });
      await put("BGPPeer", "b1", { node: "n1", peerIP: "192.0.2.1", asNumber: 64512 });
      await put("FelixConfiguration", "node.n1", {});
      await put("BGPConfiguration", "node.n1", {});
      const endpoint = { node: "n1", orchestrator: "k8s", pod: "web", endpoint: "eth0", interfaceName: "cali1" };
      const ipNetworks = ["10.65.9.1/32"];
      await put("WorkloadEndpoint", "n1-k8s-web-eth0", { ...endpoint, ipNetworks }, { namespace: "ns1" });
      const ipam = new Ipam({ datastore: store });
      for (const host of ["n1", "n2"])
        await ipam.autoAssign({
          version: 4,
          count: 1,
          host,
          use: "Tunnel",
          handleId: `vxlan-tunnel-addr-${host}`,
          attributes: { node: host, type: "vxlanTunnelAddress" },
        });
      await keys.put("/calico/ipam/v2/host/n1", ""); // its writer was killed
      await using _program = new ControllersRun(onlyThese("node"));
      await eventually(there("KubeControllersConfiguration", "default"), WITHIN);
      await cluster.delete("/api/v1/nodes/n1");
      await eventually(gone("Node", "n1"), WITHIN);
      const left = async () => Object.keys(await keys.snapshot()).filter((key) => /n1|\/h1|\/b1/.test(key));
      await eventually(async () => (await left()).length === 0, WITHIN);
      for (const name of ["n2", "plain", "other"]) expect(await find("Node", name)).toBeDefined();
      expect(await ipam.addressesOfHandle("vxlan-tunnel-addr-n2")).toHaveLength(1);
      await cluster.delete("/api/v1/nodes/n2");
      await eventually(gone("Node", "n2"), WITHIN);
    },
    TIMEOUT,
  );

  suite(
    "TC-K15 labels are copied from Kubernetes, and a user's label is restored when that of Kubernetes is removed",
    async () => {
      await kubeNode("n1", { zone: "a" });
      await calicoNode("n1", { labels: { zone: "mine", own: "1" } });
      await using _program = new ControllersRun(onlyThese("node"));
      const labels = async () => (await find("Node", "n1"))?.metadata.labels;
      await eventually(async () => (await labels())?.["zone"] === "a", WITHIN);
      await patch("/api/v1/nodes/n1", { metadata: { labels: { zone: "b", disk: "ssd" } } });
      await eventually(async () => (await labels())?.["disk"] === "ssd", WITHIN);
      expect(await labels()).toEqual({ zone: "b", disk: "ssd", own: "1" });
      await patch("/api/v1/nodes/n1", { metadata: { labels: { zone: null, disk: null } } });
      await eventually(async () => (await labels())?.["zone"] === "mine", WITHIN);
      expect(await labels()).toEqual({ zone: "mine", own: "1" });
      await cluster.delete("/api/v1/nodes/n1");
    },
    TIMEOUT,
  );

  suite(
    "TC-K25 TC-K26 host endpoints are created, repaired, and deleted when they are disabled",
    async () => {
      const LABEL = "projectcalico.org/created-by";
      await kubeNode("n1");
      await calicoNode("n1", {}, { bgp: { ipv4Address: "10.0.0.1/24" } });
      await put("Node", "bare", { bgp: { ipv4Address: "10.0.0.2/24" } }); // without a Kubernetes node
      await put("HostEndpoint", "by-hand", { node: "n1", interfaceName: "eth9" });
      const configuration = (autoCreate: string, templates: object[] = []) =>
        put("KubeControllersConfiguration", "default", {
          controllers: { node: { hostEndpoint: { autoCreate, templates } } },
        });
      await configuration("Enabled");
      await using program = new ControllersRun(environment());
      await eventually(there("HostEndpoint", "n1-auto-hep"), WITHIN);
      await eventually(there("HostEndpoint", "bare-auto-hep"), WITHIN);
      const endpoint = await client.get({ kind: "HostEndpoint", name: "n1-auto-hep" });
      expect(endpoint.spec).toMatchObject({ interfaceName: "*", expectedIPs: ["10.0.0.1"] });
      await client.update({ ...endpoint, spec: { ...endpoint.spec, expectedIPs: [] } });
      await eventually(
        async () => JSON.stringify((await find("HostEndpoint", "n1-auto-hep"))?.spec).includes("10.0.0.1"),
        WITHIN,
      );
      await configuration("Enabled", [
        { generateName: "lan", interfaceCIDRs: ["10.0.0.0/31"], nodeSelector: "all()", labels: { net: "lan" } },
      ]);
      await eventually(there("HostEndpoint", "n1-lan-auto-hep"), WITHIN);
      expect((await find("HostEndpoint", "n1-lan-auto-hep"))?.metadata.labels).toMatchObject({ net: "lan" });
      expect(await find("HostEndpoint", "bare-lan-auto-hep")).toBeUndefined(); // none of its addresses is in the CIDR
      await configuration("Disabled");
      await eventually(
        async () =>
          (await client.list({ kind: "HostEndpoint" })).items.every(({ metadata }) => !metadata.labels?.[LABEL]),
        WITHIN,
      );
      expect(await find("HostEndpoint", "by-hand")).toBeDefined();
      expect(program.restarts).toBeGreaterThanOrEqual(2);
      await cluster.delete("/api/v1/nodes/n1");
    },
    TIMEOUT,
  );

  suite(
    "TC-K29 waiting for the rollout of calico-node does not block other controllers; then policies are renamed",
    async () => {
      // Stored as by an older release, with the tier before the name.
      const legacy = `${RESOURCES}/globalnetworkpolicies/default.allow-dns`;
      await keys.put(
        legacy,
        JSON.stringify({
          kind: "GlobalNetworkPolicy",
          apiVersion: "projectcalico.org/v3",
          metadata: { name: "allow-dns", uid: "2f5c0b5e-0000-4000-8000-000000000001", creationTimestamp: null },
          spec: { tier: "default", selector: "all()", types: ["Ingress"] },
        }),
      );
      await kubeNode("n1", { zone: "a" });
      await calicoNode("n1");
      await using _program = new ControllersRun({ ...onlyThese("node"), AUTO_HOST_ENDPOINTS: "enabled" });
      await eventually(async () => (await find("Node", "n1"))?.metadata.labels?.["zone"] === "a", WITHIN);
      await eventually(there("HostEndpoint", "n1-auto-hep"), WITHIN);
      expect(Object.keys(await keys.snapshot())).toContain(legacy);
      const sets = "/apis/apps/v1/namespaces/calico-system/daemonsets";
      const labels = { app: "calico-node" };
      const made = await cluster.put<KubeObject>(sets, {
        metadata: { name: "calico-node" },
        spec: {
          selector: { matchLabels: labels },
          template: { metadata: { labels }, spec: { containers: [{ name: "c", image: "i" }] } },
        },
      });
      const status = {
        observedGeneration: 1,
        desiredNumberScheduled: 1,
        currentNumberScheduled: 1,
        updatedNumberScheduled: 1,
        numberMisscheduled: 0,
        numberReady: 1,
        numberAvailable: 1,
      };
      await cluster.api.json({ method: "PUT", path: `${sets}/calico-node/status`, body: { ...made, status } });
      await eventually(async () => !Object.keys(await keys.snapshot()).includes(legacy), WITHIN);
      expect(Object.keys(await keys.snapshot())).toContain(`${RESOURCES}/globalnetworkpolicies/allow-dns`);
      expect((await find("GlobalNetworkPolicy", "allow-dns"))?.spec).toMatchObject({ selector: "all()" });
      await cluster.delete(`${sets}/calico-node`);
      await cluster.delete("/api/v1/nodes/n1");
    },
    TIMEOUT,
  );
});

describe("in the Kubernetes datastore", () => {
  suite(
    "two CIDRs of one interface in a node's annotation work with readers, host endpoints and calicoctl",
    async () => {
      await cluster.clear();
      const interfaces = JSON.stringify([{ name: "eth0", addresses: ["10.0.0.5/24", "fd00::5/64"] }]);
      const annotations = {
        "projectcalico.org/Interfaces": interfaces,
        "projectcalico.org/IPv4Address": "10.0.0.5/24",
      };
      await kubeNode("two", {}, annotations);
      await kubeNode("fine", {}, { "projectcalico.org/IPv4Address": "10.0.0.6/24" });
      await using _program = new ControllersRun({
        DATASTORE_TYPE: "kubernetes",
        KUBECONFIG: cluster.server.kubeconfig,
        ENABLED_CONTROLLERS: "node",
        AUTO_HOST_ENDPOINTS: "enabled",
      });
      const path = "/apis/crd.projectcalico.org/v1/hostendpoints";
      const names = async () => (await cluster.api.list(path)).items.map(({ metadata }) => metadata.name).sort();
      await eventually(async () => (await names()).join() === "fine-auto-hep,two-auto-hep", WITHIN);
      const shown = await cluster.calicoctl(["get", "node", "two", "-o", "json"]);
      expect(shown.exitCode).toBe(0);
      expect(JSON.parse(shown.stdout)).toMatchObject({ spec: { interfaces: [{ name: "eth0" }] } });
      for (const name of ["two", "fine"]) await cluster.delete(`/api/v1/nodes/${name}`);
    },
    TIMEOUT,
  );

  suite(
    "TC-K16 an affinity without labels of a deleted node is found and deleted",
    async () => {
      await cluster.clear();
      const path = "/apis/crd.projectcalico.org/v1/blockaffinities";
      await kubeNode("n1");
      const affinity = (node: string, cidr: string) =>
        cluster.put(path, {
          apiVersion: "crd.projectcalico.org/v1",
          kind: "BlockAffinity",
          metadata: { name: `${node}-${cidr.replaceAll(/[./]/g, "-")}` },
          spec: { state: "confirmed", node, cidr, deleted: "false" },
        });
      await affinity("ghost", "10.65.3.0/28");
      await affinity("n1", "10.65.4.0/28");
      await using _program = new ControllersRun({
        DATASTORE_TYPE: "kubernetes",
        KUBECONFIG: cluster.server.kubeconfig,
        ENABLED_CONTROLLERS: "node",
      });
      const names = async () => (await cluster.api.list(path)).items.map(({ metadata }) => metadata.name);
      await eventually(async () => (await names()).join() === "n1-10-65-4-0-28", WITHIN);
      await cluster.delete("/api/v1/nodes/n1");
    },
    TIMEOUT,
  );

  suite(
    "calicoctl reports an error for a label that Kubernetes owns",
    async () => {
      await kubeNode("n1", { rack: "r1" });
      for (const args of [
        ["label", "node", "n1", "rack=r2", "--overwrite"],
        ["label", "node", "n1", "rack", "--remove"],
      ]) {
        const answer = await cluster.calicoctl(args);
        expect(answer.exitCode).toBe(1);
        expect(answer.stderr + answer.stdout).toContain("label rack of node n1 is a label of the Kubernetes node");
      }
      expect((await cluster.calicoctl(["label", "node", "n1", "mine=1"])).exitCode).toBe(0);
      expect((await cluster.api.get<KubeObject>("/api/v1/nodes/n1")).metadata.labels?.["rack"]).toBe("r1");
      await cluster.delete("/api/v1/nodes/n1");
    },
    TIMEOUT,
  );
});
