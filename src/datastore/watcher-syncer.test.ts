import type { Database } from "bun:sqlite";
import { describe, expect, test } from "bun:test";
import { API_VERSION, type KindName, keyPath, type Resource, type StoredKey } from "../model/index.ts";
import type { Datastore, ListResult, Stored, Watch, WatchEvent } from "./datastore.ts";
import {
  Compacted,
  DatastoreFailure,
  NotServed,
  Unauthorized,
  Unavailable,
  UnreadableEntry,
  Unsupported,
} from "./errors.ts";
import { openSqliteInMemory } from "./sqlite/open.ts";
import type { SyncerName, SyncerSink, SyncerUpdate, SyncStatus } from "./syncer.ts";
import { createSyncer, type SyncerOptions } from "./syncers.ts";
import { passThrough } from "../model/index.ts";
import { WatcherSyncer, type WatcherSyncerOptions } from "./watcher-syncer.ts";

const resource = (
  kind: KindName,
  name: string,
  spec: unknown = {},
  namespace?: string,
): { key: StoredKey; value: Resource } => ({
  key: { type: "resource", kind, name, namespace },
  value: { apiVersion: API_VERSION, kind, metadata: { name, namespace }, spec },
});

/** Records the calls of a sink: `wait-for-ready`, `+path`, `~path`, `-path`. */
class Listener implements SyncerSink {
  readonly received: string[] = [];
  readonly values = new Map<string, unknown>();
  readonly unreadable: string[] = [];
  readonly batches: number[] = [];
  status: SyncStatus | undefined;
  #waiting: (() => void)[] = [];

  onStatus(status: SyncStatus): void {
    this.status = status;
    this.received.push(status);
    this.#changed();
  }
  onUpdates(updates: readonly SyncerUpdate[]): void {
    expect(this.status).not.toBe("wait-for-ready");
    this.batches.push(updates.length);
    for (const { key, value, change } of updates) {
      const path = keyPath(key);
      const short = path.replace("/calico/resources/v3/projectcalico.org/", "");
      expect(this.values.has(path)).toBe(change !== "new"); // "new" only for unknown keys, other changes only for known ones
      expect(value === undefined).toBe(change === "deleted");
      this.received.push(`${{ new: "+", updated: "~", deleted: "-" }[change]}${short}`);
      if (value === undefined) this.values.delete(path);
      else this.values.set(path, value);
    }
    this.#changed();
  }
  onUnreadable(path: string, reason: string): void {
    this.unreadable.push(`${path}: ${reason}`);
  }
  async until(what: () => boolean): Promise<void> {
    while (!what()) await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }
  #changed(): void {
    for (const resume of this.#waiting.splice(0)) resume();
  }
}

const FAST = { watchRetryMs: 1, listRetryMs: 1, pollMs: 2, outageAfterMs: 600_000, goneAfterMs: 0 };

/** A datastore that follows a script: one step per list or watch. */
class Scripted {
  readonly calls: string[] = [];
  readonly #steps: (readonly ["list" | "watch", unknown])[];
  constructor(steps: readonly (readonly ["list" | "watch", unknown])[]) {
    this.#steps = [...steps];
  }
  get done(): boolean {
    return this.#steps.length === 0;
  }
  #take(what: "list" | "watch", detail: string): unknown {
    const step = this.#steps[0];
    this.calls.push(`${what}${detail}`);
    if (step === undefined) return undefined;
    if (step[0] !== what) throw new Error(`script wanted ${step[0]}, got ${what} after ${this.calls.join(", ")}`);
    this.#steps.shift();
    if (step[1] instanceof Error) throw step[1];
    return step[1];
  }
  readonly datastore = {
    name: "sqlite",
    list: async () => (this.#take("list", "") ?? { items: [], revision: "end" }) as ListResult,
    watch: async (_query: unknown, options: { after?: string; signal: AbortSignal }) => {
      const given = this.#take("watch", ` ${options.after}`) as (WatchEvent[] | Error)[] | undefined;
      return {
        async *[Symbol.asyncIterator]() {
          for (const step of given ?? [])
            if (step instanceof Error) throw step;
            else yield step;
          if (given === undefined)
            await new Promise<void>((resolve) =>
              options.signal.addEventListener("abort", () => resolve(), { once: true }),
            );
        },
        [Symbol.asyncDispose]: async () => {},
      } as Watch;
    },
  } as unknown as Datastore;
}

