// Defines the test suite that all datastore drivers must pass. A driver lists the features that it lacks.
import { afterAll, afterEach, beforeAll, describe, expect, test } from "bun:test";
import {
  AlreadyExists,
  Compacted,
  Conflict,
  type Datastore,
  type Entry,
  NotFound,
  type Stored,
  type UnreadableEntry,
  Unsupported,
  ValidationFailed,
  type WatchEvent,
} from "../../src/datastore/index.ts";
import { parseCidr } from "../../src/lib/ip/ip.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import type { BlockKey, Resource, ResourceKey, StoredKey, StoredQuery } from "../../src/model/index.ts";
import { pool, poolKey } from "./entries.ts";

export interface Subject {
  readonly store: Datastore;
  /** A second connection to the same data, as of another process. */
  readonly other: Datastore;
  /** Writes text as a value, without any check. */
  putRaw(path: string, text: string): Promise<void>;
  /** Deletes the history up to a revision. */
  compact(revision: string): Promise<void>;
  /** Deletes all entries. */
  clear(): Promise<void>;
  stop(): Promise<void>;
}

/** Features that a driver may lack. If there is a call for the feature, it throws `Unsupported`. */
export type MissingFeature =
  | "watch"
  /** Old revisions cannot be read; a list at a revision returns that state or a newer one. */
  | "history"
  /** Felix's status keys, which expire, are not stored. */
  | "status"
  /** IPAM's host keys are not stored. */
  | "host markers"
  /** Invalid text cannot be stored, because the server checks a schema. */
  | "raw text"
  /** Watch events do not contain the previous value. */
  | "previous values"
  /** A watch from a future revision is not rejected, but waits for that revision. */
  | "future revision check"
  /** Several entries cannot be written atomically. */
  | "transactions";

export interface Driver {
  readonly name: string;
  readonly lacks: ReadonlySet<MissingFeature>;
  /** Number of changes that a slow consumer of a watch must receive. */
  readonly changes?: number;
  start(onUnreadable: (error: UnreadableEntry) => void): Promise<Subject>;
}

const setKey = (namespace: string, name: string): ResourceKey => ({
  type: "resource",
  kind: "NetworkSet",
  namespace,
  name,
});
const specOf = (entry: { readonly value: { readonly spec: unknown } }) => entry.value.spec as Record<string, unknown>;
const networkSet = (namespace: string, name: string): Entry<ResourceKey> => ({
  key: setKey(namespace, name),
  value: { apiVersion: "projectcalico.org/v3", kind: "NetworkSet", metadata: { name, namespace }, spec: { nets: [] } },
});
const POOLS = { type: "resource", kind: "IPPool" } as const;
const SETS = { type: "resource", kind: "NetworkSet" } as const;
const names = (items: readonly Stored[]) =>
  items.map(({ key }) => (key.type === "resource" ? `${key.namespace ?? ""}/${key.name}` : key.type));
const fault = (promise: Promise<unknown>): Promise<unknown> =>
  promise.then(
    () => undefined,
    (error: unknown) => error,
  );

