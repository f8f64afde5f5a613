// What ADD and DEL ask of a datastore, counted: the kernel's part is tested in namespaces.
import { expect, test } from "bun:test";
import { type Datastore, openSqliteInMemory } from "../datastore/index.ts";
import { IpamMemory } from "../ipam/index.ts";
import { silentLogger } from "../lib/log.ts";
import { API_VERSION, type KindName, type Resource } from "../model/index.ts";
import { book } from "./booking.ts";
import type { CniContext } from "./context.ts";
import { del } from "./del.ts";
import { behindGate } from "./gated-store.ts";
import { ipamAdd } from "./ipam-delegation.ts";
import { parseNetConf } from "./net-conf.ts";
import { buildContext } from "./open-context.ts";
import { parseRequest } from "./request.ts";
import { cidrText } from "./result.ts";
import { noTimes } from "./step-times.ts";

class Bench {
  readonly calls: string[] = [];
  readonly memory = new IpamMemory();
  private constructor(
    readonly store: Datastore,
    readonly ipam: object,
  ) {}

  static async create(ipam: object = {}): Promise<Bench> {
    const bench = new Bench(await openSqliteInMemory(), ipam);
    await bench.put("ClusterInformation", "default", { datastoreReady: true });
    await bench.put("Node", "n1", {});
    await bench.put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26 });
    await bench.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122 });
    await bench.put("Profile", "net1", {});
    return bench;
  }

  async put(kind: KindName, name: string, spec: object): Promise<void> {
    const value = { apiVersion: API_VERSION, kind, metadata: { name }, spec } as Resource;
    await this.store.apply({ key: { type: "resource", kind, name }, value });
  }

  context(command: "ADD" | "DEL", container: string, pod?: string): CniContext {
    const stdin = JSON.stringify({
      ...{ cniVersion: "1.0.0", name: "net1", type: "calico", nodename: "n1", nodename_file_optional: true },
      ipam: { type: "calico-ipam", ...this.ipam },
      ipam_lock_file: "/dev/null",
    });
    const env = {
      ...{ CNI_COMMAND: command, CNI_CONTAINERID: container, CNI_IFNAME: "eth0", CNI_PATH: "/none" },
      CNI_NETNS: command === "ADD" ? "/run/netns/none" : "",
      ...(pod === undefined ? {} : { CNI_ARGS: `K8S_POD_NAME=${pod};K8S_POD_NAMESPACE=ns1` }),
    };
    const request = parseRequest("calico", env, stdin);
    const counted = new Proxy(this.store, {
      get: (target, name: keyof Datastore) => {
        const member: unknown = target[name];
        if (typeof member !== "function") return member;
        return (...given: unknown[]) => {
          this.calls.push(name);
          return member.apply(target, given);
        };
      },
    });
    return buildContext({
      ...{ request, conf: parseNetConf(request.config), store: counted, memory: this.memory, env: {} },
      ...{ log: silentLogger, now: () => new Date(), mark: noTimes, serialise: (action) => action() },
      openNetns: () => {
        throw new Error("no kernel here");
      },
    });
  }

  async add(container: string, pod?: string): Promise<{ calls: string[]; addresses: string[]; isStored: boolean }> {
    this.calls.length = 0;
    const context = this.context("ADD", container, pod);
    const { booking } = book(context, async (here, existing, storeWith) => {
      const isNew = existing.then((found) => {
        if (found !== undefined) throw new Error("not new");
      });
      const also = storeWith((networks) => ({
        identity: here.identity,
        labels: {},
        spec: {
          ipNetworks: networks.map(cidrText),
          profiles: ["net1"],
          interfaceName: "cali1",
          mac: "02:00:00:00:00:01",
        },
      }));
      return ipamAdd(await behindGate(here, isNew), here.conf.ipam, { also });
    });
    const { assigned, stored } = await booking;
    const calls = this.calls.toSorted();
    const addresses = assigned.ips.map(({ address }) => address.address as string);
    return { calls, addresses, isStored: stored !== undefined };
  }

  async del(container: string, pod?: string): Promise<string[]> {
    this.calls.length = 0;
    await del(this.context("DEL", container, pod));
    return this.calls.toSorted();
  }

  async left(): Promise<{ endpoints: number; handles: number; allocations: number }> {
    const [endpoints, handles, blocks] = await Promise.all([
      this.store.list({ type: "resource", kind: "WorkloadEndpoint" }),
      this.store.list({ type: "ipamHandle" }),
      this.store.list({ type: "block" }),
    ]);
    const used = blocks.items.flatMap(({ value }) => value.allocations.filter((index) => index !== null));
    return { endpoints: endpoints.items.length, handles: handles.items.length, allocations: used.length };
  }
}

