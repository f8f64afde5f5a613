// Checks that an IPAM client with a cache reads less than one without, and fails only if that one would fail too.
import { expect, test } from "bun:test";
import fc from "fast-check";
import type { Write } from "../../datastore/index.ts";
import { parseCidr } from "../../lib/ip/ip.ts";
import { AssignmentCache } from "./assignment-cache.ts";
import { ExtraWritesConflict } from "../errors.ts";
import type { Ipam } from "../ipam.ts";
import { TestCluster } from "../testing/test-cluster.ts";
import { findViolations } from "../testing/invariants.ts";
import { StaleEntries } from "../testing/stale-entries.ts";

const REQUEST = { host: "a", attributes: { node: "a" }, use: "Workload", version: 4, count: 1 } as const;

async function cluster(): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("p", "10.0.0.0/28", { blockSize: 29, nodeSelector: "!has(other)" });
  await c.pool("q", "10.1.0.0/28", { blockSize: 29 });
  await c.node("a");
  return c;
}

/** Returns a client with a cache, and a list of its calls to the datastore. */
function cachingClient(c: TestCluster, isUpdated = () => true): { ipam: Ipam; calls: string[] } {
  const store = c.store.connect();
  const calls: string[] = [];
  store.before = ({ name }) => void calls.push(name);
  return { ipam: c.client(store, new AssignmentCache("a", new StaleEntries(c.store, isUpdated))), calls };
}

const profileWrite =
  (name: string) =>
  (addresses: readonly string[]): Write[] => {
    const value = {
      apiVersion: "projectcalico.org/v3",
      kind: "Profile" as const,
      metadata: { name },
      spec: { addresses },
    };
    return [{ op: "create", entry: { key: { type: "resource", kind: "Profile", name }, value } } as Write];
  };

test("an assignment from a cached block is one transaction; a release is one read of the handle and one transaction", async () => {
  const c = await cluster();
  const { ipam, calls } = cachingClient(c);
  const assign = (handleId: string) => ipam.autoAssign({ ...REQUEST, handleId });
  await assign("h0"); // claims the block
  calls.length = 0;
  expect((await assign("h1")).addresses).toHaveLength(1);
  expect((await assign("h2")).addresses).toHaveLength(1);
  expect(calls).toEqual(["transact", "transact"]);
  calls.length = 0;
  await ipam.releaseByHandle("h1");
  expect(calls).toEqual(["get", "transact"]);
  // The last addresses of a block: the cached pool and node decide whether the host keeps the block.
  calls.length = 0;
  await ipam.releaseByHandle("h0");
  await ipam.releaseByHandle("h2");
  expect(calls).toEqual(["get", "transact", "get", "transact"]);
});

test("the second family is one transaction too if the caller passes the handle on", async () => {
  const c = await cluster();
  await c.pool("six", "fd00::/120", { blockSize: 122 });
  const { ipam, calls } = cachingClient(c);
  const both = async (handleId: string) => {
    const { handle } = await ipam.autoAssign({ ...REQUEST, handleId });
    return ipam.autoAssign({ ...REQUEST, version: 6, handleId, handle });
  };
  await both("h0");
  calls.length = 0;
  expect((await both("h1")).handle?.value).toEqual(
    c.store.snapshot().find((e) => "handleId" in e.key && e.key.handleId === "h1")?.value as never,
  );
  expect(calls).toEqual(["transact", "transact"]);
  calls.length = 0;
  await ipam.releaseByHandle("h1");
  expect(calls).toEqual(["get", "transact"]);
  expect(Object.keys(c.handles())).toEqual(["h0"]);
});

test("a block that another process has written is read again, and the assignment succeeds", async () => {
  const c = await cluster();
  const { ipam, calls } = cachingClient(c);
  await ipam.autoAssign({ ...REQUEST, handleId: "h0" });
  await c.assign("a", "other");
  calls.length = 0;
  const [address] = (await ipam.autoAssign({ ...REQUEST, handleId: "h1" })).addresses;
  expect(calls).toEqual(["transact", "get", "transact"]);
  expect(address).toBe("10.0.0.10/29" as never);
  await c.assign("a", "third");
  calls.length = 0;
  await ipam.releaseByHandle("h1");
  expect(calls).toEqual(["get", "transact", "get", "get", "transact"]);
});

