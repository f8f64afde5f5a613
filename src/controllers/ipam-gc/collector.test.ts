import { describe, expect, test } from "bun:test";
import { CollectorFixture, MINUTE } from "../testing/collector-fixture.ts";
import { proxyNotFound } from "../testing/fake-kube.ts";

const GRACE = 15 * MINUTE;

test("TC-K16 the addresses, tunnel addresses and blocks of a deleted node are released", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  await fixture.node("n2");
  const live = await fixture.assign("n2", "stays");
  fixture.pod("stays", "n2", live);
  await fixture.assign("n1", "deleted");
  await fixture.tunnel("n1");
  const tunnel = await fixture.tunnel("n2");
  fixture.start(GRACE);
  await fixture.scan();
  expect(await fixture.allocated()).toHaveLength(4); // nothing is released while the node exists
  fixture.kube.delete("/api/v1/nodes/n1");
  await fixture.client.delete({ kind: "Node", name: "n1" });
  await fixture.scan();
  await fixture.scan();
  expect(await fixture.allocated()).toEqual([live, tunnel].sort());
  expect(await fixture.blocksOf("n1")).toEqual([]);
  expect(await fixture.blocksOf("n2")).toHaveLength(1);
});

test("TC-K16 one address in use keeps the tunnel address and the blocks of a deleted node", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const kept = await fixture.assign("n1", "moved");
  const tunnel = await fixture.tunnel("n1");
  fixture.pod("moved", "n9", kept); // the pod has the address; its node is not compared, because the node of the address is deleted
  fixture.kube.delete("/api/v1/nodes/n1");
  fixture.start(GRACE);
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([kept, tunnel].sort());
  expect(await fixture.blocksOf("n1")).toHaveLength(1);
});

test("TC-K16 an affinity of a deleted node without a block is deleted", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const cidr = "10.65.7.0/28";
  const key = { type: "blockAffinity", affinityType: "host", host: "ghost", cidr } as never;
  await fixture.store.create({ key, value: { state: "confirmed" } as never });
  fixture.start(GRACE);
  await fixture.scan();
  expect(await fixture.blocksOf("ghost")).toEqual([]);
});

test("TC-K17 an unused address is a suspect first and is released after the grace period", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const used = await fixture.assign("n1", "used");
  const leaked = await fixture.assign("n1", "leaked");
  fixture.pod("used", "n1", used);
  fixture.start(GRACE);
  await fixture.scan();
  await fixture.scan(GRACE - 1);
  expect(await fixture.allocated()).toEqual([used, leaked].sort());
  await fixture.scan(2);
  expect(await fixture.allocated()).toEqual([used]);
  expect(fixture.lines.join("\n")).toContain("released an unused address");
});

test("TC-K17 a pod that appears within the grace period keeps its address", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const address = await fixture.assign("n1", "late");
  fixture.start(GRACE);
  await fixture.scan();
  await fixture.scan(GRACE - 1);
  fixture.pod("late", "n1", address);
  await fixture.scan();
  fixture.kube.delete("/api/v1/namespaces/ns1/pods/late");
  await fixture.scan(GRACE / 2);
  expect(await fixture.allocated()).toEqual([address]);
});

test("TC-K17 a running pod keeps its address even if its annotations become invalid", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const address = await fixture.assign("n1", "typo");
  fixture.pod("typo", "n1", address);
  fixture.start(GRACE);
  await fixture.scan();
  for (const [name, text] of [
    ["cni.projectcalico.org/floatingIPs", "1.2.3.4"],
    ["cni.projectcalico.org/allowedSourcePrefixes", "10.0.0.0/8"],
    ["k8s.v1.cni.cncf.io/network-status", "{"],
  ] as const) {
    fixture.pod("typo", "n1", address, {}, { [name]: text });
    await fixture.scan();
    await fixture.scan(2 * GRACE);
    expect(await fixture.allocated()).toEqual([address]);
  }
});

