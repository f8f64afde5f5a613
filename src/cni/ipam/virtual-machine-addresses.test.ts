import { expect, test } from "bun:test";
import { parseAddress } from "../../lib/ip/ip.ts";
import { add } from "../attach/add.ts";
import { CniError } from "../error.ts";
import { isOnItsWay } from "./virtual-machine-addresses.ts";
import { hostNetwork } from "../request/result.ts";
import { MachineBench } from "../testing/virtual-machines.ts";

const HANDLE = "net1.vmi.ns1.vm1";
const [a, b, c] = ["virt-launcher-vm1-a", "virt-launcher-vm1-b", "virt-launcher-vm1-c"] as const;
const both = { conf: { ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" } } };

/** On a datastore that writes several things at once, and on one that cannot. */
function everywhere(name: string, body: (bench: MachineBench) => Promise<void>): void {
  for (const inSteps of [false, true])
    test(`CI-077 ${name} (${inSteps ? "step by step" : "at once"})`, async () => {
      const bench = await MachineBench.create(inSteps);
      bench.machine();
      for (const pod of [a, b, c]) bench.pod(pod);
      await body(bench);
    });
}

everywhere("a machine's pods have its address one after the other, on whichever node", async (bench) => {
  const first = await bench.addresses({ pod: a });
  expect(await bench.handles()).toEqual([HANDLE]);
  await bench.del({ pod: a });
  expect(await bench.owners()).toEqual({});
  bench.machine({ uid: "vmi-2" }); // it was off in between
  bench.pod(b, { uid: "vmi-2" });
  expect(await bench.addresses({ pod: b, node: "n2" })).toEqual(first);
  expect(await bench.owners()).toEqual({ active: b });
});

everywhere("beside the address stands who uses it", async (bench) => {
  await bench.add({ pod: a });
  const [owned] = await bench.ipam.changeOwners(HANDLE, (owners) => owners);
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
  const [moving] = await bench.ipam.changeOwners(HANDLE, (owners) => owners);
  expect(moving?.alternate).toMatchObject({ pod: b, node: "n2", "vmim-uid": "move-1" });
});

everywhere("while it moves both pods have the address, and no route leads to the new one", async (bench) => {
  const wanted = { pod: a, ...both };
  const source = await bench.add(wanted);
  expect(source).toMatchObject({ routes: [{}, {}] });
  expect(source.isStillElsewhere).toBeUndefined();
  bench.pod(b, { migration: "move-1" });
  const target = await bench.add({ pod: b, node: "n2", ...both });
  expect(target.ips.map(({ address }) => address)).toEqual(source.ips.map(({ address }) => hostNetwork(address)));
  expect(target).toMatchObject({ routes: [], isStillElsewhere: true });
  expect(await bench.owners()).toEqual({ active: a, alternate: b });
  const networks = target.ips.map(({ address }) => address);
  expect(await isOnItsWay(bench.context({ pod: b, node: "n2" }), networks)).toBe(true);
  expect(await isOnItsWay(bench.context({ pod: a }), networks)).toBe(false);
  await bench.arrived();
  expect(await isOnItsWay(bench.context({ pod: b, node: "n2" }), networks)).toBe(false);
  await bench.del({ pod: a });
  expect(await bench.owners()).toEqual({ active: b });
});

everywhere("a move that failed leaves the address where it was, and the next may begin", async (bench) => {
  const first = await bench.addresses({ pod: a });
  for (const pod of [b, c]) bench.pod(pod, { migration: `move-${pod}` });
  await bench.add({ pod: b, node: "n2" });
  expect(await bench.addresses({ pod: c, node: "n2" })).toEqual(first); // before the other was cleared away
  await bench.del({ pod: b, node: "n2" });
  expect(await bench.owners()).toEqual({ active: a, alternate: c });
  await bench.del({ pod: c, node: "n2" });
  expect(await bench.owners()).toEqual({ active: a });
});

for (const order of [
  [a, b],
  [b, a],
])
  everywhere(`a machine that is deleted gives its address back with its last pod, ${order[1]}`, async (bench) => {
    await bench.add({ pod: a });
    bench.pod(b, { migration: "move-1" });
    await bench.add({ pod: b, node: "n2" });
    bench.end("virtualmachines");
    await bench.del({ pod: order[0] ?? "" });
    expect(await bench.handles()).toEqual([HANDLE]);
    await bench.del({ pod: order[1] ?? "" });
    expect(await bench.handles()).toEqual([]);
  });

everywhere("an instance that ends is not the end of its machine, unless it was made alone", async (bench) => {
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
});

everywhere("a pod can end whatever became of its machine, or of itself", async (bench) => {
  await bench.add({ pod: a });
  bench.objects.delete("virtualmachineinstances/vm1");
  await bench.del({ pod: a }); // the machine is only off
  expect([await bench.handles(), await bench.owners()]).toEqual([[HANDLE], {}]);
  bench.machine({ uid: "vmi-2" });
  await bench.del({ pod: b }); // of another life of it
  bench.objects.delete(`pods/${c}`);
  await bench.del({ pod: c });
  expect(await bench.handles()).toEqual([HANDLE]);
  bench.objects.delete("virtualmachineinstances/vm1");
  bench.objects.delete("virtualmachines/vm1");
  await bench.del({ pod: b });
  expect(await bench.handles()).toEqual([]);
});

everywhere("a pod whose instance is missing or another is refused, and nothing is taken", async (bench) => {
  bench.pod(a, { uid: "vmi-0" });
  await expect(bench.add({ pod: a })).rejects.toThrow("belongs to instance vmi-0 of machine vm1, which is now vmi-1");
  bench.objects.delete("virtualmachineinstances/vm1");
  await expect(bench.add({ pod: b })).rejects.toThrow('virtualmachineinstances "vm1" not found');
  expect(await bench.handles()).toEqual([]);
});

everywhere("a machine that has no address cannot move", async (bench) => {
  bench.pod(b, { migration: "move-1" });
  await expect(bench.add({ pod: b })).rejects.toThrow("machine ns1/vm1 cannot move: it has no addresses");
  expect(await bench.handles()).toEqual([]);
});

everywhere("where addresses do not persist its pods are pods like others, but for moves", async (bench) => {
  await bench.add({ pod: a });
  await bench.persistence("Disabled");
  await bench.add({ pod: b });
  expect(await bench.handles()).toEqual([`net1.c-${b}`, HANDLE]);
  bench.pod(c, { migration: "move-1" });
  await expect(bench.add({ pod: c })).rejects.toThrow("kubeVirtVMAddressPersistence is Disabled");
  await bench.del({ pod: b });
  await bench.del({ pod: a }); // started when they did
  expect(await bench.handles()).toEqual([]);
  await bench.add({ pod: a });
  await bench.persistence("Enabled");
  await bench.del({ pod: a });
  expect(await bench.handles()).toEqual([]);
});

everywhere("the end of an older container does not take its pod's address away", async (bench) => {
  await bench.add({ pod: a, container: "old" });
  await bench.add({ pod: a, container: "new" });
  const endpoint = { orchestrator: "k8s", node: "n1", pod: a, endpoint: "eth0", containerID: "new" };
  await bench.put("WorkloadEndpoint", `n1-k8s-${a.replaceAll("-", "--")}-eth0`, endpoint, "ns1");
  await bench.del({ pod: a, container: "old" });
  expect(await bench.owners()).toEqual({ active: a });
  await bench.del({ pod: a, container: "new" });
  expect(await bench.owners()).toEqual({});
});

everywhere("an ADD that fails at its wire leaves the machine its address, and the pod without", async (bench) => {
  await expect(add(bench.context({ pod: a }))).rejects.toThrow("no kernel here");
  expect([await bench.handles(), await bench.owners()]).toEqual([[HANDLE], {}]);
  const first = await bench.addresses({ pod: b });
  bench.pod(c, { migration: "move-1" });
  await expect(add(bench.context({ pod: c, node: "n2" }))).rejects.toThrow("no kernel here");
  expect([await bench.owners(), await bench.addresses({ pod: b })]).toEqual([{ active: b }, first]);
  expect((await bench.store.list({ type: "resource", kind: "WorkloadEndpoint" })).items).toEqual([]);
});

everywhere("a family that is missing is given, and two pods at once get one address", async (bench) => {
  const [v4] = await bench.addresses({ pod: a });
  const dual = await bench.addresses({ pod: b, ...both });
  expect(dual).toEqual([String(v4), expect.stringMatching(/^fd00:65::/)]);
  const six = { conf: { ipam: { type: "calico-ipam", assign_ipv4: "false", assign_ipv6: "true" } } };
  expect(await bench.addresses({ pod: c, ...six })).toEqual(dual); // what it has it keeps
  const other = await MachineBench.create(bench.store.transact === undefined);
  other.machine();
  for (const pod of [a, b]) other.pod(pod);
  const [one, two] = await Promise.all([other.addresses({ pod: a, ...both }), other.addresses({ pod: b, ...both })]);
  expect(one).toEqual(two);
});

everywhere("what it has of one family it keeps when the other family has none left", async (bench) => {
  const none = { ipam: { type: "calico-ipam", assign_ipv6: "true", ipv6_pools: ["fd00:65::/112"] } };
  await bench.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122, disabled: true });
  await expect(bench.add({ pod: a, conf: none })).rejects.toThrow();
  await bench.del({ pod: a });
  expect(await bench.handles()).toEqual([HANDLE]);
  await bench.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122 });
  expect(await bench.addresses({ pod: b, conf: none })).toHaveLength(2);
});

