// Tests that the author of a pod cannot take or release another pod's address or interface, with the real plugin on a real
// API server: in the plugin's own process and through the node's CNI service.
import { afterAll, beforeAll, expect } from "bun:test";
import { type Datastore, type KubeObject, openDatastore } from "../../src/datastore/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { workloadEndpointName } from "../../src/model/index.ts";
import { podInterfaceName } from "../../src/model/kubernetes/pod.ts";
import { canRun, interfaceOf, k8s, type Pod, type PluginRun } from "../functional/cni/cni-host.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";
import { FelixPipeline } from "./felix-pipeline.ts";
import { ServedHost } from "./served-host.ts";

const NETWORK = "k8s-pod-network";
const PREFIX = "cni.projectcalico.org";
const CALICO = "/apis/crd.projectcalico.org/v1";

let cluster: Cluster;
let served: ServedHost;
let store: Datastore;
beforeAll(async () => {
  if (!isAvailable || !canRun) return;
  // A namespace may have the network's name: then `namespace.pod` can equal another container's handle.
  cluster = await startCluster({ namespaces: ["ns1", "prod", "evil", NETWORK] });
  served = await ServedHost.on(cluster);
  store = await openDatastore(cluster.config);
}, 600_000);
afterAll(async () => {
  await store?.close();
  await served?.[Symbol.asyncDispose]();
  await cluster?.[Symbol.asyncDispose]();
});

interface Block extends KubeObject {
  readonly spec: {
    readonly allocations: readonly (number | null)[];
    readonly attributes: readonly { readonly handle_id?: string; readonly secondary?: Record<string, string> }[];
  };
}

/** The owner of every allocated address, by handle. */
async function owners(): Promise<Readonly<Record<string, string>>> {
  const { items } = await cluster.api.list(`${CALICO}/ipamblocks`);
  const held = (items as Block[]).flatMap(({ spec }) =>
    spec.allocations.flatMap((index) => (index === null ? [] : (spec.attributes[index] ?? {}))),
  );
  return Object.fromEntries(
    held.map(({ handle_id, secondary }) => [String(handle_id), `${secondary?.["namespace"]}/${secondary?.["pod"]}`]),
  );
}

class Tenancy {
  readonly #made: { readonly pod: Pod; readonly namespace: string; readonly name: string }[] = [];
  /** @param conf the plugin's configuration: with or without the socket of the service */
  constructor(readonly conf: Readonly<Record<string, unknown>>) {}

  async create(namespace: string, name: string, annotations: Readonly<Record<string, string>> = {}): Promise<void> {
    const prefixed = Object.fromEntries(Object.entries(annotations).map(([key, value]) => [`${PREFIX}/${key}`, value]));
    await cluster.put(`/api/v1/namespaces/${namespace}/pods`, {
      metadata: { name, annotations: prefixed },
      spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
    });
  }
  async add(namespace: string, name: string, containerId: string): Promise<PluginRun> {
    const pod = served.host.pod(containerId);
    this.#made.push({ pod, namespace, name });
    return served.host.add(pod, { conf: this.conf, ...k8s(namespace, name) });
  }
  del(containerId: string): Promise<PluginRun> {
    return this.call("DEL", containerId);
  }
  call(command: "CHECK" | "DEL", containerId: string): Promise<PluginRun> {
    const found = this.#made.find(({ pod }) => pod.containerId === containerId);
    if (found === undefined) throw new Error(`no container ${containerId}`);
    return served.host.call(command, found.pod, { conf: this.conf, ...k8s(found.namespace, found.name) });
  }
  gc(attachments: readonly object[]): Promise<PluginRun> {
    const conf = { ...this.conf, cniVersion: "1.1.0", "cni.dev/valid-attachments": attachments };
    return served.host.call("GC", undefined, { conf });
  }
  /** A victim's address: `prod/NAME` starts in a container of its own. */
  async victim(name: string, containerId: string): Promise<string> {
    await this.create("prod", name);
    return addressOf(await this.add("prod", name, containerId));
  }
  async [Symbol.asyncDispose](): Promise<void> {
    for (const { pod, namespace, name } of this.#made) {
      await served.host.del(pod, { conf: this.conf, ...k8s(namespace, name) });
      await cluster.delete(`/api/v1/namespaces/${namespace}/pods/${name}`);
    }
  }
}

