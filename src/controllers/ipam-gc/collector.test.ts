import { describe, expect, test } from "bun:test";
import { CollectorBench, MINUTE } from "../testing/collector-bench.ts";
import { proxyNotFound } from "../testing/fake-kube.ts";

const GRACE = 15 * MINUTE;

test("TC-K16 a node that is gone gives back its addresses, its tunnel's too, and its blocks", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  await bench.node("n2");
  const live = await bench.assign("n2", "stays");
  bench.pod("stays", "n2", live);
  await bench.assign("n1", "gone");
  await bench.tunnel("n1");
  const tunnel = await bench.tunnel("n2");
  bench.start(GRACE);
  await bench.pass();
  expect(await bench.held()).toHaveLength(4); // while the node is there nothing is sure
  bench.kube.drop("/api/v1/nodes/n1");
  await bench.client.delete({ kind: "Node", name: "n1" });
  await bench.pass();
  await bench.pass();
  expect(await bench.held()).toEqual([live, tunnel].sort());
  expect(await bench.blocksOf("n1")).toEqual([]);
  expect(await bench.blocksOf("n2")).toHaveLength(1);
});

test("TC-K16 one address that is kept keeps the tunnel and the blocks of a node that is gone", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const kept = await bench.assign("n1", "moved");
  const tunnel = await bench.tunnel("n1");
  bench.pod("moved", "n9", kept); // the pod has it, wherever it is: there is no node to compare with
  bench.kube.drop("/api/v1/nodes/n1");
  bench.start(GRACE);
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual([kept, tunnel].sort());
  expect(await bench.blocksOf("n1")).toHaveLength(1);
});

test("TC-K16 an affinity of a vanished node that has no block is found and removed", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const cidr = "10.65.7.0/28";
  const key = { type: "blockAffinity", affinityType: "host", host: "ghost", cidr } as never;
  await bench.store.create({ key, value: { state: "confirmed" } as never });
  bench.start(GRACE);
  await bench.pass();
  expect(await bench.blocksOf("ghost")).toEqual([]);
});

test("TC-K17 an address nobody uses is suspected first, and given back after the grace", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const used = await bench.assign("n1", "used");
  const leaked = await bench.assign("n1", "leaked");
  bench.pod("used", "n1", used);
  bench.start(GRACE);
  await bench.pass();
  await bench.pass(GRACE - 1);
  expect(await bench.held()).toEqual([used, leaked].sort());
  await bench.pass(2);
  expect(await bench.held()).toEqual([used]);
  expect(bench.lines.join("\n")).toContain("gave back an address that nobody uses");
});

test("TC-K17 a pod that comes back within the grace clears the suspicion", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const address = await bench.assign("n1", "late");
  bench.start(GRACE);
  await bench.pass();
  await bench.pass(GRACE - 1);
  bench.pod("late", "n1", address);
  await bench.pass();
  bench.kube.drop("/api/v1/namespaces/ns1/pods/late");
  await bench.pass(GRACE / 2);
  expect(await bench.held()).toEqual([address]);
});

test("TC-K17 a running pod keeps its address, whatever becomes of its annotations", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const address = await bench.assign("n1", "typo");
  bench.pod("typo", "n1", address);
  bench.start(GRACE);
  await bench.pass();
  for (const [name, text] of [
    ["cni.projectcalico.org/floatingIPs", "1.2.3.4"],
    ["cni.projectcalico.org/allowedSourcePrefixes", "10.0.0.0/8"],
    ["k8s.v1.cni.cncf.io/network-status", "{"],
  ] as const) {
    bench.pod("typo", "n1", address, {}, { [name]: text });
    await bench.pass();
    await bench.pass(2 * GRACE);
    expect(await bench.held()).toEqual([address]);
  }
});

test("TC-K17 with a grace of nothing a leak stays suspected for ever; without a grace it is not even looked at", async () => {
  for (const [grace, candidates] of [
    [0, 1],
    [undefined, 0],
  ] as const) {
    await using bench = await CollectorBench.create();
    await bench.node("n1");
    await bench.assign("n1", "leaked");
    bench.start(grace);
    await bench.pass();
    await bench.pass(100 * GRACE);
    expect(await bench.held()).toHaveLength(1);
    expect(bench.registry.render()).toContain(`ipam_allocations_gc_candidates{ippool="p4",node="n1"} ${candidates}`);
  }
});

