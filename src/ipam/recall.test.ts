// A client that remembers asks less, and does nothing else differently from one that has just come.
import { expect, test } from "bun:test";
import fc from "fast-check";
import type { Write } from "../datastore/index.ts";
import { parseCidr } from "../lib/ip.ts";
import type { Ipam } from "./ipam.ts";
import { TestCluster } from "./testing/bench.ts";
import type { MemoryDatastore } from "./testing/memory-datastore.ts";

const assign = (ipam: Ipam, handleId: string, options: { count?: number; pool?: string } = {}) =>
  ipam.autoAssign({
    host: "a",
    handleId,
    attributes: { node: "a" },
    use: "Workload",
    version: 4,
    count: options.count ?? 1,
    pools: options.pool === undefined ? [] : [parseCidr(options.pool)],
  });

async function cluster(): Promise<TestCluster> {
  const c = new TestCluster();
  await c.pool("p", "10.0.0.0/28", { blockSize: 29, nodeSelector: "!has(other)" });
  await c.pool("q", "10.1.0.0/28", { blockSize: 29 });
  await c.node("a");
  return c;
}

/** A client that counts what it asks. */
function counting(c: TestCluster): { ipam: Ipam; calls: string[] } {
  const store: MemoryDatastore = c.store.connect();
  const calls: string[] = [];
  store.before = ({ name }) => void calls.push(name);
  return { ipam: c.client(store), calls };
}

test("from the second on, an assignment is one write and so is a release", async () => {
  const c = await cluster();
  const { ipam, calls } = counting(c);
  await assign(ipam, "h0"); // claims the block
  await assign(ipam, "h1"); // sees that it is its own
  calls.length = 0;
  expect((await assign(ipam, "h2")).addresses).toHaveLength(1);
  expect(calls).toEqual(["together"]);
  calls.length = 0;
  await ipam.releaseByHandle("h2");
  expect(calls).toEqual(["together"]);
  calls.length = 0;
  await ipam.releaseByHandle("h1");
  await assign(ipam, "h3");
  expect(calls).toEqual(["together", "together"]);
  // The last of a block: whether it stays is decided by pool and node, which are known too.
  calls.length = 0;
  await ipam.releaseByHandle("h0");
  await ipam.releaseByHandle("h3");
  expect(calls).toEqual(["together", "together"]);
});

test("what the caller wants written goes with the addresses, or is told not to have gone", async () => {
  const c = await cluster();
  const also = (name: string) => async (addresses: readonly string[]) => [
    {
      op: "create",
      entry: { key: { type: "resource", kind: "Profile", name }, value: profile(name, addresses) },
    } as Write,
  ];
  const profile = (name: string, nets: readonly string[]) => ({
    apiVersion: "projectcalico.org/v3",
    kind: "Profile" as const,
    metadata: { name },
    spec: { nets },
  });
  const request = { host: "a", use: "Workload", version: 4, count: 1 } as const;
  for (const handleId of ["new", "warm", "warmer"]) {
    const { also: written, addresses } = await c.ipam.autoAssign({ ...request, handleId, also: also(handleId) });
    expect(written).toHaveLength(1);
    const stored = await c.store.get({ type: "resource", kind: "Profile", name: handleId });
    expect(stored).toMatchObject({ revision: written?.[0], value: { spec: { nets: addresses } } });
  }
  // In the way: the addresses are given all the same.
  const second = await c.ipam.autoAssign({ ...request, handleId: "again", also: also("new") });
  expect([second.addresses.length, second.also]).toEqual([1, undefined]);
  // From two blocks: nothing can go with all of them.
  const many = await c.ipam.autoAssign({ ...request, count: 10, handleId: "many", also: also("many") });
  expect([many.addresses.length, many.also]).toEqual([10, undefined]);

  const { revision } = await c.store.get({ type: "resource", kind: "Profile", name: "warm" });
  const remove = (name: string): Write => ({
    op: "delete",
    key: { type: "resource", kind: "Profile", name },
    revision,
  });
  expect(await c.ipam.releaseByHandleWith("warm", { also: async () => [remove("warm")] })).toMatchObject({
    others: "written",
  });
  expect(c.handles()).not.toHaveProperty("warm");
  expect(await c.ipam.releaseByHandleWith("warmer", { also: async () => [remove("warmer")] })).toEqual({
    released: [],
    others: "refused",
  });
  expect(c.handles()).toHaveProperty("warmer");
});

test("both families of a container, and their release, write the handle with the block", async () => {
  const c = await cluster();
  await c.pool("six", "fd00::/120", { blockSize: 122 });
  const { ipam, calls } = counting(c);
  const both = async (handleId: string) => {
    for (const version of [4, 6] as const)
      await ipam.autoAssign({ host: "a", use: "Workload", version, count: 1, handleId });
  };
  await both("h0");
  await both("h1");
  calls.length = 0;
  await both("h2");
  await ipam.releaseByHandle("h2");
  expect(calls).toEqual(["together", "together", "together"]);
  expect(Object.keys(c.handles())).toEqual(["h0", "h1"]);
});

