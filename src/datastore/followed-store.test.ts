import { expect, test } from "bun:test";
import type { Block, StoredKey } from "../model/index.ts";
import type { Datastore } from "./datastore.ts";
import { Conflict, NotFound } from "./errors.ts";
import { FollowedStore } from "./followed-store.ts";
import { openSqliteInMemory } from "./sqlite/open.ts";

const pool = (name: string) => ({ type: "resource", kind: "IPPool", name }) as const;
const poolEntry = (name: string, cidr: string) => ({
  key: pool(name),
  value: { apiVersion: "projectcalico.org/v3", kind: "IPPool", metadata: { name }, spec: { cidr } } as never,
});
const POOLS = { type: "resource", kind: "IPPool" } as const;

/** A datastore that counts what it is asked. */
function counting(store: Datastore): { readonly store: Datastore; readonly reads: string[] } {
  const reads: string[] = [];
  const counted: Datastore = {
    name: store.name,
    get: (key, options) => {
      reads.push(`get ${key.type}`);
      return store.get(key, options);
    },
    list: (query, options) => {
      reads.push(`list ${query.type}`);
      return store.list(query, options);
    },
    watch: (query, options) => store.watch(query, options),
    create: (entry, options) => store.create(entry, options),
    update: (entry, options) => store.update(entry, options),
    apply: (entry, options) => store.apply(entry, options),
    delete: (key, options) => store.delete(key, options),
    close: () => store.close(),
  };
  return { store: counted, reads };
}

async function followed(
  work: (store: FollowedStore, reads: string[], other: Datastore) => Promise<void>,
): Promise<void> {
  const other = await openSqliteInMemory();
  await other.apply(poolEntry("p1", "10.0.0.0/16"));
  const { store, reads } = counting(other);
  const isBlock = (key: StoredKey) => key.type === "block";
  const following = new FollowedStore(store, { follow: [POOLS], remember: isBlock });
  const stop = new AbortController();
  const running = following.run(stop.signal);
  try {
    while (!following.isInSync) await Bun.sleep(1);
    reads.length = 0;
    await work(following, reads, other);
  } finally {
    stop.abort();
    await running;
    await other.close();
  }
}

test("what is followed is read from memory, and what is not found there is asked for", () =>
  followed(async (store, reads, other) => {
    expect((await store.get(pool("p1"))).value.metadata.name).toBe("p1");
    expect((await store.list(POOLS)).items.map(({ key }) => key.name)).toEqual(["p1"]);
    expect(reads).toEqual([]);
    await other.create(poolEntry("p2", "10.1.0.0/16")); // the news may not be here yet
    expect((await store.get(pool("p2"))).value.metadata.name).toBe("p2");
    await expect(store.get(pool("p3"))).rejects.toThrow(NotFound);
    expect((await store.list({ ...POOLS, name: "p3" })).items).toEqual([]);
    expect(reads).toContain("list resource");
    reads.length = 0;
    await store.list({ type: "resource", kind: "Node" }); // not followed
    expect(reads).toEqual(["list resource"]);
  }));

test("our own writes are known at once, and those of others soon", () =>
  followed(async (store, reads, other) => {
    const stored = await store.create(poolEntry("mine", "10.2.0.0/16"));
    expect((await store.get(pool("mine"))).revision).toBe(stored.revision);
    expect((await store.list(POOLS)).items.map(({ key }) => key.name).sort()).toEqual(["mine", "p1"]);
    expect(reads).toEqual([]);
    await store.delete(pool("mine"));
    await expect(store.get(pool("mine"))).rejects.toThrow(NotFound);
    await other.delete(pool("p1"));
    while (store.known(pool("p1")) !== undefined) await Bun.sleep(1);
    expect((await store.list(POOLS)).items).toEqual([]);
  }));

test("what is remembered serves until a write is refused; then it is read", () =>
  followed(async (store, reads, other) => {
    const key = { type: "block", cidr: "10.0.0.0/26" as never } as const;
    const value = {
      cidr: "10.0.0.0/26",
      allocations: [],
      unallocated: [],
      attributes: [],
      sequenceNumber: 1n,
      sequenceNumberForAllocation: {},
    } as unknown as Block;
    const mine = await store.create({ key, value });
    expect((await store.get(key)).revision).toBe(mine.revision);
    expect(reads).toEqual([]);
    const theirs = await other.update({ ...mine, value: { ...value, sequenceNumber: 2n } });
    expect((await store.get(key)).revision).toBe(mine.revision); // nobody told
    await expect(store.update({ ...mine, value })).rejects.toThrow(Conflict);
    expect((await store.get(key)).revision).toBe(theirs.revision);
    // Who must see what is there does, and its writes are learnt.
    const through = store.readingThrough;
    const next = await through.update({ ...(await through.get(key)), value: { ...value, sequenceNumber: 3n } });
    expect((await store.get(key)).revision).toBe(next.revision);
  }));