const item = (name: string, revision: string): Stored => ({ ...resource("Node", name), revision }) as Stored;
const added = (name: string, revision: string): WatchEvent => ({ type: "added", item: item(name, revision), revision });

async function runScript(
  steps: readonly (readonly ["list" | "watch", unknown])[],
  options: WatcherSyncerOptions = {},
): Promise<{ received: string[]; calls: string[]; listener: Listener }> {
  const script = new Scripted(steps);
  const listener = new Listener();
  const abort = new AbortController();
  const syncer = new WatcherSyncer(
    script.datastore,
    () => [{ query: { type: "resource", kind: "Node" }, processor: passThrough }],
    { timings: FAST, ...options },
  );
  const running = syncer.run(listener, abort.signal);
  while (!script.done || !script.calls.at(-1)?.startsWith("watch")) await Bun.sleep(1);
  await Bun.sleep(2);
  abort.abort();
  await running;
  return { received: listener.received.map((line) => line.replace("nodes/", "")), calls: script.calls, listener };
}

describe("DM-117 one kind is listed and watched, and relisted without repeats", () => {
  test("a repeated list emits only the differences, and deletes missing keys", async () => {
    const { received, calls } = await runScript([
      ["list", { items: [item("a", "1"), item("b", "2"), item("c", "3")], revision: "3" }],
      ["watch", [[added("d", "4")], new Compacted("4")]],
      ["list", { items: [item("a", "1"), item("b", "5"), item("e", "6")], revision: "6" }],
    ]);
    expect(received).toEqual(["wait-for-ready", "resync", "+a", "+b", "+c", "in-sync", "+d", "~b", "+e", "-c", "-d"]);
    expect(calls).toEqual(["list", "watch 3", "list", "watch 6"]);
  });

  test("after a lost connection the watch resumes after its last revision, which bookmarks advance", async () => {
    const { calls, received } = await runScript([
      ["list", { items: [], revision: "3" }],
      ["watch", [[added("a", "4")], [{ type: "bookmark", revision: "9" }], new Unavailable("x", "refused")]],
      ["watch", new Unavailable("x", "refused")],
    ]);
    expect(calls).toEqual(["list", "watch 3", "watch 9", "watch 9"]);
    expect(received).toEqual(["wait-for-ready", "resync", "in-sync", "+a"]);
  });

  test("a failed list is retried; a watch is retried five times after other errors, then a list follows", async () => {
    const broken = new DatastoreFailure("broken");
    const { calls } = await runScript([
      ["list", broken],
      ["list", { items: [], revision: "3" }],
      ...Array.from({ length: 5 }, () => ["watch", broken] as const),
      ["list", { items: [], revision: "7" }],
    ]);
    expect(calls).toEqual(["list", "list", "watch 3", "watch 3", "watch 3", "watch 3", "watch 3", "list", "watch 7"]);
  });

  test("a watch without permission is retried at the same revision, without a list", async () => {
    const refused = new Unauthorized("may not watch");
    const { calls } = await runScript([
      ["list", { items: [], revision: "3" }],
      ...Array.from({ length: 7 }, () => ["watch", refused] as const),
    ]);
    expect(new Set(calls.slice(1))).toEqual(new Set(["watch 3"])); // an eighth call may have started
    expect(calls.slice(0, 8)).toEqual(["list", ...Array.from({ length: 7 }, () => "watch 3")]);
  });

  test("a watch that the server ends is resumed after its last revision", async () => {
    const { calls } = await runScript([
      ["list", { items: [], revision: "3" }],
      ["watch", []],
      ["watch", [[{ type: "bookmark", revision: "5" }]]],
      ["watch", []],
    ]);
    expect(calls).toEqual(["list", "watch 3", "watch 3", "watch 5", "watch 5"]);
  });

  test("an entry that cannot be parsed counts as deleted and is reported", async () => {
    const { key } = resource("Node", "a");
    const { received, listener } = await runScript([
      ["list", { items: [item("a", "1")], revision: "1" }],
      ["watch", [[{ type: "error", error: new UnreadableEntry(keyPath(key), "no JSON", key), revision: "2" }]]],
    ]);
    expect(received).toEqual(["wait-for-ready", "resync", "+a", "in-sync", "-a"]);
    expect(listener.unreadable).toHaveLength(1);
  });

  test("deleteAtEnd emits the deletion of all keys at the end", async () => {
    const steps = [["list", { items: [item("a", "1")], revision: "1" }]] as const;
    expect((await runScript(steps)).received.at(-1)).toBe("in-sync");
    expect((await runScript(steps, { deleteAtEnd: true })).received.at(-1)).toBe("-a");
  });
});

