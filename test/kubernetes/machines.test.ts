// Tests the addresses of a virtual machine on two hosts during restarts and migrations, in the kernel and in IPAM, with the
// manifest's accounts.
import { afterAll, beforeAll, expect } from "bun:test";
import { swapOwners } from "../../src/felix/status/ipam-owners.ts";
import { hostCidr, ipVersion, parseAddress } from "../../src/lib/ip/ip.ts";
import { silentLogger } from "../../src/lib/log/log.ts";
import { canRun, type CniHost, type PluginRun } from "../functional/cni/cni-host.ts";
import { type Cluster, isAvailable, startCluster, suite } from "./cluster.ts";
import { HANDLE, installKubeVirt, MachineHosts, type Way } from "./machine-hosts.ts";

let cluster: Cluster;
beforeAll(async () => {
  if (!isAvailable || !canRun) return;
  cluster = await startCluster({ namespaces: ["ns1"], isOwn: true });
  await installKubeVirt(cluster);
}, 600_000);
afterAll(async () => await cluster?.[Symbol.asyncDispose]());

/** Returns the pod's addresses; fails with the plugin's error. */
function addressesOf({ code, json, stdout }: PluginRun): string[] {
  expect({ code, said: code === 0 ? "" : stdout }).toEqual({ code: 0, said: "" });
  return ((json["ips"] ?? []) as { address: string }[]).map(({ address }) => address.split("/")[0] ?? "");
}

/** The interfaces to which the host routes an address. */
const waysTo = (host: CniHost, addresses: readonly string[]): string[] =>
  addresses.flatMap((text) => {
    const address = parseAddress(text);
    return host.kernel.routes
      .list({ version: ipVersion(address), table: 254 })
      .filter(({ destination }) => destination === hostCidr(address))
      .map(({ link }) => (link === undefined ? "" : (host.kernel.links.get(link)?.name ?? "")));
  });

const ways: readonly Way[] = [
  { datastore: "kubernetes", by: "plugin" },
  { datastore: "kubernetes", by: "service" },
  { datastore: "etcdv3", by: "plugin" },
  { datastore: "etcdv3", by: "service" },
];
for (const way of ways)
  suite(`CI-077 a machine keeps its addresses while it is stopped and while it migrates (${way.by}, ${way.datastore})`, async () => {
    if (!canRun) return;
    await using run = await MachineHosts.create(cluster, way);
    const { n1, n2 } = run.hosts;
    let instance = await run.startMachine();
    const first = await run.launch("n1", instance, { name: "a" });
    const addresses = addressesOf(await first.call("ADD"));
    expect(addresses).toHaveLength(2);
    expect([await run.handles(), waysTo(n1, addresses)]).toEqual([
      [HANDLE],
      [...n1.workloadLinks(), ...n1.workloadLinks()],
    ]);

    // Stopped, and started on the other host.
    expect((await first.call("DEL")).code).toBe(0);
    await first.remove();
    expect([await run.owners(), waysTo(n1, addresses)]).toEqual([[[], []].map(() => [undefined, undefined]), []]);
    instance = await run.startMachine();
    const second = await run.launch("n2", instance, { name: "b" });
    expect(addressesOf(await second.call("ADD"))).toEqual(addresses);
    expect(waysTo(n2, addresses)).toHaveLength(2);

    // Migrates back: both pods have the addresses, and there is no route to the new one yet.
    const third = await run.launch("n1", instance, { name: "c", migration: "move-1" });
    expect(addressesOf(await third.call("ADD"))).toEqual(addresses);
    expect(n1.workloadLinks()).toHaveLength(1);
    expect([waysTo(n1, addresses), waysTo(n2, addresses).length]).toEqual([[], 2]);
    expect(await run.owners()).toEqual([
      [second.name, third.name],
      [second.name, third.name],
    ]);
    expect((await third.call("CHECK")).code).toBe(0);

    // The migration ends, which the node agent records; the source pod ends.
    const [ipv4, ipv6] = addresses.map((address) => hostCidr(parseAddress(address)));
    await swapOwners({
      ipam: run.ipam,
      arrival: {
        id: { orchestrator: "k8s", workload: `ns1/${third.name}`, endpoint: "eth0" },
        endpoint: { ipv4Nets: [ipv4!], ipv6Nets: [ipv6!] },
      },
      log: silentLogger,
      signal: AbortSignal.timeout(10_000),
    });
    expect((await second.call("DEL")).code).toBe(0);
    await second.remove();
    expect(await run.owners()).toEqual([
      [third.name, undefined],
      [third.name, undefined],
    ]);
    expect(waysTo(n2, addresses)).toEqual([]);

    // The machine is deleted: DEL of the last pod releases the addresses.
    await run.deleteMachine();
    expect(await run.handles()).toEqual([HANDLE]);
    expect((await third.call("DEL")).code).toBe(0);
    await third.remove();
    await run.removeFinalizer();
    expect([await run.handles(), n1.workloadLinks()]).toEqual([[], []]);
  }, 120_000);

suite("CI-077 addresses that a machine's pods request belong to the machine, also after a new container and a migration", async () => {
  if (!canRun) return;
  await using run = await MachineHosts.create(cluster, { datastore: "kubernetes", by: "plugin" });
  const { n1, n2 } = run.hosts;
  const instance = await run.startMachine();
  const wanted = ["10.65.0.77", "fd00:65::77"];
  const annotations = { "cni.projectcalico.org/ipAddrs": JSON.stringify(wanted) };
  const source = await run.launch("n1", instance, { name: "a", annotations });
  expect(addressesOf(await source.call("ADD"))).toEqual(wanted);
  const again = n1.pod();
  expect(addressesOf(await source.call("ADD", again))).toEqual(wanted);
  expect((await source.call("DEL")).code).toBe(0); // a late DEL of the previous container
  expect(await run.owners()).toEqual([
    [source.name, undefined],
    [source.name, undefined],
  ]);
  const target = await run.launch("n2", instance, { name: "b", annotations, migration: "move-1" });
  expect(addressesOf(await target.call("ADD"))).toEqual(wanted);
  expect([waysTo(n1, wanted).length, waysTo(n2, wanted)]).toEqual([2, []]);
  await run.deleteMachine();
  for (const run of [await target.call("DEL"), await source.call("DEL", again)]) expect(run.code).toBe(0);
  for (const pod of [source, target]) await pod.remove();
  await run.removeFinalizer();
  expect([await run.handles(), n1.workloadLinks(), n2.workloadLinks()]).toEqual([[], [], []]);
}, 60_000);

suite("CI-077 ADD of a pod of another instance of the machine fails and assigns nothing, and its DEL succeeds", async () => {
  if (!canRun) return;
  await using run = await MachineHosts.create(cluster, { datastore: "kubernetes", by: "plugin" });
  const old = await run.startMachine();
  await run.startMachine();
  const pod = await run.launch("n1", old, { name: "z" });
  const { code, json } = await pod.call("ADD");
  expect([code, json["msg"]]).toEqual([1, expect.stringContaining(`belongs to instance ${old} of machine vm1`)]);
  expect([await run.handles(), run.hosts.n1.workloadLinks()]).toEqual([[], []]);
  expect((await pod.call("DEL")).code).toBe(0);
  await pod.remove();
}, 60_000);