test("TC-K17 a terminating pod keeps its address until it is deleted, even if its annotations contain none", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const address = await fixture.assign("n1", "stubborn");
  const path = "/api/v1/namespaces/ns1/pods/stubborn";
  for (const annotation of ["cni.projectcalico.org/podIP", "vpc.amazonaws.com/pod-ips"]) {
    fixture.kube.put(path, {
      metadata: { deletionTimestamp: "2026-01-01T00:00:00Z", annotations: { [annotation]: "" } },
      spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
      status: { phase: "Running", podIP: address, podIPs: [{ ip: address }] },
    });
    if (annotation.startsWith("cni")) fixture.start(GRACE);
    for (let i = 0; i < 4; i++) await fixture.scan(GRACE);
    expect(await fixture.allocated()).toEqual([address]);
  }
  fixture.kube.delete(path);
  await fixture.scan();
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([]);
});

test("TC-K17 with grace period 0 a leak is detected but never released; without a grace period it is not detected", async () => {
  for (const [grace, candidates] of [
    [0, 1],
    [undefined, 0],
  ] as const) {
    await using fixture = await CollectorFixture.create();
    await fixture.node("n1");
    await fixture.assign("n1", "leaked");
    fixture.start(grace);
    await fixture.scan();
    await fixture.scan(100 * GRACE);
    expect(await fixture.allocated()).toHaveLength(1);
    expect(fixture.registry.render()).toContain(`ipam_allocations_gc_candidates{ippool="p4",node="n1"} ${candidates}`);
  }
});

test("TC-K17 keeps addresses without a handle, without a pod, of a host, and of a node of another orchestrator", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  await fixture.node("plain", null);
  const common = { version: 4, count: 1, host: "n1", use: "Workload" } as const;
  await fixture.ipam.autoAssign({ ...common, attributes: { node: "n1", namespace: "ns1", pod: "x" } });
  await fixture.ipam.autoAssign({ ...common, handleId: "by-hand", attributes: { node: "n1", note: "mine" } });
  await fixture.ipam.autoAssign({ ...common, handleId: "windows-reserved-ipam-handle", attributes: { note: "host" } });
  await fixture.assign("plain", "elsewhere");
  const before = await fixture.allocated();
  fixture.start(GRACE);
  await fixture.scan();
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual(before);
});

test("TC-K18 on a deleted node, the addresses of a handle are released together or not at all", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const [one, two] = [
    await fixture.assign("n1", "pair", {}, "net.pair"),
    await fixture.assign("n1", "pair", {}, "net.pair"),
  ];
  fixture.pod("pair", "n9", one); // the pod has only one of them
  fixture.kube.delete("/api/v1/nodes/n1");
  fixture.start(GRACE);
  await fixture.scan();
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([one, two].sort());
  fixture.kube.delete("/api/v1/namespaces/ns1/pods/pair");
  await fixture.scan();
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([]);
});

test("TC-K18 an address in the handle of a running pod that the pod does not report is released after the grace period", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const surplus = await fixture.assign("n1", "pair", {}, "net.pair");
  const used = await fixture.assign("n1", "pair", {}, "net.pair");
  fixture.pod("pair", "n1", used);
  fixture.start(GRACE);
  await fixture.scan();
  await fixture.scan(GRACE - 1);
  expect(await fixture.allocated()).toEqual([surplus, used].sort());
  await fixture.scan(2);
  expect(await fixture.allocated()).toEqual([used]);
  const { items } = await fixture.store.list({ type: "ipamHandle" });
  expect(items.map(({ value }) => Object.values(value.block))).toEqual([[1]]);
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([used]);
});

describe("TC-K18 both addresses in the handle of a running pod are kept", () => {
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
      await using fixture = await CollectorFixture.create();
      await fixture.node("n1");
      const one = await fixture.assign("n1", "pair", {}, "net.pair");
      const two = await fixture.assign("n1", "pair", {}, "net.pair");
      const { status, annotations = {} } = reported(one, two);
      fixture.kube.put("/api/v1/namespaces/ns1/pods/pair", {
        metadata: { annotations },
        spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
        status: { phase: "Running", ...status },
      });
      fixture.start(GRACE);
      await fixture.scan();
      await fixture.scan(2 * GRACE);
      await fixture.scan(2 * GRACE);
      expect(await fixture.allocated()).toEqual([one, two].sort());
    });
});

test("TC-K18 the pod is read from the API server before its address is released", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const address = await fixture.assign("n1", "unseen");
  fixture.start(GRACE);
  await fixture.scan();
  // The pod exists, but the watch has not reported it yet.
  const path = "/api/v1/namespaces/ns1/pods/unseen";
  fixture.kube.objects.set(path, {
    metadata: { name: "unseen", namespace: "ns1" },
    spec: { nodeName: "n1", containers: [] },
    status: { podIP: address },
  });
  await fixture.scan(2 * GRACE);
  expect(fixture.kube.reads).toContain(path);
  expect(await fixture.allocated()).toEqual([address]);
});

