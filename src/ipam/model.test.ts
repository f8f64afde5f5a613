// Random operations of many processes on many hosts, in random order, dying at random writes: what must hold is
// checked after every single write.
import { expect, test } from "bun:test";
import fc from "fast-check";
import { cidrAddress, type IpAddress } from "../lib/ip/ip.ts";
import { addressAt } from "./blocks/block.ts";
import { BlockLimitReached, UnknownHandle } from "./errors.ts";
import type { Ipam } from "./ipam.ts";
import { AssignmentCache } from "./assign/assignment-cache.ts";
import { TestCluster } from "./testing/bench.ts";
import { findViolations } from "./testing/invariants.ts";
import { Crash, type CrashPoint, Schedule } from "./testing/schedule.ts";
import { StaleEntries } from "./testing/stale-entries.ts";

type Step =
  | { readonly op: "assign"; readonly handle: number; readonly count: number }
  | { readonly op: "release"; readonly handle: number }
  | { readonly op: "releaseAddress"; readonly handle: number }
  | { readonly op: "removeHost" | "claim" | "giveUp" };

interface Life {
  readonly host: number;
  readonly steps: readonly Step[];
  readonly crash?: CrashPoint;
}

const HOSTS = ["a", "b", "c"];
/** Half of the handles are shared between processes: that is where counts go wrong. The others have one user. */
const handle = fc.nat(5);
const nameOf = (handle: number, life: number): string => (handle < 3 ? `shared-${handle}` : `own-${life}-${handle}`);
const arbStep: fc.Arbitrary<Step> = fc.oneof(
  { weight: 5, arbitrary: fc.record({ op: fc.constant("assign"), handle, count: fc.integer({ min: 1, max: 3 }) }) },
  { weight: 3, arbitrary: fc.record({ op: fc.constant("release"), handle }) },
  { weight: 2, arbitrary: fc.record({ op: fc.constant("releaseAddress"), handle }) },
  { weight: 1, arbitrary: fc.record({ op: fc.constantFrom("removeHost", "claim", "giveUp") }) },
) as fc.Arbitrary<Step>;
const arbCrash = fc.option(fc.record({ write: fc.integer({ min: 1, max: 12 }), effective: fc.boolean() }), {
  nil: undefined,
});
const arbLife = fc.record({
  host: fc.nat(HOSTS.length - 1),
  steps: fc.array(arbStep, { minLength: 1, maxLength: 5 }),
  crash: arbCrash,
}) as fc.Arbitrary<Life>;

async function newCluster(strictAffinity: boolean, cooldown: number): Promise<TestCluster> {
  const cluster = new TestCluster();
  // Four blocks of four: every process meets the others.
  await cluster.pool("p", "10.0.0.0/28", { blockSize: 30 });
  for (const host of HOSTS) await cluster.node(host);
  await cluster.config({ strictAffinity, ipCooldownSeconds: cooldown });
  return cluster;
}

class Run {
  /** Addresses whose owners were told so, and nobody else could have released them. */
  readonly held = new Map<IpAddress, string>();
  readonly faults: string[] = [];
  constructor(readonly cluster: TestCluster) {}

  check(): void {
    const found = findViolations(this.cluster.store.snapshot());
    const allocated = allocatedAddresses(this.cluster);
    for (const [address, holder] of this.held)
      if (allocated.get(address) !== holder) found.push(`${address} is not ${holder}'s any more`);
    if (found.length > 0 && this.faults.length < 5) this.faults.push(...found);
  }

  async live(life: Life, number: number, ipam: Ipam): Promise<void> {
    const host = HOSTS[life.host] ?? "";
    try {
      for (const step of life.steps) await this.#step(step, host, ipam, number);
    } catch (error) {
      if (!(error instanceof Crash)) throw error;
    }
  }

  async #step(step: Step, host: string, ipam: Ipam, life: number): Promise<void> {
    const owner = { type: "host", name: host } as const;
    const handleId = "handle" in step ? nameOf(step.handle, life) : "";
    switch (step.op) {
      case "assign": {
        const request = { host, handleId, attributes: { node: host }, use: "Workload", version: 4 } as const;
        try {
          const { addresses } = await ipam.autoAssign({ ...request, count: step.count });
          for (const cidr of addresses) this.#given(cidrAddress(cidr), handleId);
        } catch (error) {
          if (!(error instanceof BlockLimitReached)) throw error;
        }
        return;
      }
      case "release": {
        this.#forget((holder) => holder === handleId);
        await ipam.releaseByHandle(handleId).catch((error: unknown) => {
          if (!(error instanceof UnknownHandle)) throw error;
        });
        return;
      }
      case "releaseAddress": {
        const [address] = [...this.held].find(([, holder]) => holder === handleId) ?? [];
        if (address === undefined) return;
        this.held.delete(address);
        await ipam.release([{ address, handleId }]);
        return;
      }
      case "removeHost":
        return ipam.removeHost(host);
      case "claim":
        await ipam.ensureBlock({ host, use: "Workload", version: 4 }).catch((error: unknown) => {
          if (!(error instanceof BlockLimitReached)) throw error;
        });
        return;
      case "giveUp":
        return ipam.releaseHostAffinities(owner, { mustBeEmpty: false });
    }
  }

  #given(address: IpAddress, handleId: string): void {
    const other = this.held.get(address);
    // Another process may have released a shared handle while this one was still assigning: then what it was given is
    // no longer its own, and the datastore says whose it is.
    const isOwn = handleId.startsWith("own") || allocatedAddresses(this.cluster).get(address) === handleId;
    if (other !== undefined && isOwn) this.faults.push(`${address} was given to ${handleId} while ${other} has it`);
    if (handleId.startsWith("own")) this.held.set(address, handleId);
  }

  #forget(which: (holder: string) => boolean): void {
    for (const [address, holder] of this.held) if (which(holder)) this.held.delete(address);
  }
}