describe("DM-119 what cannot be watched or is lost", () => {
  test("a list without revision, or a kind without watch, is polled and stays in sync", async () => {
    const { received, calls } = await runScript([
      ["list", { items: [], revision: "" }],
      ["list", { items: [item("a", "1")], revision: "5" }],
      ["watch", new Unsupported("watch", "Node")],
      ["list", { items: [item("a", "1")], revision: "6" }],
    ]);
    expect(received).toEqual(["wait-for-ready", "resync", "in-sync", "+a"]);
    expect(calls).toEqual(["list", "list", "watch 5", "list", "watch 6"]);
  });

  test("after ten minutes of failures the status returns to wait-for-ready, and later to in-sync", async () => {
    let now = 0;
    const lasting: boolean[] = [];
    const gone = new Unavailable("x", "refused");
    const steps = [
      ["list", { items: [item("a", "1"), item("c", "1")], revision: "1" }],
      ["watch", gone],
      ["watch", gone],
      ["list", { items: [item("b", "2"), item("c", "1")], revision: "2" }],
    ] as const;
    const options = { now: () => (now += 400_000), onFailure: (_: unknown, l: boolean) => lasting.push(l) };
    const { received, calls } = await runScript(steps, options);
    expect(received).toEqual([
      "wait-for-ready",
      "resync",
      "+a",
      "+c",
      "in-sync",
      "wait-for-ready",
      "resync",
      "+b",
      "-a",
      "in-sync",
    ]);
    expect(calls).toEqual(["list", "watch 1", "watch 1", "list", "watch 2"]);
    expect(lasting).toEqual([false, true]);
    now = 0;
    const dropped = await runScript(steps, { ...options, deleteOnOutage: true });
    expect(dropped.received).toEqual([
      "wait-for-ready",
      "resync",
      "+a",
      "+c",
      "in-sync",
      "-a",
      "-c",
      "wait-for-ready",
      "resync",
      "+b",
      "+c",
      "in-sync",
    ]);
  });
});

test("DM-120 a kind that the server does not serve counts as in sync and is polled", async () => {
  const { received, calls } = await runScript([
    ["list", new NotServed("Node")],
    ["list", { items: [item("a", "1")], revision: "1" }],
  ]);
  expect(received).toEqual(["wait-for-ready", "resync", "in-sync", "+a"]);
  expect(calls).toEqual(["list", "list", "watch 1"]);
});