test("TC-K17 kept: no handle, no pod named, a host's own, another orchestrator's node", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  await bench.node("plain", null);
  const common = { version: 4, count: 1, host: "n1", use: "Workload" } as const;
  await bench.ipam.autoAssign({ ...common, attributes: { node: "n1", namespace: "ns1", pod: "x" } });
  await bench.ipam.autoAssign({ ...common, handleId: "by-hand", attributes: { node: "n1", note: "mine" } });
  await bench.ipam.autoAssign({ ...common, handleId: "windows-reserved-ipam-handle", attributes: { note: "host" } });
  await bench.assign("plain", "elsewhere");
  const before = await bench.held();
  bench.start(GRACE);
  await bench.pass();
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual(before);
});

test("TC-K18 all addresses of a handle go together or none, on a node that is gone", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const [one, two] = [
    await bench.assign("n1", "pair", {}, "net.pair"),
    await bench.assign("n1", "pair", {}, "net.pair"),
  ];
  bench.pod("pair", "n9", one); // it has but one of them
  bench.kube.drop("/api/v1/nodes/n1");
  bench.start(GRACE);
  await bench.pass();
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual([one, two].sort());
  bench.kube.drop("/api/v1/namespaces/ns1/pods/pair");
  await bench.pass();
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual([]);
});

test("TC-K18 an address in the handle of a live pod that the pod does not report is released after the grace", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const surplus = await bench.assign("n1", "pair", {}, "net.pair");
  const used = await bench.assign("n1", "pair", {}, "net.pair");
  bench.pod("pair", "n1", used);
  bench.start(GRACE);
  await bench.pass();
  await bench.pass(GRACE - 1);
  expect(await bench.held()).toEqual([surplus, used].sort());
  await bench.pass(2);
  expect(await bench.held()).toEqual([used]);
  const { items } = await bench.store.list({ type: "ipamHandle" });
  expect(items.map(({ value }) => Object.values(value.block))).toEqual([[1]]);
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual([used]);
});

describe("TC-K18 both addresses in the handle of a live pod are kept", () => {
  const network = "k8s.v1.cni.cncf.io/network-status";
  type Reported = (one: string, two: string) => { status?: object; annotations?: Record<string, string> };
  const cases: readonly [name: string, reported: Reported][] = [
    ["when it reports both", (one, two) => ({ status: { podIP: one, podIPs: [{ ip: one }, { ip: two }] } })],
    ["when it reports none yet", () => ({ status: { phase: "Pending" } })],
    [
      "when the second belongs to another network of the pod",
      (one, two) => ({
        status: { podIP: one, podIPs: [{ ip: one }] },
        annotations: { [network]: JSON.stringify([{ name: "extra", ips: [two] }]) },
      }),
    ],
  ];
  for (const [name, reported] of cases)
    test(`TC-K18 ${name}`, async () => {
      await using bench = await CollectorBench.create();
      await bench.node("n1");
      const one = await bench.assign("n1", "pair", {}, "net.pair");
      const two = await bench.assign("n1", "pair", {}, "net.pair");
      const { status, annotations = {} } = reported(one, two);
      bench.kube.put("/api/v1/namespaces/ns1/pods/pair", {
        metadata: { annotations },
        spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
        status: { phase: "Running", ...status },
      });
      bench.start(GRACE);
      await bench.pass();
      await bench.pass(2 * GRACE);
      await bench.pass(2 * GRACE);
      expect(await bench.held()).toEqual([one, two].sort());
    });
});

test("TC-K18 the API server itself is asked before an address is taken", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const address = await bench.assign("n1", "unseen");
  bench.start(GRACE);
  await bench.pass();
  // It is there, but the watch has not told of it.
  const path = "/api/v1/namespaces/ns1/pods/unseen";
  bench.kube.objects.set(path, {
    metadata: { name: "unseen", namespace: "ns1" },
    spec: { nodeName: "n1", containers: [] },
    status: { podIP: address },
  });
  await bench.pass(2 * GRACE);
  expect(bench.kube.reads).toContain(path);
  expect(await bench.held()).toEqual([address]);
});