/** What happens in a cluster between two pods of a host. */
type Event =
  | { readonly is: "pod"; readonly count: number; readonly pool?: string }
  | { readonly is: "gone"; readonly which: number }
  | { readonly is: "pools"; readonly name: string; readonly spec: Record<string, unknown> | undefined }
  | { readonly is: "label"; readonly labels: Record<string, string> }
  | { readonly is: "reserve"; readonly cidr: string }
  | { readonly is: "config"; readonly strict: boolean; readonly cooldown: number }
  | { readonly is: "stranger"; readonly what: "takes" | "releases" | "claims" | "givesUp" };

const arbEvent: fc.Arbitrary<Event> = fc.oneof(
  {
    weight: 8,
    arbitrary: fc.record({
      is: fc.constant("pod" as const),
      count: fc.constantFrom(1, 1, 1, 3),
    }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      is: fc.constant("pod" as const),
      count: fc.constant(1),
      pool: fc.constantFrom("10.0.0.0/28", "10.1.0.0/28", "10.2.0.0/28"),
    }),
  },
  { weight: 4, arbitrary: fc.record({ is: fc.constant("gone" as const), which: fc.nat(20) }) },
  {
    weight: 2,
    arbitrary: fc.record({
      is: fc.constant("pools" as const),
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
  {
    weight: 1,
    arbitrary: fc.record({ is: fc.constant("label" as const), labels: fc.constantFrom({}, { other: "x" }) }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ is: fc.constant("reserve" as const), cidr: fc.constantFrom("10.0.0.0/30", "10.1.0.0/29") }),
  },
  {
    weight: 1,
    arbitrary: fc.record({ is: fc.constant("config" as const), strict: fc.boolean(), cooldown: fc.constantFrom(0, 5) }),
  },
  {
    weight: 2,
    arbitrary: fc.record({
      is: fc.constant("stranger" as const),
      what: fc.constantFrom("takes", "releases", "claims", "givesUp"),
    }),
  },
) as fc.Arbitrary<Event>;

const CIDRS: Record<string, string> = { a: "10.2.0.0/28", p: "10.0.0.0/28", q: "10.1.0.0/28" };

/** Everything the host's pods saw, and what stands at the end. */
async function live(events: readonly Event[], clientFor: (c: TestCluster) => () => Ipam): Promise<unknown> {
  const c = await cluster();
  const client = clientFor(c);
  const stranger = c.client(c.store.connect());
  const seen: unknown[] = [];
  const attempt = async (work: () => Promise<unknown>) =>
    seen.push(await work().catch((error: unknown) => (error instanceof Error ? error.name : "?")));
  let pods = 0;
  for (const event of events) {
    c.nowMs += 1000;
    if (event.is === "pod") await attempt(() => assign(client(), `h${pods++}`, event));
    else if (event.is === "gone") await attempt(() => client().releaseByHandle(`h${event.which % Math.max(1, pods)}`));
    else if (event.is === "label") await c.node("a", event.labels);
    else if (event.is === "reserve")
      await c.resource("IPReservation", event.cidr.replace("/", "-"), { reservedCIDRs: [event.cidr] });
    else if (event.is === "config") await c.config({ strictAffinity: event.strict, ipCooldownSeconds: event.cooldown });
    else if (event.is === "pools") {
      const { name, spec } = event;
      if (spec === undefined) await c.store.delete({ type: "resource", kind: "IPPool", name }).catch(() => {});
      else await c.pool(name, CIDRS[name] ?? "", { blockSize: 29, ...spec });
    } else {
      const owner = { type: "host", name: "a" } as const;
      const block = parseCidr(Object.keys(c.blocks())[0] ?? "10.0.0.0/29");
      if (event.what === "takes") await attempt(() => assign(stranger, `s${pods++}`));
      else if (event.what === "releases") await attempt(() => stranger.releaseByHandle(`h${pods - 1}`));
      else if (event.what === "claims") await attempt(() => stranger.claimAffinity(block, { type: "host", name: "b" }));
      else await attempt(() => stranger.releaseBlockAffinity(block, owner, { mustBeEmpty: false }));
    }
  }
  const { blocks, affinities, handles } = { blocks: c.blocks(), affinities: c.affinities(), handles: c.handles() };
  return { seen, blocks, affinities, handles };
}

async function expectSameAsFreshClient(events: readonly Event[]): Promise<void> {
  const remembering = await live(events, (c) => {
    const ipam = c.client(c.store.connect());
    return () => ipam;
  });
  expect(remembering).toEqual(await live(events, (c) => () => c.client(c.store.connect())));
}

test("a client that remembers does what one that has just come would do, whatever others change in between", () =>
  fc.assert(fc.asyncProperty(fc.array(arbEvent, { maxLength: 25 }), expectSameAsFreshClient), { numRuns: 300 }));

test("a block that was full is tried first again after another client released some of its addresses", () =>
  expectSameAsFreshClient([
    { is: "pod", count: 3 },
    { is: "pod", count: 1 },
    { is: "pod", count: 1 },
    { is: "pod", count: 3 },
    { is: "stranger", what: "releases" },
    { is: "pod", count: 1, pool: "10.1.0.0/28" },
    { is: "pod", count: 1 },
  ] as Event[]));