for (const isCaching of [true, false])
  test(`extra writes are done with the addresses or not at all (${isCaching ? "with" : "without"} a cache)`, async () => {
    const c = await cluster();
    const ipam = isCaching ? cachingClient(c).ipam : c.ipam;
    for (const handleId of ["h0", "h1", "h2"]) {
      const result = await ipam.autoAssign({ ...REQUEST, handleId, extraWrites: profileWrite(handleId) });
      expect(result.extraRevisions).toHaveLength(1);
      expect(await c.store.get({ type: "resource", kind: "Profile", name: handleId })).toMatchObject({
        revision: result.extraRevisions?.[0],
        value: { spec: { addresses: result.addresses } },
      });
    }
    // A rejected extra write: nothing is assigned.
    const before = c.store.snapshot();
    const conflicting = ipam.autoAssign({ ...REQUEST, handleId: "again", extraWrites: profileWrite("h0") });
    await expect(conflicting).rejects.toThrow(ExtraWritesConflict);
    expect(c.store.snapshot()).toEqual(before);
    // Addresses from two blocks: the extra writes are left to the caller.
    const many = await ipam.autoAssign({ ...REQUEST, count: 10, handleId: "many", extraWrites: profileWrite("many") });
    expect([many.addresses.length, many.extraRevisions]).toEqual([10, undefined]);

    const { revision } = await c.store.get({ type: "resource", kind: "Profile", name: "h1" });
    const remove = (name: string): Write => ({
      op: "delete",
      key: { type: "resource", kind: "Profile", name },
      revision,
    });
    expect(await ipam.releaseByHandleWith("h1", { extraWrites: [remove("h1")] })).toMatchObject({
      extraWrites: "written",
    });
    expect(c.handles()).not.toHaveProperty("h1");
    expect(await ipam.releaseByHandleWith("h2", { extraWrites: [remove("h2")] })).toEqual({
      released: [],
      extraWrites: "conflict",
    });
    expect(c.handles()).toHaveProperty("h2");
  });

/** An event in the cluster. */
type Event =
  | { readonly is: "pod"; readonly count: number; readonly pool?: string }
  | { readonly is: "gone"; readonly which: number }
  | { readonly is: "pools"; readonly name: string; readonly spec: Record<string, unknown> | undefined }
  | { readonly is: "label"; readonly labels: Record<string, string> }
  | { readonly is: "reserve"; readonly cidr: string }
  | { readonly is: "config"; readonly strict: boolean; readonly cooldown: number }
  | { readonly is: "otherProcess"; readonly what: "assigns" | "releases" | "claims" | "releasesBlock" };

const POOLS = ["10.0.0.0/28", "10.1.0.0/28", "10.2.0.0/28"] as const;
const arbEvent = fc.oneof(
  { weight: 8, arbitrary: fc.record({ is: fc.constant("pod"), count: fc.constantFrom(1, 1, 1, 3) }) },
  {
    weight: 2,
    arbitrary: fc.record({ is: fc.constant("pod"), count: fc.constant(1), pool: fc.constantFrom(...POOLS) }),
  },
  { weight: 4, arbitrary: fc.record({ is: fc.constant("gone"), which: fc.nat(20) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      is: fc.constant("pools"),
      name: fc.constantFrom("a", "p", "q"),
      spec: fc.option(
        fc.record({
          disabled: fc.boolean(),
          nodeSelector: fc.constantFrom("", "has(other)", "!has(other)"),
          assignmentMode: fc.constantFrom("Automatic", "Manual"),
        }),
        { nil: undefined },
      ),
    }),
  },
  { weight: 1, arbitrary: fc.record({ is: fc.constant("label"), labels: fc.constantFrom({}, { other: "x" }) }) },
  {
    weight: 1,
    arbitrary: fc.record({ is: fc.constant("reserve"), cidr: fc.constantFrom("10.0.0.0/30", "10.1.0.0/29") }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ is: fc.constant("config"), strict: fc.boolean(), cooldown: fc.constantFrom(0, 5) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      is: fc.constant("otherProcess"),
      what: fc.constantFrom("assigns", "releases", "claims", "releasesBlock"),
    }),
  },
) as fc.Arbitrary<Event>;