test.each([
  ["does not answer", new Error("down")],
  ["is behind a proxy that answers 404", proxyNotFound()],
])("TC-K18 an API server that %s keeps the address", async (_, failure) => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  await bench.assign("n1", "leaked");
  bench.start(GRACE);
  await bench.pass();
  bench.kube.failure = failure;
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toHaveLength(1);
  bench.kube.failure = undefined;
  await bench.pass();
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual([]);
});

test("TC-K20 blocks that stay empty longer than the grace are given up, but never a node's last", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  await bench.node("n2");
  const blocks: string[] = [];
  for (let i = 0; i < 3; i++) {
    const cidr = `10.65.${i}.0/28` as never;
    await bench.ipam.claimAffinity(cidr, { type: "host", name: "n1" });
    blocks.push(cidr);
  }
  await bench.ipam.claimAffinity("10.65.9.0/28" as never, { type: "host", name: "n2" });
  const address = "10.65.1.3";
  await bench.ipam.assignAddress({ address: address as never, host: "n1", handleId: "net.a", attributes: {} });
  bench.start(GRACE);
  await bench.pass();
  await bench.pass(GRACE - 1);
  expect(await bench.blocksOf("n1")).toHaveLength(3);
  await bench.pass(2);
  expect(await bench.blocksOf("n1")).toEqual(["10.65.1.0/28"] as never);
  expect(await bench.blocksOf("n2")).toHaveLength(1);
});

test("TC-K20 a node that is gone, but still held by an address in use, gives up its empty blocks all the same", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const kept = await bench.assign("n1", "moved");
  bench.pod("moved", "n9", kept);
  await bench.ipam.claimAffinity("10.65.7.0/28" as never, { type: "host", name: "n1" });
  bench.kube.drop("/api/v1/nodes/n1");
  bench.start(GRACE);
  await bench.pass();
  expect(await bench.blocksOf("n1")).toHaveLength(2);
  await bench.pass(GRACE + 1);
  expect(await bench.held()).toEqual([kept]);
  expect(await bench.blocksOf("n1")).toHaveLength(1);
});

test("TC-K20 not without a grace, and not of a node that is moving to us", async () => {
  for (const grace of [undefined, GRACE]) {
    await using bench = await CollectorBench.create();
    await bench.node("n1");
    bench.kube.put("/api/v1/nodes/n1", {
      metadata: { labels: { "projectcalico.org/node-flannel-migration-in-progress": "true" } },
    });
    for (const cidr of ["10.65.0.0/28", "10.65.1.0/28"])
      await bench.ipam.claimAffinity(cidr as never, { type: "host", name: "n1" });
    bench.start(grace);
    await bench.pass();
    await bench.pass(2 * GRACE);
    expect(await bench.blocksOf("n1")).toHaveLength(2);
  }
});

test("TC-K21 an address that has rested long enough is free again though nobody writes its block", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  await bench.ipam.configure({ ipCooldownSeconds: 60 });
  const address = await bench.assign("n1", "short");
  await bench.ipam.release([{ address }]);
  const resting = async () =>
    (await bench.store.list({ type: "block" })).items.some(({ value }) =>
      value.attributes.some(({ releasedAt }) => releasedAt !== undefined),
    );
  bench.start(GRACE);
  await bench.pass(59_000);
  expect(await resting()).toBe(true);
  await bench.pass(2_000);
  expect(await resting()).toBe(false);
});

test("TC-K22 an address of a virtual machine lives as long as the machine, whatever its pods do", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const machine = "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachines/vm1";
  const attributes = { "vmi-name": "vm1" };
  const address = await bench.assign("n1", "virt-launcher-vm1-a", attributes, "net.vmi.ns1.vm1");
  bench.start(MINUTE);
  await bench.pass();
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual([address]); // without KubeVirt nobody can say that it is gone
  bench.kube.put("/apis/kubevirt.io/v1");
  bench.kube.put(machine);
  await bench.pass();
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual([address]);
  bench.kube.drop(machine);
  await bench.pass();
  await bench.pass(4 * MINUTE); // longer than the grace, but a machine has five minutes
  expect(await bench.held()).toEqual([address]);
  await bench.pass(2 * MINUTE);
  expect(await bench.held()).toEqual([]);
});

