import { expect, test } from "bun:test";
import { parseAddress } from "../../lib/ip/ip.ts";
import { add } from "../attach/add.ts";
import { CniError } from "../error.ts";
import { isMigratingToThisPod } from "./virtual-machine-addresses.ts";
import { hostNetwork } from "../request/result.ts";
import { VirtualMachineCluster } from "../testing/virtual-machines.ts";

const HANDLE = "net1.vmi.ns1.vm1";
const [a, b, c] = ["virt-launcher-vm1-a", "virt-launcher-vm1-b", "virt-launcher-vm1-c"] as const;
const both = { conf: { ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" } } };

/** Runs a test on a datastore with transactions, and on one without. */
function onBothDatastores(name: string, body: (bench: VirtualMachineCluster) => Promise<void>): void {
  for (const hasTransactions of [true, false])
    test(`CI-077 ${name} (${hasTransactions ? "with" : "without"} transactions)`, async () => {
      const bench = await VirtualMachineCluster.create(hasTransactions);
      bench.machine();
      for (const pod of [a, b, c]) bench.pod(pod);
      await body(bench);
    });
}

onBothDatastores("successive pods of a machine have its address, on any node", async (bench) => {
  const first = await bench.addresses({ pod: a });
  expect(await bench.handles()).toEqual([HANDLE]);
  await bench.del({ pod: a });
  expect(await bench.owners()).toEqual({});
  bench.machine({ uid: "vmi-2" }); // it was stopped in between
  bench.pod(b, { uid: "vmi-2" });
  expect(await bench.addresses({ pod: b, node: "n2" })).toEqual(first);
  expect(await bench.owners()).toEqual({ active: b });
});

onBothDatastores("an address records its owners", async (bench) => {
  await bench.add({ pod: a });
  const [owned] = await bench.ipam.updateOwnerAttributes(HANDLE, (owners) => owners);
  expect(owned?.active).toEqual({
    pod: a,
    namespace: "ns1",
    node: "n1",
    timestamp: "2026-01-01 00:00:00 +0000 UTC",
    "vmi-name": "vm1",
    "vmi-uid": "vmi-1",
    "vm-uid": "vm-1",
  });
  bench.pod(b, { migration: "move-1" });
  await bench.add({ pod: b, node: "n2" });
  const [moving] = await bench.ipam.updateOwnerAttributes(HANDLE, (owners) => owners);
  expect(moving?.alternate).toMatchObject({ pod: b, node: "n2", "vmim-uid": "move-1" });
});

onBothDatastores("during a migration both pods have the address, and the target has no route", async (bench) => {
  const request = { pod: a, ...both };
  const source = await bench.add(request);
  expect(source).toMatchObject({ routes: [{}, {}] });
  expect(source.isMigrating).toBeUndefined();
  bench.pod(b, { migration: "move-1" });
  const target = await bench.add({ pod: b, node: "n2", ...both });
  expect(target.ips.map(({ address }) => address)).toEqual(source.ips.map(({ address }) => hostNetwork(address)));
  expect(target).toMatchObject({ routes: [], isMigrating: true });
  expect(await bench.owners()).toEqual({ active: a, alternate: b });
  const networks = target.ips.map(({ address }) => address);
  expect(await isMigratingToThisPod(bench.context({ pod: b, node: "n2" }), networks)).toBe(true);
  expect(await isMigratingToThisPod(bench.context({ pod: a }), networks)).toBe(false);
  await bench.completeMigration();
  expect(await isMigratingToThisPod(bench.context({ pod: b, node: "n2" }), networks)).toBe(false);
  await bench.del({ pod: a });
  expect(await bench.owners()).toEqual({ active: b });
});

onBothDatastores(
  "after a failed migration the source pod keeps the address, and another migration can start",
  async (bench) => {
    const first = await bench.addresses({ pod: a });
    for (const pod of [b, c]) bench.pod(pod, { migration: `move-${pod}` });
    await bench.add({ pod: b, node: "n2" });
    expect(await bench.addresses({ pod: c, node: "n2" })).toEqual(first); // before the pod of the failed migration has ended
    await bench.del({ pod: b, node: "n2" });
    expect(await bench.owners()).toEqual({ active: a, alternate: c });
    await bench.del({ pod: c, node: "n2" });
    expect(await bench.owners()).toEqual({ active: a });
  },
);

for (const order of [
  [a, b],
  [b, a],
])
  onBothDatastores(`the address of a deleted machine is released with its last pod, ${order[1]}`, async (bench) => {
    await bench.add({ pod: a });
    bench.pod(b, { migration: "move-1" });
    await bench.add({ pod: b, node: "n2" });
    bench.end("virtualmachines");
    await bench.del({ pod: order[0] ?? "" });
    expect(await bench.handles()).toEqual([HANDLE]);
    await bench.del({ pod: order[1] ?? "" });
    expect(await bench.handles()).toEqual([]);
  });

onBothDatastores(
  "the end of an instance releases the address only if the instance was created without a machine",
  async (bench) => {
    await bench.add({ pod: a });
    bench.end("virtualmachineinstances");
    await bench.del({ pod: a });
    expect(await bench.handles()).toEqual([HANDLE]);
    bench.machine({ alone: true });
    bench.objects.delete("virtualmachines/vm1");
    await bench.add({ pod: b });
    await bench.del({ pod: b });
    expect(await bench.handles()).toEqual([HANDLE]);
    await bench.add({ pod: c });
    bench.end("virtualmachineinstances");
    await bench.del({ pod: c });
    expect(await bench.handles()).toEqual([]);
  },
);

onBothDatastores("DEL succeeds if the pod, its instance or its machine does not exist", async (bench) => {
  await bench.add({ pod: a });
  bench.objects.delete("virtualmachineinstances/vm1");
  await bench.del({ pod: a }); // the machine is stopped
  expect([await bench.handles(), await bench.owners()]).toEqual([[HANDLE], {}]);
  bench.machine({ uid: "vmi-2" });
  await bench.del({ pod: b }); // belongs to an earlier instance
  bench.objects.delete(`pods/${c}`);
  await bench.del({ pod: c });
  expect(await bench.handles()).toEqual([HANDLE]);
  bench.objects.delete("virtualmachineinstances/vm1");
  bench.objects.delete("virtualmachines/vm1");
  await bench.del({ pod: b });
  expect(await bench.handles()).toEqual([]);
});

onBothDatastores(
  "a pod is rejected if its instance is missing or has another UID, and nothing is assigned",
  async (bench) => {
    bench.pod(a, { uid: "vmi-0" });
    await expect(bench.add({ pod: a })).rejects.toThrow("belongs to instance vmi-0 of machine vm1, which is now vmi-1");
    bench.objects.delete("virtualmachineinstances/vm1");
    await expect(bench.add({ pod: b })).rejects.toThrow('virtualmachineinstances "vm1" not found');
    expect(await bench.handles()).toEqual([]);
  },
);

onBothDatastores("a machine without addresses cannot migrate", async (bench) => {
  bench.pod(b, { migration: "move-1" });
  await expect(bench.add({ pod: b })).rejects.toThrow(
    "machine ns1/vm1 cannot migrate: handle net1.vmi.ns1.vm1 has no addresses",
  );
  expect(await bench.handles()).toEqual([]);
});

onBothDatastores(
  "without address persistence its pods are treated like other pods, and migrations are rejected",
  async (bench) => {
    await bench.add({ pod: a });
    await bench.persistence("Disabled");
    await bench.add({ pod: b });
    expect(await bench.handles()).toEqual([`net1.c-${b}`, HANDLE]);
    bench.pod(c, { migration: "move-1" });
    await expect(bench.add({ pod: c })).rejects.toThrow("kubeVirtVMAddressPersistence is Disabled");
    await bench.del({ pod: b });
    await bench.del({ pod: a }); // started with persistence
    expect(await bench.handles()).toEqual([]);
    await bench.add({ pod: a });
    await bench.persistence("Enabled");
    await bench.del({ pod: a });
    expect(await bench.handles()).toEqual([]);
  },
);

onBothDatastores("DEL of an older container does not remove its pod from the owners", async (bench) => {
  await bench.add({ pod: a, container: "old" });
  await bench.add({ pod: a, container: "new" });
  const endpoint = { orchestrator: "k8s", node: "n1", pod: a, endpoint: "eth0", containerID: "new" };
  await bench.put("WorkloadEndpoint", `n1-k8s-${a.replaceAll("-", "--")}-eth0`, endpoint, "ns1");
  await bench.del({ pod: a, container: "old" });
  expect(await bench.owners()).toEqual({ active: a });
  await bench.del({ pod: a, container: "new" });
  expect(await bench.owners()).toEqual({});
});

onBothDatastores(
  "if ADD fails to create the interface, the machine keeps its address and the pod is removed from the owners",
  async (bench) => {
    await expect(add(bench.context({ pod: a }))).rejects.toThrow("no kernel here");
    expect([await bench.handles(), await bench.owners()]).toEqual([[HANDLE], {}]);
    const first = await bench.addresses({ pod: b });
    bench.pod(c, { migration: "move-1" });
    await expect(add(bench.context({ pod: c, node: "n2" }))).rejects.toThrow("no kernel here");
    expect([await bench.owners(), await bench.addresses({ pod: b })]).toEqual([{ active: b }, first]);
    expect((await bench.store.list({ type: "resource", kind: "WorkloadEndpoint" })).items).toEqual([]);
  },
);

onBothDatastores("a missing family is assigned, and two concurrent pods get the same addresses", async (bench) => {
  const [v4] = await bench.addresses({ pod: a });
  const dual = await bench.addresses({ pod: b, ...both });
  expect(dual).toEqual([String(v4), expect.stringMatching(/^fd00:65::/)]);
  const six = { conf: { ipam: { type: "calico-ipam", assign_ipv4: "false", assign_ipv6: "true" } } };
  expect(await bench.addresses({ pod: c, ...six })).toEqual(dual); // it keeps its addresses
  const other = await VirtualMachineCluster.create(bench.store.transact !== undefined);
  other.machine();
  for (const pod of [a, b]) other.pod(pod);
  const [one, two] = await Promise.all([other.addresses({ pod: a, ...both }), other.addresses({ pod: b, ...both })]);
  expect(one).toEqual(two);
});

onBothDatastores("a machine keeps its address of one family if the other family cannot be assigned", async (bench) => {
  const none = { ipam: { type: "calico-ipam", assign_ipv6: "true", ipv6_pools: ["fd00:65::/112"] } };
  await bench.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122, disabled: true });
  await expect(bench.add({ pod: a, conf: none })).rejects.toThrow();
  await bench.del({ pod: a });
  expect(await bench.handles()).toEqual([HANDLE]);
  await bench.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122 });
  expect(await bench.addresses({ pod: b, conf: none })).toHaveLength(2);
});

