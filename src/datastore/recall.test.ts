import { expect, test } from "bun:test";
import type { IpamConfig, ResourceKey } from "../model/index.ts";
import type { Datastore, Entry } from "./datastore.ts";
import { NotFound, Unavailable } from "./errors.ts";
import { Recall } from "./recall.ts";
import { openSqliteInMemory } from "./sqlite/open.ts";

const POOLS = { type: "resource", kind: "IPPool" } as const;
const poolKey = (name: string): ResourceKey => ({ ...POOLS, name });
const pool = (name: string, cidr = "10.0.0.0/16"): Entry<ResourceKey> => ({
  key: poolKey(name),
  value: { apiVersion: "projectcalico.org/v3", kind: "IPPool", metadata: { name }, spec: { cidr } },
});
const CONFIG_KEY = { type: "ipamConfig" } as const;
const CONFIG: IpamConfig = { strictAffinity: true, autoAllocateBlocks: true, maxBlocksPerHost: 0 };
const handle = (handleId: string) => ({
  key: { type: "ipamHandle", handleId } as const,
  value: { handleId, block: {}, deleted: false },
});

/** The datastore, and what was asked of it. */
async function counted(): Promise<{ store: Datastore; calls: string[] }> {
  const store = await openSqliteInMemory();
  const calls: string[] = [];
  const spy = new Proxy(store, {
    get: (target, name: keyof Datastore) => {
      const member: unknown = target[name];
      if (typeof member !== "function") return member;
      return (...given: unknown[]) => {
        calls.push(name);
        return member.apply(target, given);
      };
    },
  });
  return { store: spy, calls };
}

/** A request as they all are: it reads, decides by what it read, and writes once. */
async function decide(recall: Recall, store: Datastore, name: string): Promise<string> {
  return recall.attempt(store, async (here) => {
    const [pools, config] = await Promise.all([
      here.list(POOLS),
      here.get(CONFIG_KEY).catch((error: unknown) => {
        if (error instanceof NotFound) return undefined;
        throw error;
      }),
    ]);
    const decision = `${pools.items.map(({ value }) => (value.spec as { cidr: string }).cidr)} ${config?.value.strictAffinity ?? false}`;
    const outcome = await here.together?.([{ op: "create", entry: handle(name) }]);
    return outcome?.done === true ? decision : "taken";
  });
}

test("what was seen is not asked for again: the second request is one write", async () => {
  const { store, calls } = await counted();
  await store.create(pool("a"));
  const recall = new Recall();
  calls.length = 0;
  expect(await decide(recall, store, "one")).toBe("10.0.0.0/16 false");
  expect(calls.toSorted()).toEqual(["get", "list", "together"]);
  calls.length = 0;
  expect(await decide(recall, store, "two")).toBe("10.0.0.0/16 false");
  expect(calls).toEqual(["together"]);
});

const changes: { name: string; change: (store: Datastore) => Promise<unknown>; want: string }[] = [
  { name: "an entry of a list changed", change: (s) => s.apply(pool("a", "10.1.0.0/16")), want: "10.1.0.0/16 false" },
  { name: "a list grew", change: (s) => s.create(pool("b", "10.2.0.0/16")), want: "10.0.0.0/16,10.2.0.0/16 false" },
  { name: "a list shrank", change: (s) => s.delete(poolKey("a")), want: " false" },
  {
    name: "what was absent came",
    change: (s) => s.create({ key: CONFIG_KEY, value: CONFIG }),
    want: "10.0.0.0/16 true",
  },
];
for (const { name, change, want } of changes)
  test(`a decision by what is no longer so is not written: ${name}`, async () => {
    const { store, calls } = await counted();
    await store.create(pool("a"));
    const recall = new Recall();
    await decide(recall, store, "one");
    await change(store);
    calls.length = 0;
    expect(await decide(recall, store, "two")).toBe(want);
    expect(calls.toSorted()).toEqual(["get", "list", "together", "together"]);
    calls.length = 0;
    expect(await decide(recall, store, "three")).toBe(want); // and that is remembered
    expect(calls).toEqual(["together"]);
  });

test("a decision that ends without a write is made again by what is so now", async () => {
  const { store } = await counted();
  const recall = new Recall();
  const look = () => recall.attempt(store, async (here) => (await here.list(POOLS)).items.length);
  expect(await look()).toBe(0);
  await store.create(pool("a"));
  expect(await look()).toBe(1);
  const fail = () =>
    recall.attempt(store, async (here) => {
      throw new Error(`${(await here.list(POOLS)).items.length} pools`);
    });
  await store.create(pool("b"));
  await expect(fail()).rejects.toThrow("2 pools");
});