const CIDRS: Record<string, string> = { a: POOLS[2], p: POOLS[0], q: POOLS[1] };

async function change(c: TestCluster, event: Exclude<Event, { is: "pod" | "gone" }>, pods: number): Promise<void> {
  if (event.is === "label") return c.node("a", event.labels);
  if (event.is === "reserve")
    return c.resource("IPReservation", event.cidr.replace("/", "-"), { reservedCIDRs: [event.cidr] });
  if (event.is === "config") return c.config({ strictAffinity: event.strict, ipCooldownSeconds: event.cooldown });
  if (event.is === "pools") {
    const { name, spec } = event;
    if (spec !== undefined) return c.pool(name, CIDRS[name] ?? "", { blockSize: 29, ...spec });
    return void (await c.store.delete({ type: "resource", kind: "IPPool", name }).catch(() => {}));
  }
  const other = c.client(c.store.connect());
  const block = parseCidr(Object.keys(c.blocks())[0] ?? "10.0.0.0/29");
  const owner = { type: "host", name: "a" } as const;
  const work: Record<typeof event.what, () => Promise<unknown>> = {
    assigns: () => other.autoAssign({ ...REQUEST, handleId: `s${pods}` }),
    releases: () => other.releaseByHandle(`h${pods - 1}`),
    claims: () => other.claimAffinity(block, { type: "host", name: "b" }),
    releasesBlock: () => other.releaseBlockAffinity(block, owner, { mustBeEmpty: false }),
  };
  await work[event.what]().catch(() => {});
}

const outcomeOf = (work: Promise<{ addresses: readonly string[] }>): Promise<string> =>
  work.then(
    ({ addresses }) => `${addresses.length} addresses`,
    (error: unknown) => (error instanceof Error ? error.name : "?"),
  );

for (const [name, isUpdated] of [
  ["up to date", () => () => true],
  ["outdated", (seed: number) => () => (seed = (seed * 1103515245 + 12345) & 0x7fffffff) % 3 === 0],
] as const)
  test(`with a cache that is ${name}, an assignment fails only if one without a cache fails, and no address is assigned twice`, () =>
    fc.assert(
      fc.asyncProperty(fc.array(arbEvent, { maxLength: 25 }), fc.nat(), async (events, seed) => {
        const c = await cluster();
        const { ipam } = cachingClient(c, isUpdated(seed));
        let pods = 0;
        for (const event of events) {
          c.nowMs += 1000;
          if (event.is === "gone") await ipam.releaseByHandle(`h${event.which % Math.max(1, pods)}`).catch(() => {});
          else if (event.is !== "pod") await change(c, event, pods);
          else {
            const pools = event.pool === undefined ? [] : [parseCidr(event.pool)];
            const request = { ...REQUEST, count: event.count, pools };
            const outcome = await outcomeOf(ipam.autoAssign({ ...request, handleId: `h${pods}` }));
            if (outcome !== `${event.count} addresses`) {
              await ipam.releaseByHandle(`h${pods}`).catch(() => {});
              expect(await outcomeOf(c.client().autoAssign({ ...request, handleId: `fresh${pods}` }))).toBe(outcome);
              await c.ipam.releaseByHandle(`fresh${pods}`).catch(() => {});
            }
            pods++;
          }
          expect(findViolations(c.store.snapshot())).toEqual([]);
        }
      }),
      { numRuns: 200 },
    ));