test("a kind that is served later is listed as soon as its definition is installed", async () => {
  const installed = Promise.withResolvers<void>();
  const untilServed = () => installed.promise;
  const script = runScript(
    [
      ["list", new NotServed("Node", { isOptional: true, untilServed })],
      ["list", { items: [item("a", "1")], revision: "1" }],
      ["watch", [new NotServed("Node")]],
      ["list", new NotServed("Node", { isOptional: true, untilServed })],
      ["list", { items: [], revision: "9" }],
    ],
    { timings: { ...FAST, pollMs: 3_600_000 } },
  );
  setTimeout(() => installed.resolve(), 20);
  const { received, calls } = await script;
  expect(received).toEqual(["wait-for-ready", "resync", "in-sync", "+a", "-a"]);
  expect(calls).toEqual(["list", "list", "watch 1", "list", "list", "watch 9"]);
});

describe("on a real datastore", () => {
  async function follow(
    name: SyncerName,
    options: SyncerOptions,
    entries: readonly { key: StoredKey; value: unknown }[],
  ) {
    const datastore = await openSqliteInMemory();
    for (const entry of entries) await datastore.apply(entry as never);
    const listener = new Listener();
    const abort = new AbortController();
    const running = createSyncer(name, datastore, options).run(listener, abort.signal);
    await listener.until(() => listener.status === "in-sync");
    const stop = async () => {
      abort.abort();
      await running;
      await datastore.close();
    };
    return { datastore, listener, stop };
  }

  const everything = [
    resource("ClusterInformation", "default", { clusterGUID: "g", datastoreReady: true }),
    resource("FelixConfiguration", "default", { vxlanPort: 4790 }),
    resource("GlobalNetworkPolicy", "deny", { selector: "all()", types: ["Ingress"] }),
    resource("NetworkPolicy", "web", { selector: "a == 'b'" }, "ns1"),
    resource("StagedGlobalNetworkPolicy", "later", { stagedAction: "Set" }),
    resource("Tier", "default", { order: 1_000_000 }),
    resource("Profile", "kns.ns1", { labelsToApply: { "pcns.a": "b" } }),
    resource("IPPool", "p", { cidr: "10.65.0.0/16" }),
    resource("NetworkSet", "s", { nets: ["10.0.0.0/8"] }, "ns1"),
    resource("GlobalNetworkSet", "g", { nets: ["10.0.0.0/8"] }),
    resource("WorkloadEndpoint", "n1-k8s-web-eth0", { interfaceName: "cali1", ipNetworks: ["10.65.0.1/32"] }, "ns1"),
    resource("HostEndpoint", "h", { node: "n1", interfaceName: "eth0" }),
    resource("Node", "n1", { bgp: { ipv4Address: "192.0.2.1/24" } }),
    resource("Node", "n2", {}),
    resource("BGPConfiguration", "default", { asNumber: 64512 }),
    resource("BGPPeer", "tor", { peerIP: "192.0.2.254" }),
    resource("BGPFilter", "f", {}),
    resource("CalicoNodeStatus", "st", { node: "n1" }),
    {
      key: { type: "blockAffinity", affinityType: "host", host: "n1", cidr: "10.65.0.0/26" },
      value: { state: "confirmed", deleted: false },
    },
    {
      key: { type: "blockAffinity", affinityType: "host", host: "n2", cidr: "10.65.0.64/26" },
      value: { state: "confirmed", deleted: false },
    },
    {
      key: { type: "block", cidr: "10.65.0.0/26" },
      value: {
        cidr: "10.65.0.0/26",
        allocations: [],
        unallocated: [],
        attributes: [],
        sequenceNumber: 0n,
        sequenceNumberForAllocation: {},
        deleted: false,
      },
    },
  ] as readonly { key: StoredKey; value: unknown }[];

  const v3 = "/calico/resources/v3/projectcalico.org/";
  test("DM-123 DM-124 felix receives policies, endpoints, sets, pools, nodes, blocks and settings", async () => {
    const { listener, stop } = await follow("felix", {}, everything);
    expect([...listener.values.keys()].sort()).toEqual(
      [
        "/calico/ipam/v2/assignment/ipv4/block/10.65.0.0-26",
        "/calico/v1/Ready",
        "/calico/v1/config/ClusterGUID",
        "/calico/v1/config/VXLANPort",
        "/calico/v1/host/n1/bird_ip",
        "/calico/v1/host/n1/endpoint/h",
        "/calico/v1/host/n1/workload/k8s/ns1%2fweb/endpoint/eth0",
        "/calico/v1/ipam/v4/pool/10.65.0.0-16",
        "/calico/v1/netset/g",
        "/calico/v1/netset/ns1%2fs",
        "/calico/v1/policy/GlobalNetworkPolicy//deny",
        "/calico/v1/policy/NetworkPolicy/ns1/web",
        "/calico/v1/policy/StagedGlobalNetworkPolicy//later",
        "/calico/v1/policy/profile/kns.ns1/labels",
        "/calico/v1/policy/profile/kns.ns1/rules",
        "/calico/v1/policy/tier/default/metadata",
        `${v3}bgpconfigurations/default`,
        `${v3}bgppeers/tor`,
        `${v3}nodes/n1`,
        `${v3}nodes/n2`,
        `${v3}profiles/kns.ns1`,
      ].sort(),
    );
    await stop();
    const alone = await follow("felix", { isLeader: false }, everything);
    expect([...alone.listener.values.keys()].sort()).toEqual([
      "/calico/v1/Ready",
      "/calico/v1/config/ClusterGUID",
      "/calico/v1/config/VXLANPort",
    ]);
    await alone.stop();
  });

  test("DM-125 bgp receives pools, nodes, peers, filters and this host's affinities", async () => {
    const { listener, stop } = await follow("bgp", { hostname: "n1" }, everything);
    expect([...listener.values.keys()].sort()).toEqual(
      [
        "/calico/ipam/v2/host/n1/ipv4/block/10.65.0.0-26",
        "/calico/v1/ipam/v4/pool/10.65.0.0-16",
        `${v3}bgpconfigurations/default`,
        `${v3}bgpfilters/f`,
        `${v3}bgppeers/tor`,
        `${v3}nodes/n1`,
        `${v3}nodes/n2`,
      ].sort(),
    );
    await stop();
  });

  test("DM-126 the tunnel allocator receives pools and its node, or all nodes", async () => {
    for (const [options, nodes] of [
      [{ hostname: "n1" }, ["n1"]],
      [{}, ["n1", "n2"]],
    ] as const) {
      const { listener, stop } = await follow("tunnel-ip-allocation", options, everything);
      expect([...listener.values.keys()].sort()).toEqual([
        ...nodes.map((node) => `${v3}nodes/${node}`),
        "/calico/v1/ipam/v4/pool/10.65.0.0-16",
      ]);
      await stop();
    }
  });

  test("DM-127 the status reporter receives CalicoNodeStatus resources", async () => {
    const { listener, stop } = await follow("node-status", {}, everything);
    expect([...listener.values.keys()]).toEqual([`${v3}caliconodestatuses/st`]);
    await stop();
  });

  test("DM-118 the status is in-sync when every kind is; then changes follow", async () => {
    const { datastore, listener, stop } = await follow("felix", {}, everything);
    expect(listener.received.filter((line) => !/^[+~-]/.test(line))).toEqual(["wait-for-ready", "resync", "in-sync"]);
    expect(listener.received.at(-1)).toBe("in-sync");
    const peer = resource("BGPPeer", "other", { peerIP: "192.0.2.253" });
    await datastore.create(peer as never);
    await listener.until(() => listener.values.has(`${v3}bgppeers/other`));
    await datastore.delete(peer.key);
    await listener.until(() => !listener.values.has(`${v3}bgppeers/other`));
    // The endpoint becomes unreadable: it is deleted, and the reason is reported.
    const wep = resource(
      "WorkloadEndpoint",
      "n1-k8s-web-eth0",
      { interfaceName: "cali1", ipNetworks: ["rubbish"] },
      "ns1",
    );
    await datastore.apply(wep as never);
    await listener.until(() => !listener.values.has("/calico/v1/host/n1/workload/k8s/ns1%2fweb/endpoint/eth0"));
    expect(listener.unreadable[0]).toContain("ipNetworks");
    await stop();
  });

  test("DM-121 updates come in batches of at most a thousand, all before in-sync", async () => {
    const nodes = Array.from({ length: 2500 }, (_, i) => resource("Node", `n${i}`));
    const { listener, stop } = await follow("tunnel-ip-allocation", {}, nodes);
    expect(Math.max(...listener.batches)).toBeLessThanOrEqual(1000);
    expect(listener.batches.length).toBeLessThan(10);
    expect(listener.values.size).toBe(2500);
    expect(listener.received.indexOf("in-sync")).toBe(listener.received.length - 1);
    await stop();
  });
});