test("single writes are not bound to what was read: they come after reading anew", async () => {
  const { store, calls } = await counted();
  await store.create(pool("a"));
  const recall = new Recall();
  await decide(recall, store, "one");
  calls.length = 0;
  await recall.attempt(store, async (here) => {
    const { items } = await here.list(POOLS);
    await here.create(pool(`after-${items.length}`));
  });
  expect(calls).toEqual(["list", "create"]);
});

test("once something was written nothing is done twice, whatever comes then", async () => {
  const { store } = await counted();
  await store.create(pool("a"));
  const recall = new Recall();
  await decide(recall, store, "one");
  let runs = 0;
  const work = recall.attempt(store, async (here) => {
    runs++;
    await here.list(POOLS);
    await here.together?.([{ op: "create", entry: handle("two") }]);
    await store.create(pool("b"));
    const { items } = await here.list(POOLS); // of now
    expect(items).toHaveLength(2);
    throw new Error("later");
  });
  await expect(work).rejects.toThrow("later");
  expect(runs).toBe(1);
});

test("what is presumed to be absent costs no question, and the write finds out", async () => {
  const { store, calls } = await counted();
  const recall = new Recall();
  await decide(recall, store, "one");
  const presume = { isAbsent: (key: { type: string }) => key.type === "ipamHandle" };
  const unless = (name: string, other: string) =>
    recall.attempt(
      store,
      async (here) => {
        const isThere = await here.get(handle(other).key).then(
          () => true,
          () => false,
        );
        if (!isThere) await here.together?.([{ op: "create", entry: handle(name) }]);
        return isThere;
      },
      presume,
    );
  calls.length = 0;
  expect(await unless("three", "two")).toBe(false);
  expect(calls).toEqual(["together"]);
  await store.create(handle("four"));
  calls.length = 0;
  expect(await unless("five", "four")).toBe(true);
  expect(calls).toEqual(["together", "get"]);
});

test("a datastore that fails is not asked the same again, and what it was told is forgotten", async () => {
  const { store, calls } = await counted();
  await store.create(pool("a"));
  const recall = new Recall();
  await decide(recall, store, "one");
  const broken: Datastore = Object.create(store, {
    together: { value: () => Promise.reject(new Unavailable("etcd", "no answer in time")) },
  });
  calls.length = 0;
  await expect(decide(recall, broken, "two")).rejects.toThrow(Unavailable);
  expect(calls).toEqual([]);
});

test("one attempt inside another: the inner write proves both, or both begin again", async () => {
  const { store, calls } = await counted();
  await store.create(pool("a"));
  const recall = new Recall();
  const nested = (name: string) =>
    recall.attempt(store, async (outer) => {
      const found = await outer.get(CONFIG_KEY).then(
        () => "config",
        () => "none",
      );
      return `${found} ${await decide(recall, outer, name)}`;
    });
  expect(await nested("one")).toBe("none 10.0.0.0/16 false");
  calls.length = 0;
  expect(await nested("two")).toBe("none 10.0.0.0/16 false");
  expect(calls).toEqual(["together"]);
  await store.create({ key: CONFIG_KEY, value: CONFIG });
  calls.length = 0;
  expect(await nested("three")).toBe("config 10.0.0.0/16 true");
  expect(calls.filter((call) => call === "together")).toHaveLength(2);
});

test("a datastore that cannot write together is asked every time", async () => {
  const { store, calls } = await counted();
  const stepwise: Datastore = Object.create(store, { together: { value: undefined } });
  const recall = new Recall();
  for (let i = 0; i < 2; i++) await recall.attempt(stepwise, (here) => here.list(POOLS));
  expect(calls).toEqual(["list", "list"]);
});

test("what is settled first may be followed by single writes, without a second try", async () => {
  const { store, calls } = await counted();
  await store.create(pool("a"));
  const recall = new Recall();
  await decide(recall, store, "one");
  const steps = (name: string) =>
    recall.attempt(store, async (here) => {
      const { items } = await here.list(POOLS);
      await recall.settle(here);
      await here.create(handle(name));
      return items.length;
    });
  calls.length = 0;
  expect(await steps("two")).toBe(1);
  expect(calls).toEqual(["together", "create"]);
  await store.create(pool("b", "10.2.0.0/16"));
  calls.length = 0;
  expect(await steps("three")).toBe(2);
  expect(calls).toEqual(["together", "list", "create"]);
});