function endpointKey(pod: string, namespace: string) {
  const name = workloadEndpointName({ node: "n1", orchestrator: "k8s", pod, endpoint: "eth0" });
  return { type: "resource", kind: "WorkloadEndpoint", namespace, name } as const;
}

async function endpointOf(pod: string, namespace = "evil"): Promise<unknown> {
  return (await store.get(endpointKey(pod, namespace))).value.spec;
}

async function conditionOf(namespace: string, pod: string): Promise<unknown> {
  const { status } = await cluster.api.get<KubeObject & { readonly status: { readonly conditions: object[] } }>(
    `/api/v1/namespaces/${namespace}/pods/${pod}`,
  );
  return status.conditions.find((each) => "type" in each && each.type === `${PREFIX}/AddressesAssigned`);
}

function addressOf(run: PluginRun): string {
  const [ip] = (run.json["ips"] ?? []) as { address: string }[];
  if (ip === undefined) throw new Error(`no address: ${run.stdout}${run.stderr}`);
  return ip.address.replace(/\/.*/, "");
}

for (const where of ["the plugin", "the service"] as const) {
  const open = () => {
    const { service_socket: _, ...own } = served.conf;
    return new Tenancy(where === "the service" ? served.conf : own);
  };
  const id = (name: string) => `${name}${where === "the service" ? "s" : "p"}`;

  for (const isLocal of [true, false])
    suite(`${where}: annotations with an address of a pod on ${isLocal ? "the same" : "another"} node do not release it`, async () => {
      if (!canRun) return;
      await using pods = open();
      const address = await pods.victim("db-0", id("victim"));
      // A victim on another node has no interface here.
      if (!isLocal) served.host.kernel.links.delete(podInterfaceName("prod", "db-0"));
      const claim = { podIP: `${address}/32`, podIPs: `${address}/32`, ipAddrs: JSON.stringify([address]) };
      await pods.create("evil", "thief", claim);
      const stolen = await pods.add("evil", "thief", id("thief"));
      expect({ code: stolen.code, msg: String(stolen.json["msg"]) }).toEqual({
        code: 1,
        msg: expect.stringContaining(`resource already exists: ${address}`),
      });
      expect(await owners()).toEqual({ [`${NETWORK}.${id("victim")}`]: "prod/db-0" });
    }, 60_000);

  suite(`${where}: DEL of a pod whose namespace and name form another container's handle releases only its own address`, async () => {
    if (!canRun) return;
    await using pods = open();
    await pods.victim("db-0", id("victim"));
    await pods.create(NETWORK, id("victim"));
    expect((await pods.add(NETWORK, id("victim"), id("other"))).code).toBe(0);
    expect((await pods.del(id("other"))).code).toBe(0);
    expect(await owners()).toEqual({ [`${NETWORK}.${id("victim")}`]: "prod/db-0" });
  }, 60_000);

  suite(`${where}: a virt-launcher pod that names another pod's container does not release its address`, async () => {
    if (!canRun) return;
    await using pods = open();
    const address = await pods.victim("db-0", id("victim"));
    await pods.create("evil", "virt-launcher-thief", { containerID: id("victim"), ipAddrs: JSON.stringify([address]) });
    expect(await pods.add("evil", "virt-launcher-thief", id("thief"))).toMatchObject({ code: 1 });
    expect(await owners()).toEqual({ [`${NETWORK}.${id("victim")}`]: "prod/db-0" });
  }, 60_000);

  suite(`${where}: a pod whose name gives it another pod's interface gets another one while that pod exists`, async () => {
    if (!canRun) return;
    await using pods = open();
    await pods.create("prod", "db-0");
    await pods.create("evil", "thief");
    // A name with the same 44 bits of SHA-1 takes long to compute; an interface of the thief's name with the victim's
    // alias is the same to the plugin.
    const name = podInterfaceName("evil", "thief");
    const alias = `calico ${NETWORK} ${id("victim")} prod/db-0`;
    const { links } = served.host.kernel;
    links.create({ name, alias, up: true, type: { kind: "veth", peer: { name: "victim0" } } });
    const before = links.get(name);
    const other = interfaceOf(await pods.add("evil", "thief", id("thief")));
    expect(other).toMatch(/^cali[0-9a-f]{11}$/);
    expect(links.get(name)).toEqual(before);
    expect(links.get(other)?.alias).toBe(`calico ${NETWORK} ${id("thief")} evil/thief`);
    expect(await endpointOf("thief")).toMatchObject({ interfaceName: other });
    expect((await pods.del(id("thief"))).code).toBe(0);
    expect(await endpointOf("thief")).toMatchObject({ interfaceName: name });
    expect({ link: links.get(name), other: links.get(other), owners: await owners() }).toEqual({
      link: before,
      other: undefined,
      owners: {},
    });
    await cluster.delete("/api/v1/namespaces/prod/pods/db-0");
    expect(await pods.add("evil", "thief", id("second"))).toMatchObject({ code: 0 });
    expect([links.get(name)?.alias, links.get("victim0")]).toEqual([
      `calico ${NETWORK} ${id("second")} evil/thief`,
      undefined,
    ]);
  }, 60_000);

  for (const alias of ["none", "limited by calico", "a hash", "no interface"] as const)
    suite(`${where}: a pod cannot take the interface of an attached pod with the same hash, alias: ${alias}`, async () => {
      // Without an interface the plugin alone does not search; Felix keeps the two apart.
      if (!canRun || (alias === "no interface" && where === "the plugin")) return;
      await using pods = open();
      // These two names have the same 44 bits of SHA-1.
      const [victim, thief] = ["db-1631473", "web-5155352"];
      const name = podInterfaceName("prod", victim);
      expect(podInterfaceName("evil", thief)).toBe(name);
      await pods.create("evil", thief); // not attached, so it does not keep the other from starting
      await pods.victim(victim, id("victim"));
      const { links } = served.host.kernel;
      const index = links.get(name)?.index ?? 0;
      if (alias === "no interface")
        links.delete(index); // as after a reboot
      else
        links.set(index, {
          alias: {
            none: "",
            "limited by calico": "limited by calico",
            "a hash": `calico ${NETWORK} ${id("victim")} sha256:${"0".repeat(64)}`,
          }[alias],
        });
      const before = links.get(name);
      const other = interfaceOf(await pods.add("evil", thief, id("thief")));
      expect(other).not.toBe(name);
      expect(links.get(name)).toEqual(before);
      expect(await endpointOf(thief)).toMatchObject({ interfaceName: other });
      expect(await owners()).toEqual({
        [`${NETWORK}.${id("victim")}`]: `prod/${victim}`,
        [`${NETWORK}.${id("thief")}`]: `evil/${thief}`,
      });
      // The victim's own next container gets the interface.
      expect(await pods.add("prod", victim, id("next"))).toMatchObject({ code: 0 });
      expect(links.get(name)?.alias).toBe(`calico ${NETWORK} ${id("next")} prod/${victim}`);
    }, 60_000);

  suite(`${where}: a pod that took another pod's interface name does not keep it from starting`, async () => {
    if (!canRun) return;
    await using pods = open();
    const [victim, thief] = ["db-1631473", "web-5155352"];
    const name = podInterfaceName("prod", victim);
    const { links } = served.host.kernel;
    await pods.create("evil", thief);
    expect(interfaceOf(await pods.add("evil", thief, id("thief")))).toBe(name);
    await pods.create("prod", victim, { ipAddrs: '["10.65.7.7"]' });
    const first = await pods.add("prod", victim, id("first"));
    expect(addressOf(first)).toBe("10.65.7.7");
    expect(interfaceOf(first)).toMatch(/^cali[0-9a-f]{11}$/);
    expect(interfaceOf(first)).not.toBe(name);
    expect(await conditionOf("prod", victim)).toMatchObject({
      status: "True",
      message: `10.65.7.7/32 interface=${interfaceOf(first)}`,
    });
    expect(await endpointOf(victim, "prod")).toMatchObject({
      interfaceName: interfaceOf(first),
      ipNetworks: ["10.65.7.7/32"],
      containerID: id("first"),
    });
    expect(await endpointOf(thief)).toMatchObject({ interfaceName: name });
    expect(await pods.call("CHECK", id("first"))).toMatchObject({ code: 0 });

    // Its next container gets the same address, so the interface of the last one is removed.
    const second = interfaceOf(await pods.add("prod", victim, id("second")));
    expect([name, interfaceOf(first)]).not.toContain(second);
    expect(links.get(interfaceOf(first))).toBeUndefined();
    expect(await pods.call("CHECK", id("second"))).toMatchObject({ code: 0 });

    const gc = async (...alive: readonly string[]) =>
      expect(await pods.gc(alive.map((containerID) => ({ containerID, ifname: "eth0" })))).toMatchObject({ code: 0 });
    await gc(id("thief"), id("second"));
    expect([links.get(name)?.alias, links.get(second)?.alias]).toEqual([
      `calico ${NETWORK} ${id("thief")} evil/${thief}`,
      `calico ${NETWORK} ${id("second")} prod/${victim}`,
    ]);
    // Without the other pod the usual name is used again.
    expect((await pods.del(id("thief"))).code).toBe(0);
    await cluster.delete(`/api/v1/namespaces/evil/pods/${thief}`);
    expect(interfaceOf(await pods.add("prod", victim, id("third")))).toBe(name);
    expect(links.get(second)).toBeUndefined();
    expect(await conditionOf("prod", victim)).toMatchObject({ message: "10.65.7.7/32" });
    expect(await endpointOf(victim, "prod")).toMatchObject({ interfaceName: name, containerID: id("third") });
    await gc();
    expect([links.get(name), await owners()]).toEqual([undefined, {}]);
  }, 60_000);

  suite(`${where}: GC of a pod that is not attached leaves the interface that its name gives and another pod has`, async () => {
    if (!canRun) return;
    await using pods = open();
    const [victim, thief] = ["db-1631473", "web-5155352"];
    const name = podInterfaceName("prod", victim);
    await pods.victim(victim, id("victim"));
    await pods.create("evil", thief);
    expect((await pods.add("evil", thief, id("thief"))).code).toBe(0);
    // The endpoint is gone but the address is not, as after a DEL that was killed; an annotation names the container.
    await store.delete(endpointKey(thief, "evil"));
    expect(await endpointOf(thief)).toMatchObject({ interfaceName: name, containerID: id("thief") });
    const { links } = served.host.kernel;
    const before = links.get(name);
    expect(await pods.gc([{ containerID: id("victim"), ifname: "eth0" }])).toMatchObject({ code: 0 });
    expect(links.get(name)).toEqual(before);
    expect(await owners()).toEqual({ [`${NETWORK}.${id("victim")}`]: `prod/${victim}` });
    expect(served.host.workloadLinks()).toEqual([name]);
  }, 60_000);

  suite(`${where}: a terminating pod keeps its address until DEL, whatever its annotations say`, async () => {
    if (!canRun) return;
    await using pods = open();
    await pods.create("evil", "stubborn");
    const address = addressOf(await pods.add("evil", "stubborn", id("stubborn")));
    const path = "/api/v1/namespaces/evil/pods/stubborn";
    // The pod ignores SIGTERM: the API server keeps it until a kubelet, which does not exist here, confirms its end.
    await cluster.api.json({ method: "DELETE", path: `${path}?gracePeriodSeconds=3600` });
    const annotations = { podIP: "", podIPs: "", containerID: "another" };
    const prefixed = Object.fromEntries(Object.entries(annotations).map(([key, value]) => [`${PREFIX}/${key}`, value]));
    const body = { metadata: { annotations: { ...prefixed, "vpc.amazonaws.com/pod-ips": "" } } };
    await cluster.api.json({ method: "PATCH", path, body, contentType: "application/merge-patch+json" });
    await cluster.api.json({
      method: "PATCH",
      path: `${path}/status`,
      body: { status: { podIP: address, podIPs: [{ ip: address }] } },
      contentType: "application/merge-patch+json",
    });
    expect(await cluster.api.get<KubeObject>(path)).toHaveProperty("metadata.deletionTimestamp");
    expect(await endpointOf("stubborn")).toMatchObject({ ipNetworks: [`${address}/32`], containerID: id("stubborn") });
    expect(await owners()).toEqual({ [`${NETWORK}.${id("stubborn")}`]: "evil/stubborn" });
    // After DEL the endpoint has no address, although the kubelet has not reported it yet and the annotation names
    // another container.
    expect((await pods.del(id("stubborn"))).code).toBe(0);
    expect(await endpointOf("stubborn")).not.toHaveProperty("ipNetworks");
    expect(await owners()).toEqual({});
  }, 60_000);

  suite(`${where}: a pod's new container still gets the address that its last container holds`, async () => {
    if (!canRun) return;
    await using pods = open();
    await pods.create("prod", "fixed", { ipAddrs: '["10.65.7.7"]' });
    expect(addressOf(await pods.add("prod", "fixed", id("first")))).toBe("10.65.7.7");
    expect(addressOf(await pods.add("prod", "fixed", id("second")))).toBe("10.65.7.7");
    expect(await owners()).toEqual({ [`${NETWORK}.${id("second")}`]: "prod/fixed" });
  }, 60_000);
}