test.each([
  ["does not answer", new Error("down")],
  ["is behind a proxy that answers 404", proxyNotFound()],
])("TC-K18 an API server that %s keeps the address", async (_, failure) => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  await fixture.assign("n1", "leaked");
  fixture.start(GRACE);
  await fixture.scan();
  fixture.kube.failure = failure;
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toHaveLength(1);
  fixture.kube.failure = undefined;
  await fixture.scan();
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([]);
});

test("TC-K20 blocks that are empty for longer than the grace period are released, except the last block of a node", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  await fixture.node("n2");
  const blocks: string[] = [];
  for (let i = 0; i < 3; i++) {
    const cidr = `10.65.${i}.0/28` as never;
    await fixture.ipam.claimAffinity(cidr, { type: "host", name: "n1" });
    blocks.push(cidr);
  }
  await fixture.ipam.claimAffinity("10.65.9.0/28" as never, { type: "host", name: "n2" });
  const address = "10.65.1.3";
  await fixture.ipam.assignAddress({ address: address as never, host: "n1", handleId: "net.a", attributes: {} });
  fixture.start(GRACE);
  await fixture.scan();
  await fixture.scan(GRACE - 1);
  expect(await fixture.blocksOf("n1")).toHaveLength(3);
  await fixture.scan(2);
  expect(await fixture.blocksOf("n1")).toEqual(["10.65.1.0/28"] as never);
  expect(await fixture.blocksOf("n2")).toHaveLength(1);
});

test("TC-K20 the empty blocks of a deleted node are released even if one of its addresses is in use", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const kept = await fixture.assign("n1", "moved");
  fixture.pod("moved", "n9", kept);
  await fixture.ipam.claimAffinity("10.65.7.0/28" as never, { type: "host", name: "n1" });
  fixture.kube.delete("/api/v1/nodes/n1");
  fixture.start(GRACE);
  await fixture.scan();
  expect(await fixture.blocksOf("n1")).toHaveLength(2);
  await fixture.scan(GRACE + 1);
  expect(await fixture.allocated()).toEqual([kept]);
  expect(await fixture.blocksOf("n1")).toHaveLength(1);
});

test("TC-K20 empty blocks are kept without a grace period, and on a node that migrates from flannel", async () => {
  for (const grace of [undefined, GRACE]) {
    await using fixture = await CollectorFixture.create();
    await fixture.node("n1");
    fixture.kube.put("/api/v1/nodes/n1", {
      metadata: { labels: { "projectcalico.org/node-flannel-migration-in-progress": "true" } },
    });
    for (const cidr of ["10.65.0.0/28", "10.65.1.0/28"])
      await fixture.ipam.claimAffinity(cidr as never, { type: "host", name: "n1" });
    fixture.start(grace);
    await fixture.scan();
    await fixture.scan(2 * GRACE);
    expect(await fixture.blocksOf("n1")).toHaveLength(2);
  }
});

test("TC-K21 an address whose cooldown is over is freed even if no assignment changes its block", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  await fixture.ipam.configure({ ipCooldownSeconds: 60 });
  const address = await fixture.assign("n1", "short");
  await fixture.ipam.release([{ address }]);
  const resting = async () =>
    (await fixture.store.list({ type: "block" })).items.some(({ value }) =>
      value.attributes.some(({ releasedAt }) => releasedAt !== undefined),
    );
  fixture.start(GRACE);
  await fixture.scan(59_000);
  expect(await resting()).toBe(true);
  await fixture.scan(2_000);
  expect(await resting()).toBe(false);
});

test("TC-K22 an address of a virtual machine is kept as long as the virtual machine exists, also without a pod", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const machine = "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachines/vm1";
  const attributes = { "vmi-name": "vm1" };
  const address = await fixture.assign("n1", "virt-launcher-vm1-a", attributes, "net.vmi.ns1.vm1");
  fixture.start(MINUTE);
  await fixture.scan();
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([address]); // without KubeVirt the virtual machine may still exist
  fixture.kube.put("/apis/kubevirt.io/v1");
  fixture.kube.put(machine);
  await fixture.scan();
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([address]);
  fixture.kube.delete(machine);
  await fixture.scan();
  await fixture.scan(4 * MINUTE); // longer than the grace period, but virtual machines have at least 5 minutes
  expect(await fixture.allocated()).toEqual([address]);
  await fixture.scan(2 * MINUTE);
  expect(await fixture.allocated()).toEqual([]);
});