const arbRun = {
  seed: fc.nat(),
  lives: fc.array(arbLife, { minLength: 2, maxLength: 6 }),
  strict: fc.boolean(),
  cooldown: fc.constantFrom(0, 0, 30),
};

/** @param isOneProcess all lives of a host are tasks of one process, which share its cache; it is often outdated */
async function play(
  seed: number,
  lives: readonly Life[],
  strict: boolean,
  cooldown: number,
  isOneProcess = false,
): Promise<Run> {
  const cluster = await newCluster(strict, cooldown);
  const run = new Run(cluster);
  const schedule = new Schedule(seed);
  const connect = (life: Life): Ipam => {
    const store = schedule.connect(cluster.store, life.crash);
    const { after } = store;
    store.after = (operation) => {
      run.check();
      after(operation);
    };
    if (!isOneProcess) return cluster.client(store);
    let reads = seed;
    const entries = new StaleEntries(cluster.store, () => reads++ % 3 === 0);
    return cluster.client(store, new AssignmentCache(HOSTS[life.host] ?? "", entries));
  };
  const processes = new Map<number, Ipam>();
  await schedule.run(
    lives.map((life, number) => {
      const ipam = (isOneProcess ? processes.get(life.host) : undefined) ?? connect(life);
      processes.set(life.host, ipam);
      return () => run.live(life, number, ipam);
    }),
  );
  return run;
}

test("no address twice, no allocation without handle, owners agree: after every write, with crashes anywhere", () =>
  fc.assert(
    fc.asyncProperty(
      arbRun.seed,
      arbRun.lives,
      arbRun.strict,
      arbRun.cooldown,
      async (seed, lives, strict, cooldown) => {
        expect((await play(seed, lives, strict, cooldown)).faults).toEqual([]);
      },
    ),
    { numRuns: 150 },
  ));

test("the same when the pods of a host are served by one process", () =>
  fc.assert(
    fc.asyncProperty(
      arbRun.seed,
      fc.array(
        arbLife.map((life) => ({ ...life, host: life.host % 2 })),
        { minLength: 4, maxLength: 12 },
      ),
      arbRun.strict,
      arbRun.cooldown,
      async (seed, lives, strict, cooldown) => {
        expect((await play(seed, lives, strict, cooldown, true)).faults).toEqual([]);
      },
    ),
    { numRuns: 150 },
  ));

test("after a release of every handle nothing is left, whatever died before", () =>
  fc.assert(
    fc.asyncProperty(arbRun.seed, arbRun.lives, arbRun.strict, async (seed, lives, strict) => {
      const { cluster } = await play(seed, lives, strict, 0);
      const names = lives.flatMap((_, life) => [0, 1, 2, 3, 4, 5].map((n) => nameOf(n, life)));
      for (const name of new Set(names))
        await cluster.ipam.releaseByHandle(name).catch((error: unknown) => {
          if (!(error instanceof UnknownHandle)) throw error;
        });
      expect(allocatedAddresses(cluster).size).toBe(0);
      expect(cluster.handles()).toEqual({});
      // A claim that lost its affinity to a release and died before it could tell leaves a block for the check to find.
      await cluster.ipam.repair(await cluster.ipam.inconsistencies());
      expect(await cluster.ipam.inconsistencies()).toEqual([]);
      for (const host of HOSTS) await cluster.ipam.removeHost(host);
      expect(cluster.blocks()).toEqual({});
      expect(cluster.affinities()).toEqual({});
    }),
    { numRuns: 100 },
  ));

test("half-made claims are finished or undone by their host's next assignment", () =>
  fc.assert(
    fc.asyncProperty(arbRun.seed, arbRun.lives, async (seed, lives) => {
      const { cluster } = await play(seed, lives, false, 0);
      for (const host of HOSTS)
        await cluster.assign(host, `last-${host}`, { count: 16 }).catch((error: unknown) => {
          if (!(error instanceof BlockLimitReached)) throw error;
        });
      expect(Object.values(cluster.affinities()).filter((state) => state !== "confirmed")).toEqual([]);
      expect(findViolations(cluster.store.snapshot())).toEqual([]);
      const left = (await cluster.ipam.inconsistencies()).filter(({ kind }) => kind !== "leaked-handle");
      expect(left.filter(({ kind }) => kind !== "missing-affinity")).toEqual([]);
    }),
    { numRuns: 60 },
  ));

function allocatedAddresses(cluster: TestCluster): Map<IpAddress, string | undefined> {
  const result = new Map<IpAddress, string | undefined>();
  for (const block of Object.values(cluster.blocks()))
    for (const [ordinal, index] of block.allocations.entries())
      if (index !== null) result.set(addressAt(block, ordinal), block.attributes[index]?.handleId);
  return result;
}