test("TC-K22 CI-077 the address of a machine that is off is judged by the machine its handle names", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const machine = "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachines/vm1";
  bench.kube.put("/apis/kubevirt.io/v1");
  bench.kube.put(machine);
  const handle = "net.vmi.ns1.vm1";
  const address = await bench.assign("n1", "virt-launcher-vm1-a", { "vmi-name": "vm1" }, handle);
  bench.start(MINUTE);
  await bench.pass();
  await bench.ipam.changeOwners(handle, () => ({}));
  await bench.pass(2 * GRACE);
  expect(await bench.held()).toEqual([address]);
  bench.kube.drop(machine);
  await bench.pass();
  await bench.pass(6 * MINUTE);
  expect(await bench.held()).toEqual([]);
});

test("TC-K22 an instance without a machine counts, one whose machine is gone does not", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  bench.kube.put("/apis/kubevirt.io/v1");
  const instance = "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachineinstances/vm1";
  bench.kube.put(instance);
  const address = await bench.assign("n1", "virt-launcher-vm1-a", { "vmi-name": "vm1" }, "net.vmi.ns1.vm1");
  bench.start(MINUTE);
  await bench.pass();
  await bench.pass(GRACE);
  expect(await bench.held()).toEqual([address]);
  bench.kube.put(instance, { metadata: { ownerReferences: [{ kind: "VirtualMachine", name: "vm1" }] } });
  await bench.pass();
  await bench.pass(GRACE);
  expect(await bench.held()).toEqual([]);
});

test("nothing is judged while an operator holds the datastore", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  await bench.assign("n1", "leaked");
  const information = await bench.client.get({ kind: "ClusterInformation", name: "default" });
  await bench.client.update(
    { ...information, spec: { ...information.spec, datastoreReady: false } },
    { trusted: true },
  );
  bench.start(1);
  bench.nowMs += GRACE;
  await Bun.sleep(60);
  expect(await bench.held()).toHaveLength(1);
});

test("a handle whose owner was killed before it took the address goes after the grace; one that changes is left", async () => {
  await using bench = await CollectorBench.create();
  await bench.node("n1");
  const held = await bench.assign("n1", "lives");
  bench.pod("lives", "n1", held);
  const block = (await bench.blocksOf("n1"))[0];
  const announce = (handleId: string, blocks: Record<string, number>) =>
    bench.store.apply({
      key: { type: "ipamHandle", handleId },
      value: { handleId, block: blocks, deleted: false } as never,
    });
  const handles = async () =>
    (await bench.store.list({ type: "ipamHandle" })).items.map(({ value }) => value).sort(byId);
  const byId = (a: { handleId: string }, b: { handleId: string }) => (a.handleId < b.handleId ? -1 : 1);
  await announce("net.killed", { [block ?? ""]: 1 });
  await announce("net.busy", { [block ?? ""]: 1 });
  await announce("net.lives", { [block ?? ""]: 2, "10.65.9.0/28": 1 }); // one of its three is there
  bench.start(GRACE);
  await bench.pass();
  await bench.pass(GRACE - 1);
  await announce("net.busy", { [block ?? ""]: 2 }); // somebody is at it
  await bench.pass();
  expect(await handles()).toHaveLength(3);
  await bench.pass(2);
  expect(await handles()).toMatchObject([
    { handleId: "net.busy", block: { [block ?? ""]: 2 } },
    { handleId: "net.lives", block: { [block ?? ""]: 1 } },
  ]);
  expect(Object.keys((await handles())[1]?.block ?? {})).toEqual([block ?? ""]);
  expect(await bench.held()).toEqual([held]);
  await bench.pass(GRACE + 1);
  expect((await handles()).map(({ handleId }) => handleId)).toEqual(["net.lives"]);
});