suite("Felix uses the address that the plugin assigned before the kubelet reports it, and no other from annotations", async () => {
  if (!canRun) return;
  const { service_socket: _, ...own } = served.conf;
  await using pods = new Tenancy(own);
  const victim = {
    kind: "Pod",
    metadata: { name: "db-1", namespace: "prod" },
    status: { podIPs: [{ ip: "10.65.9.9" }] },
  };
  const spec = { nodeName: "n1", containers: [{ name: "c", image: "i" }] };
  await cluster.apply({ ...victim, spec } as KubeObject);
  // A policy of the victim's namespace has an IP set of the pods in evil.
  await cluster.put("/apis/networking.k8s.io/v1/namespaces/prod/networkpolicies", {
    metadata: { name: "from-evil" },
    spec: {
      podSelector: {},
      ingress: [{ from: [{ namespaceSelector: { matchLabels: { "kubernetes.io/metadata.name": "evil" } } }] }],
    },
  });
  await pods.create("evil", "claims", { podIP: "10.65.9.9/32", podIPs: "10.65.9.9/32" });
  await pods.create("evil", "wide", { podIPs: "0.0.0.0/1,128.0.0.0/1" });
  await using felix = new FelixPipeline(store, "n1");
  await eventually(() => felix.isInSync, 10_000);
  await pods.create("evil", "late");
  const address = addressOf(await pods.add("evil", "late", "late"));
  const about = (text: string) => felix.formatted().filter((message) => message.includes(text));
  await eventually(() => about("evil/late").some((message) => message.includes(`${address}/32`)), 10_000);
  expect(await cluster.api.get<KubeObject>("/api/v1/namespaces/evil/pods/late")).not.toHaveProperty("status.podIPs");
  for (const claimed of ["evil/claims", "evil/wide", "0.0.0.0/1", "128.0.0.0/1"]) expect(about(claimed)).toEqual([]);
  // The IP set of the policy has the assigned address and not the claimed one.
  const other = (text: string, than: string) => about(text).filter((message) => !message.includes(than));
  expect(other(address, "evil/late")).not.toEqual([]);
  expect(other("10.65.9.9", "prod/db-1")).toEqual([]);
  // A later edit of the annotation changes nothing.
  felix.take();
  const path = "/api/v1/namespaces/evil/pods/late";
  const annotations = { [`${PREFIX}/podIP`]: "10.65.9.9/32", [`${PREFIX}/podIPs`]: "10.65.9.9/32" };
  const body = { metadata: { annotations, labels: { edited: "yes" } } };
  await cluster.api.json({ method: "PATCH", path, body, contentType: "application/merge-patch+json" });
  await cluster.apply({ ...victim, metadata: { ...victim.metadata, name: "db-2" }, spec } as KubeObject);
  await eventually(() => about("prod/db-2").length > 0, 10_000);
  expect(other("evil/late", `${address}/32`)).toEqual([]);
  expect(other("10.65.9.9", "prod/db-2")).toEqual([]);
  for (const name of ["db-1", "db-2"]) await cluster.delete(`/api/v1/namespaces/prod/pods/${name}`);
  for (const name of ["claims", "wide"]) await cluster.delete(`/api/v1/namespaces/evil/pods/${name}`);
}, 60_000);
