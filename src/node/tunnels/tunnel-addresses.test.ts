import { expect, test } from "bun:test";
import { Client, Conflict, type Datastore, openSqliteInMemory, Unavailable } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import { parseAddress } from "../../lib/ip/ip.ts";
import { createLogger, type LogRecord } from "../../lib/log/log.ts";
import { pollUntil } from "../../lib/testing/eventually.ts";
import type { Resource } from "../../model/index.ts";
import type { NodeSpec } from "../startup/node-addresses.ts";
import { reconcileTunnelAddresses } from "./tunnel-addresses.ts";
import { watchTunnels } from "./tunnel-command.ts";

const NODE = "n1";

class Bench implements AsyncDisposable {
  readonly records: LogRecord[] = [];
  readonly log = createLogger({ level: "debug", write: (record) => this.records.push(record) });
  private constructor(readonly store: Datastore) {}
  static async create(spec: NodeSpec = {}, status: object = {}): Promise<Bench> {
    const bench = new Bench(await openSqliteInMemory());
    await bench.put("Node", NODE, spec, status);
    return bench;
  }
  readonly put = async (
    kind: "Node" | "IPPool" | "FelixConfiguration",
    name: string,
    spec: object,
    status?: object,
  ) => {
    const value: Resource = {
      apiVersion: "projectcalico.org/v3",
      kind,
      metadata: { name, uid: "00000000-0000-4000-8000-000000000001", creationTimestamp: "2026-01-01T00:00:00Z" },
      spec,
      ...(status && { status }),
    };
    await this.store.apply({ key: { type: "resource", kind, name }, value });
  };
  pool(name: string, cidr: string, spec: object = {}): Promise<void> {
    return this.put("IPPool", name, { cidr, ...spec });
  }
  get ipam(): Ipam {
    return new Ipam({ datastore: this.store });
  }
  reconcile(client = new Client(this.store)): Promise<void> {
    return reconcileTunnelAddresses({ client, ipam: this.ipam, node: NODE, log: this.log });
  }
  async spec(): Promise<NodeSpec> {
    return (await new Client(this.store).get({ kind: "Node", name: NODE })).spec;
  }
  async revision(): Promise<string> {
    return (await this.store.get({ type: "resource", kind: "Node", name: NODE })).revision;
  }
  async handles(): Promise<string[]> {
    return (await this.store.list({ type: "ipamHandle" })).items.map(({ key }) => key.handleId);
  }
  async [Symbol.asyncDispose](): Promise<void> {
    await this.store.close();
  }
}

const KEYS = { wireguardPublicKey: "k".repeat(43) + "=", wireguardPublicKeyV6: "k".repeat(43) + "=" };
const kinds: {
  id: string;
  pool: [cidr: string, spec: object];
  status?: object;
  handle: string;
  type: string;
  read: (spec: NodeSpec) => string | undefined;
}[] = [
  {
    id: "NB-060",
    pool: ["10.0.0.0/26", { ipipMode: "Always" }],
    handle: "ipip-tunnel-addr-n1",
    type: "ipipTunnelAddress",
    read: (s) => s.bgp?.ipv4IPIPTunnelAddr,
  },
  {
    id: "NB-061",
    pool: ["10.0.0.0/26", { vxlanMode: "CrossSubnet" }],
    handle: "vxlan-tunnel-addr-n1",
    type: "vxlanTunnelAddress",
    read: (s) => s.ipv4VXLANTunnelAddr,
  },
  {
    id: "NB-062",
    pool: ["fd00::/122", { vxlanMode: "Always" }],
    handle: "vxlan-v6-tunnel-addr-n1",
    type: "vxlanV6TunnelAddress",
    read: (s) => s.ipv6VXLANTunnelAddr,
  },
  {
    id: "NB-063",
    pool: ["10.0.0.0/26", {}],
    status: KEYS,
    handle: "wireguard-tunnel-addr-n1",
    type: "wireguardTunnelAddress",
    read: (s) => s.wireguard?.interfaceIPv4Address,
  },
  {
    id: "NB-064",
    pool: ["fd00::/122", {}],
    status: KEYS,
    handle: "wireguard-v6-tunnel-addr-n1",
    type: "wireguardV6TunnelAddress",
    read: (s) => s.wireguard?.interfaceIPv6Address,
  },
];
for (const { id, pool, status, handle, type, read } of kinds)
  test(`${id} ${type}: assigned with its handle, kept, and released with the pool`, async () => {
    await using bench = await Bench.create({}, status);
    await bench.pool("p", ...pool);
    await bench.reconcile();
    const address = read(await bench.spec()) ?? "";
    expect(await bench.ipam.allocationOf(parseAddress(address))).toMatchObject({
      handleId: handle,
      attributes: { node: NODE, type },
    });
    const before = await bench.revision();
    await bench.reconcile();
    expect(await bench.revision()).toBe(before);
    await bench.pool("p", pool[0], { ...pool[1], disabled: true });
    await bench.reconcile();
    expect(await bench.spec()).toEqual({});
    expect(await bench.handles()).toEqual([]);
  });

test("NB-066 an address is replaced when its pool changes", async () => {
  await using bench = await Bench.create();
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always" });
  await bench.reconcile();
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Never" });
  await bench.pool("q", "10.9.0.0/26", { ipipMode: "CrossSubnet" });
  await bench.reconcile();
  expect((await bench.spec()).bgp?.ipv4IPIPTunnelAddr).toStartWith("10.9.0.");
  expect(await bench.handles()).toEqual(["ipip-tunnel-addr-n1"]);
  const { pools } = await bench.ipam.utilization(["p"]);
  expect(pools[0]?.inUse).toBe(0n);
});