everywhere("an address that is asked for by name is the machine's own, or refused", async (bench) => {
  const ip = parseAddress("10.65.0.7");
  expect(await bench.addresses({ pod: a, ip })).toEqual([ip]);
  expect(await bench.addresses({ pod: b, ip })).toEqual([ip]);
  expect(await bench.addresses({ pod: b, ip: parseAddress("fd00:65::7") })).toEqual(["fd00:65::7"]);
  await expect(bench.add({ pod: b, ip: parseAddress("10.65.0.8") })).rejects.toThrow(
    "machine ns1/vm1 keeps 10.65.0.7, fd00:65::7; it cannot be given 10.65.0.8",
  );
  bench.pod(c, { migration: "move-1" });
  expect(await bench.addresses({ pod: c, ip })).toEqual([ip]);
  await expect(bench.add({ pod: c, ip: parseAddress("10.65.0.8") })).rejects.toBeInstanceOf(CniError);
});

test("CI-077 no other pod is asked about, and one of that name only as far as it must be", async () => {
  const bench = await MachineBench.create();
  bench.pod("web");
  await bench.add({ pod: "web" });
  await bench.del({ pod: "web" });
  expect(bench.asked).toEqual([]);
  bench.pod(a, { kind: "ReplicaSet" });
  await bench.add({ pod: a });
  await bench.del({ pod: a });
  expect(bench.asked).toEqual([`pods/${a}`, `pods/${a}`]);
  const without = { pod: b, conf: { policy: {} } }; // no Kubernetes is named
  await bench.add(without);
  expect(await bench.handles()).toEqual([`net1.c-${b}`]);
  await bench.del(without);
  expect(bench.asked).toHaveLength(2);
});
