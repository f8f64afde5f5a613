// Checks which calls ADD and DEL make to the datastore, with and without the CNI service's cache. There are no network
// namespaces in this test: an ADD fails when it opens the pod's namespace, after its addresses were assigned, and is undone.
import { expect, test } from "bun:test";
import { type Datastore, openSqliteInMemory } from "../../datastore/index.ts";
import { KeyedMutex } from "../../lib/keyed-mutex.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { API_VERSION, type KindName, type Resource } from "../../model/index.ts";
import { add } from "./add.ts";
import { assignWorkloadAddresses } from "../ipam/workload-addresses.ts";
import type { CniContext } from "../context.ts";
import { del } from "./del.ts";
import { endpointEntry } from "./endpoint.ts";
import { parseNetConf } from "../request/net-conf.ts";
import { NodeCache } from "../service/node-cache.ts";
import { buildContext } from "../open-context.ts";
import { parseRequest } from "../request/request.ts";
import { hostNetwork } from "../request/result.ts";
import { readWorkload } from "./workload.ts";

class Bench implements AsyncDisposable {
  readonly calls: string[] = [];
  readonly #mutex = new KeyedMutex();
  private constructor(
    readonly store: Datastore,
    readonly ipam: object,
    readonly cache: NodeCache | undefined,
  ) {}

  static async create(isCaching: boolean, ipam: object = {}): Promise<Bench> {
    const store = await openSqliteInMemory();
    const cache = isCaching ? new NodeCache("n1", { store, log: silentLogger }) : undefined;
    const bench = new Bench(store, ipam, cache);
    await bench.put("Node", "n1", {});
    await bench.put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26 });
    await bench.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122 });
    await bench.put("Profile", "net1", {});
    await bench.put("ClusterInformation", "default", { datastoreReady: true });
    await bench.attach("first"); // claims the blocks
    if (cache !== undefined) await eventually(() => cache.isDatastoreReady && cache.hasProfile("net1"));
    return bench;
  }

  async put(kind: KindName, name: string, spec: object): Promise<void> {
    const value = { apiVersion: API_VERSION, kind, metadata: { name }, spec } as Resource;
    await this.store.apply({ key: { type: "resource", kind, name }, value });
  }

  context(
    command: "ADD" | "DEL",
    container: string,
    pod?: string,
    mark: (step: string) => void = () => {},
  ): CniContext {
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
        return (...args: unknown[]) => {
          this.calls.push(name);
          return member.apply(target, args);
        };
      },
    });
    return buildContext({
      ...{ request, conf: parseNetConf(request.config), store: counted, cache: this.cache, env: {}, signal: undefined },
      ...{ log: silentLogger, now: () => new Date(), mutex: this.#mutex, mark },
      openNetns: () => {
        throw new Error("no kernel here");
      },
    });
  }

  /** @returns the calls until the addresses were assigned */
  async add(container: string, pod?: string): Promise<string[]> {
    this.calls.length = 0;
    let assigned: string[] = [];
    const mark = (step: string): void => {
      if (step === "address assigned") assigned = this.calls.toSorted();
    };
    await expect(add(this.context("ADD", container, pod, mark))).rejects.toThrow("no kernel here");
    return assigned;
  }

  /** Stores what an ADD stores, without its interface. */
  async attach(container: string, pod?: string): Promise<void> {
    const context = this.context("ADD", container, pod);
    const workload = await readWorkload(context);
    await assignWorkloadAddresses(context, workload, undefined, (addresses) => {
      const networks = addresses.map((text) => hostNetwork({ address: text.split("/")[0] as never, length: 0 }));
      const draft = workload.draft({ hostName: "cali1", mac: "02:00:00:00:00:01", networks });
      return [{ op: "create", entry: endpointEntry(this.store, draft, undefined, context.now()) }];
    });
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

  async [Symbol.asyncDispose](): Promise<void> {
    await this.cache?.[Symbol.asyncDispose]();
    await this.store.close();
  }
}

for (const pod of [undefined, "web"])
  test(`the service's ADD is one write and no read; its DEL is one write (${pod ?? "container"})`, async () => {
    await using bench = await Bench.create(true);
    expect(await bench.add("c1", pod)).toEqual(["transact"]);
    expect(await bench.left()).toEqual({ endpoints: 1, handles: 1, allocations: 1 }); // those of "first"
    await bench.attach("c2", pod);
    expect(await bench.left()).toEqual({ endpoints: 2, handles: 2, allocations: 2 });
    // The endpoint, the handle, and the handle that very old versions used.
    expect(await bench.del("c2", pod)).toEqual(["get", "get", "get", "transact"]);
    expect(await bench.left()).toEqual({ endpoints: 1, handles: 1, allocations: 1 });
  });

test("with both families, ADD is one write per family and DEL is one write", async () => {
  await using bench = await Bench.create(true, { assign_ipv4: "true", assign_ipv6: "true" });
  expect(await bench.add("c1")).toEqual(["transact", "transact"]);
  await bench.attach("c2");
  expect(await bench.left()).toEqual({ endpoints: 2, handles: 2, allocations: 4 });
  expect((await bench.del("c2")).filter((call) => call === "transact")).toHaveLength(1);
  expect(await bench.left()).toEqual({ endpoints: 1, handles: 1, allocations: 2 });
});

for (const isCaching of [true, false])
  test(`if the datastore is not ready or the pool is disabled, ADD fails and writes nothing (${isCaching ? "service" : "plugin"})`, async () => {
    await using bench = await Bench.create(isCaching);
    const failing = async (container: string): Promise<unknown> => {
      const failure = await add(bench.context("ADD", container)).then(
        () => undefined,
        (error: unknown) => error,
      );
      expect(await bench.left()).toEqual({ endpoints: 1, handles: 1, allocations: 1 });
      return failure;
    };
    // The cache is updated with a delay.
    const eventuallyFails = async (text: string) =>
      eventually(async () => String(await failing(`c-${performance.now()}`.replace(".", "-"))).includes(text));
    await bench.put("ClusterInformation", "default", { datastoreReady: false });
    await eventuallyFails("not ready");
    await bench.put("ClusterInformation", "default", { datastoreReady: true });
    await bench.put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26, disabled: true });
    await eventuallyFails("cannot find a qualified ippool");
  });

test("an ADD that would fail because of an outdated cache reads the datastore first", async () => {
  await using bench = await Bench.create(true);
  await bench.put("ClusterInformation", "default", { datastoreReady: false });
  await eventually(() => bench.cache?.isDatastoreReady === false);
  // The cache has not received this change yet.
  await bench.put("ClusterInformation", "default", { datastoreReady: true });
  expect(await bench.add("c1")).toContain("transact");
});

test("if an endpoint exists although the service assumed it does not, no second address is assigned", async () => {
  await using bench = await Bench.create(true);
  await bench.attach("c1");
  const result = add(bench.context("ADD", "c1"));
  await expect(result).rejects.toThrow("no kernel here"); // a repeated ADD, which checks the interface
  expect((await bench.store.list({ type: "ipamHandle" })).items.map(({ value }) => Object.values(value.block))).toEqual(
    [[1], [1]],
  );
});

test("DEL without addresses succeeds, and the endpoint of a pod's newer container is kept", async () => {
  await using bench = await Bench.create(false);
  await bench.attach("new", "web");
  await bench.del("old", "web");
  expect(await bench.left()).toEqual({ endpoints: 2, handles: 2, allocations: 2 });
  await bench.del("new", "web");
  expect(await bench.left()).toEqual({ endpoints: 1, handles: 1, allocations: 1 });
  expect(await bench.del("new", "web")).not.toContain("transact");
});