test("NB-066 a pool that does not select the node is not used", async () => {
  await using bench = await Bench.create();
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always", nodeSelector: "has(nope)" });
  await bench.reconcile();
  expect(await bench.spec()).toEqual({});
});

test("NB-067 a pool without the use Tunnel provides no tunnel address", async () => {
  await using bench = await Bench.create();
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always", allowedUses: ["Workload"] });
  await bench.reconcile();
  expect(await bench.spec()).toEqual({});
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always", allowedUses: ["Tunnel"] });
  await bench.reconcile();
  expect((await bench.spec()).bgp?.ipv4IPIPTunnelAddr).toStartWith("10.0.0.");
});

test("NB-063 with host encryption WireGuard needs no address", async () => {
  await using bench = await Bench.create({}, KEYS);
  await bench.pool("p", "10.0.0.0/26");
  await bench.put("FelixConfiguration", "default", { wireguardHostEncryptionEnabled: true });
  await bench.reconcile();
  expect(await bench.spec()).toEqual({});
});

test("NB-065 an address without handle and attributes is assigned again with them", async () => {
  await using bench = await Bench.create({ bgp: { ipv4IPIPTunnelAddr: "10.0.0.7" } });
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always" });
  await bench.ipam.assignAddress({ address: parseAddress("10.0.0.7"), host: NODE });
  await bench.reconcile();
  expect((await bench.spec()).bgp?.ipv4IPIPTunnelAddr).toBe("10.0.0.7");
  expect(await bench.ipam.allocationOf(parseAddress("10.0.0.7"))).toMatchObject({ handleId: "ipip-tunnel-addr-n1" });
});

test("NB-065 an address of another owner is not released, and a new one is assigned", async () => {
  await using bench = await Bench.create({ bgp: { ipv4IPIPTunnelAddr: "10.0.0.7" } });
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always" });
  await bench.ipam.assignAddress({
    address: parseAddress("10.0.0.7"),
    host: NODE,
    handleId: "pod",
    attributes: { pod: "web" },
  });
  await bench.reconcile();
  expect((await bench.spec()).bgp?.ipv4IPIPTunnelAddr).not.toBe("10.0.0.7");
  expect((await bench.ipam.allocationOf(parseAddress("10.0.0.7"))).handleId).toBe("pod");
  expect(bench.records.some(({ level }) => level === "warn")).toBe(true);
});

test("NB-065 without a pool, an address without a handle is released, an address of another owner is not", async () => {
  for (const owner of [undefined, "pod"]) {
    await using bench = await Bench.create({ bgp: { ipv4IPIPTunnelAddr: "10.0.0.7", ipv4Address: "192.0.2.1/24" } });
    await bench.pool("p", "10.0.0.0/26");
    await bench.ipam.assignAddress({
      address: parseAddress("10.0.0.7"),
      host: NODE,
      ...(owner && { handleId: owner }),
    });
    await bench.reconcile();
    expect(await bench.spec()).toEqual({ bgp: { ipv4Address: "192.0.2.1/24" } });
    const left = (await bench.ipam.utilization(["p"])).pools[0]?.inUse;
    expect(left).toBe(owner === undefined ? 0n : 1n);
  }
});

test("NB-065 an unassigned address is replaced, and other addresses of the handle are released", async () => {
  await using bench = await Bench.create({ ipv4VXLANTunnelAddr: "10.0.0.7" });
  await bench.pool("p", "10.0.0.0/26", { vxlanMode: "Always" });
  await bench.ipam.assignAddress({ address: parseAddress("10.0.0.9"), host: NODE, handleId: "vxlan-tunnel-addr-n1" });
  await bench.reconcile();
  const address = (await bench.spec()).ipv4VXLANTunnelAddr ?? "";
  expect((await bench.ipam.allocationOf(parseAddress(address))).handleId).toBe("vxlan-tunnel-addr-n1");
  expect((await bench.ipam.utilization(["p"])).pools[0]?.inUse).toBe(1n);
});

test("addresses are released if the Node cannot be written; the error names a full pool", async () => {
  await using bench = await Bench.create();
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always" });
  const client = new Client(bench.store);
  client.update = () => Promise.reject(new Unavailable("etcd", "test"));
  await expect(bench.reconcile(client)).rejects.toThrow(Unavailable);
  expect(await bench.handles()).toEqual([]);
  await bench.ipam.autoAssign({ version: 4, count: 64, host: NODE, use: "Workload", handleId: "all" });
  await expect(bench.reconcile()).rejects.toThrow("no address for the ipip tunnel: Assigned 0 out of 1");
});

test("concurrent changes of the Node are kept", async () => {
  await using bench = await Bench.create();
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always" });
  const client = new Client(bench.store);
  const update = client.update.bind(client);
  let first = true;
  client.update = async (resource, options) => {
    if (first) {
      first = false;
      await bench.put("Node", NODE, { bgp: { asNumber: 7 } });
      throw new Conflict("Node(n1)");
    }
    return update(resource, options);
  };
  await bench.reconcile(client);
  expect((await bench.spec()).bgp).toMatchObject({
    asNumber: 7,
    ipv4IPIPTunnelAddr: expect.stringContaining("10.0.0."),
  });
});

test("NB-068 the daemon watches pools until it is stopped", async () => {
  await using bench = await Bench.create();
  const controller = new AbortController();
  const running = watchTunnels({ env: {}, store: bench.store, node: NODE, log: bench.log }, controller.signal);
  const until = (holds: (spec: NodeSpec) => boolean) => pollUntil(() => bench.spec(), holds);
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always" });
  await until((spec) => spec.bgp?.ipv4IPIPTunnelAddr !== undefined);
  await bench.pool("p", "10.0.0.0/26", { ipipMode: "Always", nodeSelector: "has(nope)" });
  await until((spec) => spec.bgp === undefined);
  controller.abort();
  await running;
});