test("DM-105 DM-106 with the Kubernetes datastore felix also receives policies, endpoint slices and services", async () => {
  const service = resource("KubernetesService", "web", { clusterIP: "10.96.0.1" }, "ns1");
  const slice = resource("KubernetesEndpointSlice", "web-1", { addressType: "IPv4" }, "ns1");
  const asked: string[] = [];
  const abort = new AbortController();
  const datastore = {
    name: "kubernetes",
    list: async (query: { kind?: string }) => {
      asked.push(query.kind ?? "block");
      const items = [service, slice].filter(({ key }) => key.type === "resource" && key.kind === query.kind);
      return { items: items.map((entry) => ({ ...entry, revision: "1" })), revision: "1" };
    },
    watch: async (_query: unknown, { signal }: { signal: AbortSignal }) => ({
      async *[Symbol.asyncIterator]() {
        yield [];
        await new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve(), { once: true }));
      },
      [Symbol.asyncDispose]: async () => {},
    }),
  } as unknown as Datastore;
  const listener = new Listener();
  const running = createSyncer("felix", datastore).run(listener, abort.signal);
  await listener.until(() => listener.status === "in-sync");
  abort.abort();
  await running;
  expect(asked).toEqual(
    expect.arrayContaining([
      "KubernetesNetworkPolicy",
      "KubernetesClusterNetworkPolicy",
      "KubernetesEndpointSlice",
      "KubernetesService",
      "LiveMigration",
    ]),
  );
  expect([...listener.values.values()]).toEqual(expect.arrayContaining([service.value, slice.value]));
});