test("TC-K22 CI-077 for a stopped virtual machine, the handle identifies the virtual machine", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const machine = "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachines/vm1";
  fixture.kube.put("/apis/kubevirt.io/v1");
  fixture.kube.put(machine);
  const handle = "net.vmi.ns1.vm1";
  const address = await fixture.assign("n1", "virt-launcher-vm1-a", { "vmi-name": "vm1" }, handle);
  fixture.start(MINUTE);
  await fixture.scan();
  await fixture.ipam.updateOwnerAttributes(handle, () => ({}));
  await fixture.scan(2 * GRACE);
  expect(await fixture.allocated()).toEqual([address]);
  fixture.kube.delete(machine);
  await fixture.scan();
  await fixture.scan(6 * MINUTE);
  expect(await fixture.allocated()).toEqual([]);
});

test("TC-K22 an instance without an owner keeps its address; an instance of a deleted virtual machine does not", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  fixture.kube.put("/apis/kubevirt.io/v1");
  const instance = "/apis/kubevirt.io/v1/namespaces/ns1/virtualmachineinstances/vm1";
  fixture.kube.put(instance);
  const address = await fixture.assign("n1", "virt-launcher-vm1-a", { "vmi-name": "vm1" }, "net.vmi.ns1.vm1");
  fixture.start(MINUTE);
  await fixture.scan();
  await fixture.scan(GRACE);
  expect(await fixture.allocated()).toEqual([address]);
  fixture.kube.put(instance, { metadata: { ownerReferences: [{ kind: "VirtualMachine", name: "vm1" }] } });
  await fixture.scan();
  await fixture.scan(GRACE);
  expect(await fixture.allocated()).toEqual([]);
});

test("no address is released while the datastore is locked", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  await fixture.assign("n1", "leaked");
  const information = await fixture.client.get({ kind: "ClusterInformation", name: "default" });
  await fixture.client.update(
    { ...information, spec: { ...information.spec, datastoreReady: false } },
    { trusted: true },
  );
  fixture.start(1);
  fixture.nowMs += GRACE;
  await Bun.sleep(60);
  expect(await fixture.allocated()).toHaveLength(1);
});

test("a handle without an address is repaired after the grace period, unless it changes", async () => {
  await using fixture = await CollectorFixture.create();
  await fixture.node("n1");
  const used = await fixture.assign("n1", "lives");
  fixture.pod("lives", "n1", used);
  const block = (await fixture.blocksOf("n1"))[0];
  const writeHandle = (handleId: string, blocks: Record<string, number>) =>
    fixture.store.apply({
      key: { type: "ipamHandle", handleId },
      value: { handleId, block: blocks, deleted: false } as never,
    });
  const handles = async () =>
    (await fixture.store.list({ type: "ipamHandle" })).items.map(({ value }) => value).sort(byId);
  const byId = (a: { handleId: string }, b: { handleId: string }) => (a.handleId < b.handleId ? -1 : 1);
  await writeHandle("net.killed", { [block ?? ""]: 1 });
  await writeHandle("net.busy", { [block ?? ""]: 1 });
  await writeHandle("net.lives", { [block ?? ""]: 2, "10.65.9.0/28": 1 }); // one of its three addresses is allocated
  fixture.start(GRACE);
  await fixture.scan();
  await fixture.scan(GRACE - 1);
  await writeHandle("net.busy", { [block ?? ""]: 2 }); // an assignment is in progress
  await fixture.scan();
  expect(await handles()).toHaveLength(3);
  await fixture.scan(2);
  expect(await handles()).toMatchObject([
    { handleId: "net.busy", block: { [block ?? ""]: 2 } },
    { handleId: "net.lives", block: { [block ?? ""]: 1 } },
  ]);
  expect(Object.keys((await handles())[1]?.block ?? {})).toEqual([block ?? ""]);
  expect(await fixture.allocated()).toEqual([used]);
  await fixture.scan(GRACE + 1);
  expect((await handles()).map(({ handleId }) => handleId)).toEqual(["net.lives"]);
});