export function contract(driver: Driver): void {
  describe(driver.name, () => {
    let subject: Subject;
    let store: Datastore;
    const lacks = (feature: MissingFeature) => driver.lacks.has(feature);
    const unreadable: UnreadableEntry[] = [];
    beforeAll(async () => {
      subject = await driver.start((error) => unreadable.push(error));
      store = subject.store;
    });
    afterAll(() => subject?.stop());
    afterEach(() => subject.clear());

    test("DM-087 a second create fails with AlreadyExists, which contains the existing entry", async () => {
      const written = await store.create(pool("a"));
      expect(await store.get(poolKey("a"))).toEqual(written);
      const error = await fault(store.create(pool("a", "10.9.0.0/16")));
      expect(error).toBeInstanceOf(AlreadyExists);
      expect((error as AlreadyExists).message).toBe("resource already exists: IPPool(a)");
      expect((error as AlreadyExists).existing).toEqual(written);
      expect(specOf(await store.get(poolKey("a")))).toMatchObject(specOf(pool("a")));
    });

    test("DM-087 update compares the revision, and fails with NotFound or with Conflict and the current value", async () => {
      expect(await fault(store.update({ ...pool("a"), revision: "1" }))).toBeInstanceOf(NotFound);
      const first = await store.create(pool("a"));
      const second = await store.update({ ...pool("a", "10.1.0.0/16"), revision: first.revision });
      expect(second.revision).not.toBe(first.revision);
      const error = await fault(store.update({ ...pool("a", "10.2.0.0/16"), revision: first.revision }));
      expect(error).toBeInstanceOf(Conflict);
      expect((error as Conflict).message).toBe("update conflict: IPPool(a)");
      expect((error as Conflict).current).toEqual(second);
      expect(specOf(await store.get(poolKey("a")))).toMatchObject(specOf(pool("a", "10.1.0.0/16")));
    });

    test("DM-087 an update without a revision, or with an invalid one, is rejected", async () => {
      await store.create(pool("a"));
      expect(await fault(store.update(pool("a")))).toBeInstanceOf(ValidationFailed);
      const error = await fault(store.update({ ...pool("a"), revision: "tomorrow" }));
      expect(error).toBeInstanceOf(ValidationFailed);
      expect((error as Error).message).toContain("ResourceVersion = 'tomorrow'");
    });

    test("DM-087 apply creates or overwrites, and ignores the revision", async () => {
      await store.apply({ ...pool("a"), revision: "99999" });
      const second = await store.apply({ ...pool("a", "10.1.0.0/16"), revision: "1" });
      expect(await store.get(poolKey("a"))).toEqual(second);
    });

    test("DM-087 delete returns the deleted entry, compares a given revision, and deletes exactly one key", async () => {
      expect(await fault(store.delete(poolKey("a")))).toBeInstanceOf(NotFound);
      const first = await store.create(pool("a"));
      await store.create(pool("a2"));
      const second = await store.update({ ...pool("a", "10.1.0.0/16"), revision: first.revision });
      const error = await fault(store.delete(poolKey("a"), { revision: first.revision }));
      expect(error).toBeInstanceOf(Conflict);
      expect(await store.delete(poolKey("a"), { revision: second.revision })).toEqual(second);
      expect(await fault(store.delete(poolKey("a"), { revision: second.revision }))).toBeInstanceOf(NotFound);
      expect(names((await store.list(POOLS)).items)).toEqual(["/a2"]);
    });

    if (driver.lacks.has("transactions"))
      test("transactions are not offered", () => {
        expect(store.transact).toBeUndefined();
      });
    else
      test("a transaction applies all writes or none, and reports the refused ones", async () => {
        const a = await store.create(pool("a"));
        const b = await store.create(pool("b"));
        const changed = { ...pool("a", "10.1.0.0/16"), revision: a.revision };
        const create = { op: "create", entry: pool("c") } as const;
        const remove = { op: "delete", key: poolKey("b"), revision: b.revision } as const;
        const done = await store.transact?.([{ op: "update", entry: changed }, remove, create]);
        expect(done?.done === true && done.revisions.length).toBe(3);
        expect(names((await store.list(POOLS)).items)).toEqual(["/a", "/c"]);
        const now = await store.get(poolKey("a"));
        expect(specOf(now)["cidr"]).toBe("10.1.0.0/16");
        expect(done?.done === true && done.revisions[0]).toBe(now.revision);
        // An old revision, a missing entry, an existing entry: each alone makes the transaction fail.
        expect(await store.transact?.([{ op: "create", entry: pool("d") }, create])).toEqual({
          done: false,
          refused: [1],
        });
        expect(
          await store.transact?.([
            { op: "update", entry: changed },
            { op: "create", entry: pool("d") },
          ]),
        ).toEqual({ done: false, refused: [0] });
        expect(await store.transact?.([remove, create, { op: "create", entry: pool("d") }])).toEqual({
          done: false,
          refused: [0, 1],
        });
        expect(names((await store.list(POOLS)).items)).toEqual(["/a", "/c"]);
      });

    test("a missing key fails with NotFound, which contains its name", async () => {
      const error = await fault(store.get(setKey("prod", "gone")));
      expect(error).toBeInstanceOf(NotFound);
      expect((error as Error).message).toBe("resource does not exist: NetworkSet(prod/gone)");
    });

    if (!lacks("history"))
      test("DM-088 get and list read old revisions until they are compacted", async () => {
        const first = await store.create(pool("a"));
        await store.create(pool("b"));
        const second = await store.update({ ...pool("a", "10.1.0.0/16"), revision: first.revision });
        await store.delete(poolKey("b"));
        const last = await store.create(pool("c"));
        expect(await store.get(poolKey("a"), { revision: first.revision })).toEqual(first);
        expect(names((await store.list(POOLS, { revision: second.revision })).items)).toEqual(["/a", "/b"]);
        expect((await store.list(POOLS, { revision: first.revision })).items).toEqual([first]);
        expect(names((await store.list(POOLS)).items)).toEqual(["/a", "/c"]);
        expect(names((await store.list(POOLS, { revision: "0" })).items)).toEqual(["/a", "/c"]);
        expect(await fault(store.get(poolKey("c"), { revision: second.revision }))).toBeInstanceOf(NotFound);
        await subject.compact(last.revision);
        expect(await fault(store.list(POOLS, { revision: second.revision }))).toBeInstanceOf(Compacted);
        expect(await fault(store.get(poolKey("a"), { revision: first.revision }))).toBeInstanceOf(Compacted);
        expect(names((await store.list(POOLS, { revision: last.revision })).items)).toEqual(["/a", "/c"]);
        const future = String(Number(last.revision) + 1000);
        expect(await fault(store.list(POOLS, { revision: future }))).toBeInstanceOf(ValidationFailed);
      });

    test("DM-088 list selects by kind, namespace, name and prefix of the name", async () => {
      for (const [namespace, name] of [
        ["prod", "web"],
        ["prod", "web-2"],
        ["prod2", "web"],
        ["test", "db"],
      ] as const)
        await store.create(networkSet(namespace, name));
      await store.create(pool("web"));
      const list = async (query: Omit<StoredQuery & { type: "resource" }, "type" | "kind">) =>
        names((await store.list({ ...SETS, ...query })).items);
      expect(await list({})).toEqual(["prod/web", "prod/web-2", "prod2/web", "test/db"]);
      expect(await list({ namespace: "prod" })).toEqual(["prod/web", "prod/web-2"]);
      expect(await list({ namespace: "prod", name: "web" })).toEqual(["prod/web"]);
      expect(await list({ name: "web" })).toEqual(["prod/web", "prod2/web"]);
      expect(await list({ namespace: "prod", namePrefix: "web-" })).toEqual(["prod/web-2"]);
      expect(await list({ namePrefix: "we" })).toEqual(["prod/web", "prod/web-2", "prod2/web"]);
      expect(await list({ namespace: "none" })).toEqual([]);
    });

    test("DM-082 IPAM entries of different types are distinguished, although their paths interleave", async () => {
      const cidr = parseCidr("10.0.0.0/30");
      const cidr6 = parseCidr("fd00::/126");
      const block = { affinity: "host:h1", allocations: [null], unallocated: [0], attributes: [], deleted: false };
      const sequences = { sequenceNumber: 2n ** 63n - 1n, sequenceNumberForAllocation: { 0: 2n ** 60n } };
      await store.create({ key: { type: "block", cidr }, value: { cidr, ...block, ...sequences } });
      await store.create({ key: { type: "block", cidr: cidr6 }, value: { cidr: cidr6, ...block, ...sequences } });
      const confirmed = { state: "confirmed", deleted: false } as const;
      for (const [affinityType, host, of] of [
        ["host", "h1", cidr],
        ["host", "h1", cidr6],
        ["host", "h10", cidr],
        ["virtual", "lb", cidr],
      ] as const)
        await store.create({ key: { type: "blockAffinity", affinityType, host, cidr: of }, value: confirmed });
      const marker = store.create({ key: { type: "ipamHost", host: "h1" }, value: {} });
      if (lacks("host markers")) expect(await fault(marker)).toBeInstanceOf(Unsupported);
      else expect(await marker).toHaveProperty("revision");
      const handle = { handleId: "n.c1", block: { [cidr]: 1 }, deleted: false };
      await store.create({ key: { type: "ipamHandle", handleId: "n.c1" }, value: handle });
      const count = async (query: StoredQuery) => (await store.list(query)).items.length;
      expect(await count({ type: "block" })).toBe(2);
      expect(await count({ type: "block", version: 6 })).toBe(1);
      expect(await count({ type: "blockAffinity" })).toBe(4);
      expect(await count({ type: "blockAffinity", host: "h1" })).toBe(2);
      expect(await count({ type: "blockAffinity", host: "h1", affinityType: "host", version: 4 })).toBe(1);
      expect(await count({ type: "blockAffinity", affinityType: "virtual" })).toBe(1);
      if (!lacks("host markers")) expect(await count({ type: "ipamHost" })).toBe(1);
      expect(await count({ type: "ipamHandle" })).toBe(1);
      expect(await count({ type: "ipamConfig" })).toBe(0);
      expect((await store.get<BlockKey>({ type: "block", cidr })).value.sequenceNumber).toBe(2n ** 63n - 1n);
    });

    if (!lacks("raw text"))
      test("an unreadable entry is reported by key, skipped, and can be overwritten or deleted", async () => {
        const path = "/calico/resources/v3/projectcalico.org/ippools/broken";
        await store.create(pool("a"));
        await subject.putRaw(path, "{ truncated");
        await subject.putRaw("/calico/resources/v3/projectcalico.org/ippools/too/deep", "{}");
        unreadable.length = 0;
        expect(names((await store.list(POOLS)).items)).toEqual(["/a"]);
        expect(unreadable.map((error) => error.path)).toEqual([path]);
        expect((await fault(store.get(poolKey("broken")))) as Error).toHaveProperty("name", "UnreadableEntry");
        expect(await fault(store.create(pool("broken")))).toBeInstanceOf(AlreadyExists);
        expect(await fault(store.update({ ...pool("broken"), revision: "1" }))).toBeInstanceOf(Conflict);
        await store.apply(pool("broken"));
        expect(names((await store.list(POOLS)).items)).toEqual(["/a", "/broken"]);
        await subject.putRaw(path, "[]");
        expect(await store.delete(poolKey("broken"))).not.toHaveProperty("value");
        expect(await fault(store.get(poolKey("broken")))).toBeInstanceOf(NotFound);
      });

    test("a name that a path cannot contain is rejected", async () => {
      expect(await fault(store.create({ ...pool("x"), key: poolKey("a/b") }))).toBeInstanceOf(ValidationFailed);
      expect(await fault(store.get(poolKey("")))).toBeInstanceOf(ValidationFailed);
    });

    test("large values and long lists are returned completely and in order", async () => {
      const key: ResourceKey = { type: "resource", kind: "GlobalNetworkSet", name: "big" };
      const spec = { nets: ["ü€😀".repeat(80_000)] };
      const value: Resource = { ...pool("big").value, kind: "GlobalNetworkSet", spec };
      await store.create({ key, value });
      expect((await store.get(key)).value.spec).toEqual(spec);
      await store.delete(key);
      const wanted = Array.from({ length: 300 }, (_, i) => `p${String(i).padStart(5, "0")}`);
      await Promise.all(wanted.map((name) => store.apply(pool(name))));
      expect(names((await store.list(POOLS)).items)).toEqual(wanted.map((name) => `/${name}`));
    });

    test("compare-and-swap from two connections loses no increment", async () => {
      await store.create(pool("counter", "10.0.0.0/16"));
      const increment = async (from: Datastore) => {
        for (;;) {
          const current = await from.get(poolKey("counter"));
          const { count = "0" } = current.value.metadata.annotations ?? {};
          const annotations = { count: String(Number(count) + 1) };
          const value = { ...current.value, metadata: { ...current.value.metadata, annotations } };
          const error = await fault(from.update({ ...current, value }));
          if (error === undefined) return;
          if (!(error instanceof Conflict)) throw error;
        }
      };
      const workers = Array.from({ length: 10 }, (_, i) => (i % 2 === 0 ? store : subject.other));
      await Promise.all(
        workers.map(async (from) => {
          for (let i = 0; i < 10; i++) await increment(from);
        }),
      );
      expect((await store.get(poolKey("counter"))).value.metadata.annotations).toEqual({ count: "100" });
    });

    test("an aborted call rejects with the reason of its signal", async () => {
      const reason = new Error("enough");
      expect(await fault(store.get(poolKey("a"), { signal: AbortSignal.abort(reason) }))).toBe(reason);
      expect(await fault(store.create(pool("a"), { signal: AbortSignal.abort(reason) }))).toBe(reason);
      expect((await store.list(POOLS)).items).toEqual([]);
    });

    if (lacks("status"))
      test("status keys are unsupported", async () => {
        const key = { type: "felixStatus", region: "no-region", host: "h1", last: false } as const;
        const value = { time: "2026-01-02T03:04:05Z", uptime: 1.5, firstUpdate: true };
        expect(await fault(store.apply({ key, value, ttlSeconds: 2 }))).toBeInstanceOf(Unsupported);
        expect(await fault(store.list({ type: "felixStatus" }))).toBeInstanceOf(Unsupported);
      });
    else
      test("DM-083 DM-090 an entry with a time to live expires; another write renews it", async () => {
        const status = { type: "felixStatus", region: "no-region", host: "h1", last: false } as const;
        const value = { time: "2026-01-02T03:04:05Z", uptime: 1.5, firstUpdate: true };
        await store.apply({ key: status, value, ttlSeconds: 2 });
        await store.apply({ key: { ...status, last: true }, value });
        await store.apply({ key: { ...status, host: "h2" }, value, ttlSeconds: 60 });
        expect((await store.get(status)).value).toEqual(value);
        const started = performance.now();
        await eventually(async () => (await fault(store.get(status))) instanceof NotFound, 6000);
        expect(performance.now() - started).toBeGreaterThan(1000);
        expect((await store.list({ type: "felixStatus" })).items).toHaveLength(2);
      });

    if (driver.lacks.has("watch")) {
      test("watch is unsupported", async () => {
        const error = await fault(store.watch(POOLS, { signal: new AbortController().signal }));
        expect(error).toBeInstanceOf(Unsupported);
      });
      return;
    }
    watchContract(driver, () => subject);
  });
}