for (const pod of [undefined, "web"])
  test(`a served ADD is one write, and so is its DEL (${pod ?? "container"})`, async () => {
    const bench = await Bench.create();
    await bench.add("c0", pod && `${pod}-0`); // claims the block
    await bench.add("c1", pod && `${pod}-1`); // learns that it is its own
    const served = await bench.add("c2", pod && `${pod}-2`);
    expect(served).toMatchObject({ calls: ["together"], isStored: true });
    expect(await bench.left()).toEqual({ endpoints: 3, handles: 3, allocations: 3 });
    for (const n of [2, 1, 0]) expect(await bench.del(`c${n}`, pod && `${pod}-${n}`)).toEqual(["together"]);
    expect(await bench.left()).toEqual({ endpoints: 0, handles: 0, allocations: 0 });
  });

test("both families: a write each for ADD, one for DEL", async () => {
  const bench = await Bench.create({ assign_ipv4: "true", assign_ipv6: "true" });
  await bench.add("c0");
  await bench.add("c1");
  const served = await bench.add("c2");
  expect(served).toMatchObject({ calls: ["together", "together"], isStored: true });
  expect(served.addresses).toHaveLength(2);
  expect(await bench.del("c2")).toEqual(["together"]);
  expect(await bench.left()).toEqual({ endpoints: 2, handles: 2, allocations: 4 });
});

test("a closed gate, a disabled pool, a new reservation: seen by the very next ADD, and nothing written before", async () => {
  const bench = await Bench.create();
  for (const n of [0, 1, 2]) await bench.add(`c${n}`);
  await bench.put("ClusterInformation", "default", { datastoreReady: false });
  await expect(bench.add("c3")).rejects.toThrow("not ready");
  expect(await bench.left()).toEqual({ endpoints: 3, handles: 3, allocations: 3 });
  await bench.put("ClusterInformation", "default", { datastoreReady: true });
  await bench.put("IPReservation", "r", { reservedCIDRs: ["10.65.0.0/25"] });
  expect((await bench.add("c4")).addresses[0]).toMatch(/^10\.65\.0\.(12[89]|1[3-9]\d|2\d\d)$/);
  await bench.put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26, disabled: true });
  await expect(bench.add("c5")).rejects.toThrow("cannot find a qualified ippool");
  expect((await bench.del("c4")).includes("together")).toBe(true);
  expect(await bench.left()).toEqual({ endpoints: 3, handles: 3, allocations: 3 });
});

test("an endpoint that is there already is found, though it was presumed not to be", async () => {
  const bench = await Bench.create();
  for (const n of [0, 1, 2]) await bench.add(`c${n}`);
  await expect(bench.add("c1")).rejects.toThrow("not new");
  expect(await bench.left()).toEqual({ endpoints: 3, handles: 3, allocations: 3 });
});

test("a DEL that nothing is known of reads, and a pod's newer container keeps its endpoint", async () => {
  const bench = await Bench.create();
  await bench.add("old", "web");
  bench.memory.recall.forget();
  expect(await bench.del("old", "web")).toContain("get");
  expect(await bench.left()).toEqual({ endpoints: 0, handles: 0, allocations: 0 });
  await bench.add("new", "web");
  await bench.del("old", "web");
  expect(await bench.left()).toEqual({ endpoints: 1, handles: 1, allocations: 1 });
  await bench.del("new", "web");
  expect(await bench.left()).toEqual({ endpoints: 0, handles: 0, allocations: 0 });
  expect(await bench.del("new", "web")).not.toContain("together"); // nothing there is fine
});
