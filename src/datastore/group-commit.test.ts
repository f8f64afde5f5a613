import { beforeEach, describe, expect, test } from "bun:test";
import type { Block, BlockKey } from "../model/index.ts";
import { parseCidr } from "../lib/ip.ts";
import type { Datastore, Together, TogetherOptions, Write } from "./datastore.ts";
import { NotFound, Unavailable, ValidationFailed } from "./errors.ts";
import { GroupCommit } from "./group-commit.ts";
import { openSqliteInMemory } from "./sqlite/open.ts";

const cidr = parseCidr("10.0.0.0/26");
const block: BlockKey = { type: "block", cidr };
const blockOf = (n: number): Block => ({
  cidr,
  affinity: "host:n1",
  allocations: [],
  unallocated: [n],
  attributes: [],
  sequenceNumber: BigInt(n),
  sequenceNumberForAllocation: {},
  deleted: false,
});
const handle = (handleId: string) => ({ type: "ipamHandle", handleId }) as const;
const create = (handleId: string): Write => ({
  op: "create",
  entry: { key: handle(handleId), value: { handleId, block: {}, deleted: false } },
});
const update = (n: number, revision: string): Write => ({
  op: "update",
  entry: { key: block, value: blockOf(n), revision },
});

/** A datastore whose writes arrive when they are let through. */
let store: Datastore;
let gathered: Datastore;
let waiting: (() => void)[];
let sent: Write[][];
let fault: Error | undefined;
let first: string;
let taken: number;

beforeEach(async () => {
  [waiting, sent, fault, taken] = [[], [], undefined, 0];
  store = await openSqliteInMemory();
  first = (await store.create({ key: block, value: blockOf(0) })).revision;
  const slow = async (writes: readonly Write[], options?: TogetherOptions): Promise<Together> => {
    sent.push([...writes]);
    await new Promise<void>((resolve) => waiting.push(resolve));
    if (fault !== undefined) throw fault;
    return store.together!(writes, options);
  };
  gathered = GroupCommit.on(
    new Proxy(store, {
      get: (target, name) => {
        if (name === "together") return slow;
        const value: unknown = Reflect.get(target, name);
        return typeof value === "function" ? value.bind(target) : value;
      },
    }),
    () => taken++,
  );
});

async function letThrough(): Promise<void> {
  while (waiting.length === 0) await Bun.sleep(0);
  waiting.shift()?.();
  await Bun.sleep(1);
}

/** A writer that reads the block and writes its number one higher, with a handle. */
async function step(handleId: string): Promise<Together> {
  const { value, revision } = await gathered.get(block);
  return gathered.together!([update(Number(value.sequenceNumber) + 1, revision), create(handleId)]);
}

describe("writes that come while one is under way", () => {
  test("leave together, each on top of the one before", async () => {
    const one = step("a");
    await Bun.sleep(1);
    const others = [step("b"), step("too early to see b")];
    await Bun.sleep(1);
    others.push(step("c"));
    await Bun.sleep(1);
    await letThrough();
    await letThrough();
    expect((await Promise.all([one, ...others])).map(({ done }) => done)).toEqual([true, true, false, true]);
    expect(sent.map((writes) => writes.length)).toEqual([2, 3]);
    expect((await store.get(block)).value.sequenceNumber).toBe(3n);
  });

  test("only the last writer of an entry learns its revision, and may go on from there", async () => {
    const one = step("a");
    await Bun.sleep(1);
    const two = step("b");
    await Bun.sleep(1);
    const three = step("c");
    await Bun.sleep(1);
    await letThrough();
    await letThrough();
    const { revision } = await store.get(block);
    const handles = await Promise.all(["a", "b", "c"].map(async (id) => (await store.get(handle(id))).revision));
    expect(await Promise.all([one, two, three])).toEqual([
      { done: true, revisions: ["", handles[0]!] },
      { done: true, revisions: ["", handles[1]!] },
      { done: true, revisions: [revision, handles[2]!] },
    ]);
    const last = gathered.together!([update(9, revision)]);
    await letThrough();
    expect((await last).done).toBe(true);
  });

  test("one decided by what is about to change is refused at once", async () => {
    const one = step("a");
    await Bun.sleep(1);
    expect(await gathered.together!([create("b"), update(9, first)])).toEqual({ done: false, refused: [1] });
    const unchanged = { is: "unchanged", key: block, revision: first } as const;
    expect(await gathered.together!([create("b")], { conditions: [unchanged] })).toEqual({ done: false, refused: [] });
    const none = { is: "quiet", query: { type: "ipamHandle" }, since: undefined } as const;
    expect(await gathered.together!([create("b")], { conditions: [none] })).toEqual({ done: false, refused: [] });
    await letThrough();
    expect((await one).done).toBe(true);
    expect(sent.length).toBe(1);
  });

  test("one that is refused does not take the others with it, but who built on it", async () => {
    await store.create({ key: handle("taken"), value: { handleId: "taken", block: {}, deleted: false } });
    const one = step("a");
    await Bun.sleep(1);
    const two = step("taken");
    await Bun.sleep(1);
    const three = step("on two");
    const four = gathered.together!([create("apart")]);
    await Bun.sleep(1);
    for (let i = 0; i < 4; i++) await letThrough(); // the first, all the others, then each of them that may still go
    expect((await Promise.all([one, two, three, four])).map((outcome) => outcome)).toMatchObject([
      { done: true },
      { done: false, refused: [1] },
      { done: false, refused: [0] },
      { done: true },
    ]);
  });

  test("when the datastore does not answer, all who wait are told", async () => {
    const all = [step("a")];
    await Bun.sleep(1);
    all.push(step("b"));
    await Bun.sleep(1);
    all.push(gathered.together!([create("c")]));
    fault = new Unavailable("etcd", "test");
    const settled = Promise.allSettled(all);
    await letThrough();
    for (const { status } of await settled) expect(status).toBe("rejected");
    expect(sent.length).toBe(1);
    fault = undefined;
    const again = step("d");
    await letThrough();
    expect((await again).done).toBe(true);
  });
});

test("other entries are not shown before they are there", async () => {
  const one = gathered.together!([create("a")]);
  await Bun.sleep(1);
  const seen = gathered.get(handle("a"));
  await letThrough();
  expect((await seen).revision).toBe((await store.get(handle("a"))).revision);
  expect((await one).done).toBe(true);
  await expect(gathered.get(handle("b"))).rejects.toThrow(NotFound);
});

test("a single write of an entry that is about to change waits for it", async () => {
  const one = step("a");
  await Bun.sleep(1);
  const { revision } = await gathered.get(block);
  const written = gathered.update({ key: block, value: blockOf(7), revision });
  await letThrough();
  await one;
  expect((await written).value.sequenceNumber).toBe(7n);
});

test("whoever only asks whether something still holds is answered, and nobody builds on it", async () => {
  const asked = gathered.together!([], { conditions: [{ is: "unchanged", key: block, revision: first }] });
  await letThrough();
  expect(await asked).toEqual({ done: true, revisions: [] });
  expect(taken).toBe(0);
  const one = step("a");
  await letThrough();
  expect((await one).done).toBe(true);
  expect(taken).toBe(1);
});

test("a name that has no place is refused, and nobody else with it", async () => {
  const one = step("a");
  await Bun.sleep(1);
  const two = step("b");
  await expect(gathered.together!([create("c"), create("no/place")])).rejects.toThrow(ValidationFailed);
  await letThrough();
  await letThrough();
  expect((await Promise.all([one, two])).map(({ done }) => done)).toEqual([true, true]);
  await expect(store.get(handle("c"))).rejects.toThrow(NotFound);
});