function watchContract(driver: Driver, subject: () => Subject): void {
  const lacks = (feature: MissingFeature) => driver.lacks.has(feature);
  const before = <T>(item: T) => (lacks("previous values") ? {} : { previous: item });

  test("DM-089 a watch without a revision starts with all existing entries, then yields changes", async () => {
    const { store, other } = subject();
    const a = await store.create(pool("a"));
    const b = await store.create(pool("b"));
    await using log = await EventLog.open(store, POOLS);
    await log.until(3);
    expect(log.events.slice(0, 2)).toEqual([
      { type: "added", item: a, revision: a.revision },
      { type: "added", item: b, revision: b.revision },
    ]);
    expect(log.events[2]?.type).toBe("bookmark");
    const changed = await other.update({ ...pool("a", "10.1.0.0/16"), revision: a.revision });
    const deleted = await other.delete(poolKey("b"));
    const again = await other.create(pool("b"));
    await log.until(6);
    expect(log.events[3]).toEqual({ type: "modified", item: changed, ...before(a), revision: changed.revision });
    expect(log.events[4]).toMatchObject({ type: "deleted", key: poolKey("b"), ...before(deleted) });
    expect(log.events[5]).toEqual({ type: "added", item: again, revision: again.revision });
    const revisions = log.events.slice(3).map((event) => Number(event.revision));
    expect(revisions).toEqual([...revisions].sort((x, y) => x - y));
  });

  test("DM-089 a watch from a list's revision neither misses nor repeats a change", async () => {
    const { store, other } = subject();
    await store.create(pool("a"));
    const { revision } = await store.list(POOLS);
    await other.create(pool("b"));
    await using log = await EventLog.open(store, POOLS, revision);
    await other.create(pool("c"));
    await log.until(2);
    expect(log.events.map((event) => (event.type === "added" ? event.item.key : event.type))).toEqual([
      poolKey("b"),
      poolKey("c"),
    ]);
  });

  test("DM-089 a watch yields only entries that match its query", async () => {
    const { store } = subject();
    await using log = await EventLog.open(store, { ...SETS, namespace: "prod" }, (await store.list(SETS)).revision);
    await using one = await EventLog.open(store, { ...POOLS, name: "b" }, (await store.list(POOLS)).revision);
    await store.create(networkSet("prod2", "x"));
    await store.create(networkSet("prod", "x"));
    await store.create(pool("a"));
    await store.create(pool("b"));
    await store.create(pool("b2"));
    await store.create(networkSet("prod", "y"));
    await log.until(2);
    await one.until(1);
    const keys = (l: EventLog) => l.events.map((event) => ("item" in event ? event.item.key : event.type));
    expect(keys(log)).toEqual([setKey("prod", "x"), setKey("prod", "y")]);
    expect(keys(one)).toEqual([poolKey("b")]);
  });

  if (!lacks("raw text"))
    test("DM-089 an unreadable entry causes an error event, and the watch continues", async () => {
      const { store, putRaw } = subject();
      await using log = await EventLog.open(store, POOLS, (await store.list(POOLS)).revision);
      await putRaw("/calico/resources/v3/projectcalico.org/ippools/broken", "[]");
      await store.apply(pool("broken"));
      await store.delete(poolKey("broken"));
      await log.until(3);
      expect(log.events.map((event) => event.type)).toEqual(["error", "modified", "deleted"]);
      expect(log.events[1]).not.toHaveProperty("previous");
    });

  test("a watch from a compacted or a future revision fails with Compacted", async () => {
    const { store, compact } = subject();
    const first = await store.create(pool("a"));
    await store.create(pool("b"));
    const last = await store.create(pool("c"));
    await compact(last.revision);
    const future = lacks("future revision check") ? [] : [String(Number(last.revision) + 1000)];
    for (const after of [first.revision, ...future]) {
      const error = await fault(
        (async () => {
          await using log = await EventLog.open(store, POOLS, after);
          await log.until(1);
        })(),
      );
      expect(error).toBeInstanceOf(Compacted);
    }
  });

  if (!lacks("status"))
    test("a watch reports an expired entry as deleted", async () => {
      const { store } = subject();
      const key = { type: "felixStatus", region: "no-region", host: "h1", last: false } as const;
      await store.apply({ key, value: { time: "t", uptime: 1, firstUpdate: false }, ttlSeconds: 1 });
      await using log = await EventLog.open(store, { type: "felixStatus" });
      await log.until(3);
      expect(log.events.map((event) => event.type)).toEqual(["added", "bookmark", "deleted"]);
    });

  test("an aborted watch ends without an error, even while there are no events", async () => {
    const { store } = subject();
    const aborter = new AbortController();
    const watch = await store.watch(POOLS, { signal: aborter.signal });
    const reading = (async () => {
      let batches = 0;
      for await (const _ of watch) batches++;
      return batches;
    })();
    await Bun.sleep(20);
    aborter.abort();
    expect(await reading).toBe(1);
  });

  test("a slow consumer receives thousands of changes completely and in order", async () => {
    const { store, other } = subject();
    const { revision } = await store.list(POOLS);
    const aborter = new AbortController();
    const watch = await store.watch(POOLS, { after: revision, signal: aborter.signal });
    const total = driver.changes ?? 10_000;
    const writing = (async () => {
      for (let i = 0; i < total; i += 50)
        await Promise.all(
          Array.from({ length: 50 }, (_, j) => other.apply(pool(`p${(i + j) % 100}`, `10.0.${i % 200}.0/24`))),
        );
    })();
    let seen = 0;
    let newest = 0;
    for await (const batch of watch) {
      for (const event of batch) {
        if (event.type !== "added" && event.type !== "modified") continue;
        expect(Number(event.revision)).toBeGreaterThan(newest);
        newest = Number(event.revision);
        seen++;
      }
      if (seen === total) break;
      if (seen % 7 === 0) await Bun.sleep(1);
    }
    await writing;
    aborter.abort();
    expect(seen).toBe(total);
  });
}

/** Collects a watch's events in the background. */
export class EventLog implements AsyncDisposable {
  readonly events: WatchEvent<StoredKey>[] = [];
  /** Wall-clock time of each event. */
  readonly times = new Map<WatchEvent<StoredKey>, number>();
  readonly #aborter = new AbortController();
  #failure: unknown;
  #reading: Promise<void> = Promise.resolve();

  static async open(store: Datastore, query: StoredQuery, after?: string): Promise<EventLog> {
    const log = new EventLog();
    const options = { signal: log.#aborter.signal, after };
    const watch = await store.watch(query, options);
    log.#reading = (async () => {
      try {
        for await (const batch of watch)
          for (const event of batch as readonly WatchEvent<StoredKey>[]) {
            log.times.set(event, Date.now());
            log.events.push(event);
          }
      } catch (error) {
        log.#failure = error;
      }
    })();
    return log;
  }

  /** Waits for this number of events; throws the error of the watch. */
  async until(count: number, withinMs = 10_000): Promise<void> {
    await eventually(() => {
      if (this.#failure !== undefined) throw this.#failure;
      return this.events.length >= count;
    }, withinMs);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#aborter.abort();
    await this.#reading;
  }
}