onBothDatastores("a requested address is rejected unless it is the machine's own", async (bench) => {
  const ip = parseAddress("10.65.0.7");
  expect(await bench.addresses({ pod: a, ip })).toEqual([ip]);
  expect(await bench.addresses({ pod: b, ip })).toEqual([ip]);
  expect(await bench.addresses({ pod: b, ip: parseAddress("fd00:65::7") })).toEqual(["fd00:65::7"]);
  await expect(bench.add({ pod: b, ip: parseAddress("10.65.0.8") })).rejects.toThrow(
    "machine ns1/vm1 has 10.65.0.7, fd00:65::7; it cannot get 10.65.0.8",
  );
  bench.pod(c, { migration: "move-1" });
  expect(await bench.addresses({ pod: c, ip })).toEqual([ip]);
  await expect(bench.add({ pod: c, ip: parseAddress("10.65.0.8") })).rejects.toBeInstanceOf(CniError);
});

test("CI-077 Kubernetes objects are read only for pods named virt-launcher-…, and only those that are needed", async () => {
  const bench = await VirtualMachineCluster.create();
  bench.pod("web");
  await bench.add({ pod: "web" });
  await bench.del({ pod: "web" });
  expect(bench.reads).toEqual([]);
  bench.pod(a, { kind: "ReplicaSet" });
  await bench.add({ pod: a });
  await bench.del({ pod: a });
  expect(bench.reads).toEqual([`pods/${a}`, `pods/${a}`]);
  const without = { pod: b, conf: { policy: {} } }; // the Kubernetes API is not configured
  await bench.add(without);
  expect(await bench.handles()).toEqual([`net1.c-${b}`]);
  await bench.del(without);
  expect(bench.reads).toHaveLength(2);
});