test("LiveMigrations are watched in etcd too, where OpenStack writes them", async () => {
  const store = await openSqliteInMemory();
  const migration = { source: { workloadEndpoint: { hostname: "h", orchestratorID: "openstack", workloadID: "w" } } };
  await store.create(resource("LiveMigration", "m", migration, "ns") as never);
  const listener = new Listener();
  const abort = new AbortController();
  const running = createSyncer("felix", store).run(listener, abort.signal);
  await listener.until(() => listener.status === "in-sync");
  abort.abort();
  await running;
  await store.close();
  expect([...listener.values.values()]).toContainEqual(expect.objectContaining({ kind: "LiveMigration" }));
});

test("an entry that is unreadable in the first list is reported by key, like one that becomes unreadable later", async () => {
  let db: Database | undefined;
  const store = await openSqliteInMemory({ onOpen: (opened) => (db = opened) });
  const scribble = (name: string) =>
    db?.run("UPDATE version SET value = 'no JSON' WHERE path LIKE ? AND value IS NOT NULL", [`%/ippools/${name}`]);
  await store.create(resource("IPPool", "early", { cidr: "10.1.0.0/16" }) as never);
  scribble("early");
  const listener = new Listener();
  const abort = new AbortController();
  const running = createSyncer("felix", store).run(listener, abort.signal);
  await listener.until(() => listener.status === "in-sync");
  expect(listener.unreadable).toEqual([
    expect.stringMatching(/^\/calico\/resources\/v3\/projectcalico.org\/ippools\/early: .*not JSON/),
  ]);
  abort.abort();
  await running;
  await store.close();
});
