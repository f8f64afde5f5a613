// Tests when the loop reports deletions because of lists and 404 answers. The clock only advances by the steps' `afterMs`.
import { describe, expect, test } from "bun:test";
import fc from "fast-check";
import { Compacted, NotServed, Unavailable } from "./errors.ts";
import { ListAndWatch, type ListAndWatchReceiver } from "./list-and-watch.ts";

type Step = {
  /** Time that passes in the step. */
  readonly seconds?: number;
} & (
  | { readonly list: readonly string[] | Error }
  /** Events (`-name` = deletion). The watch then ends, or fails with the error. */
  | { readonly watch: readonly string[]; readonly error?: Error }
);

const RELIST = { watch: [], error: new Compacted("1") };
const names = (count: number) => Array.from({ length: count }, (_, i) => `a${i}`);

/** A 404 for the kind, and whether discovery confirms that it is not served. */
const notServed = (isConfirmed: boolean) => new NotServed("Kind", { isConfirmed: async () => isConfirmed });

/** Runs the loop through all steps. Returns the receiver's calls, and its entries at the end. */
async function runSteps(steps: readonly Step[]) {
  let nowMs = 0;
  let position = 0;
  let mismatch = "";
  const abort = new AbortController();
  const entries = new Set<string>();
  let missing = new Set<string>();
  const log: string[] = [];
  const failures: string[] = [];
  const takeStep = (request: "list" | "watch"): Step | undefined => {
    const step = steps[position++];
    if (step !== undefined && !(request in step)) mismatch = `${request} request in step ${position}`;
    if (step === undefined || mismatch !== "") {
      abort.abort();
      return undefined;
    }
    nowMs += (step.seconds ?? 0) * 1000;
    return step;
  };
  const receiver: ListAndWatchReceiver<string, string> = {
    get entryCount() {
      return entries.size;
    },
    get missingCount() {
      return missing.size;
    },
    startList: () => void (missing = new Set(entries)),
    applyItems: (items) => {
      for (const name of items) missing.delete(name);
      const added = items.filter((name) => !entries.has(name));
      for (const name of added) entries.add(name);
      if (added.length > 0) log.push(`${added.length} added`);
    },
    finishList: () => {
      for (const name of missing) entries.delete(name);
      if (missing.size > 0) log.push(`${missing.size} deleted at ${nowMs / 1000} s`);
      log.push("complete");
    },
    applyEvents: (events) => {
      for (const event of events)
        if (event.startsWith("-")) entries.delete(event.slice(1));
        else entries.add(event);
      log.push(...events.map((event) => `event ${event}`));
      return undefined;
    },
    onSuccess: () => {},
    onFailure: (error) => failures.push((error as Error).message),
    onOutage: () => log.push("outage"),
  };
  const loop = new ListAndWatch<string, string>({
    source: {
      list: async () => {
        const step = takeStep("list");
        const items = step !== undefined && "list" in step ? step.list : [];
        if (items instanceof Error) throw items;
        return { items, revision: "1" };
      },
      async *watch() {
        const step = takeStep("watch");
        if (step === undefined || !("watch" in step)) return;
        if (step.watch.length > 0) yield step.watch;
        if (step.error !== undefined) throw step.error;
      },
    },
    receiver,
    timings: { watchRetryMs: 0, listRetryMs: 0, maxReconnectMs: 0, maxRetryMs: 0, pollMs: 0 },
    nowMs: () => nowMs,
  });
  await loop.run(abort.signal);
  expect(mismatch).toBe("");
  return { log, failures, entries };
}

describe("a list that lacks most of the known entries", () => {
  test("is repeated 5 s later before they are deleted; additions and events are applied at once", async () => {
    const { log, failures } = await runSteps([
      { list: names(20) },
      RELIST,
      { list: [...names(9), "b"] },
      { watch: ["c", "-a19"], seconds: 4.9 },
      { watch: [], seconds: 0.1 },
      { list: [...names(9), "b", "c"] },
      { watch: [] },
    ]);
    expect(log).toEqual(["20 added", "complete", "1 added", "event c", "event -a19", "10 deleted at 5 s", "complete"]);
    expect(failures).toEqual([
      "the list lacks 11 of 20 known entries; they are deleted if a second list lacks them too",
    ]);
  });

  test("deletes nothing if the second list has them", async () => {
    const steps: Step[] = [{ list: names(20) }, RELIST, { list: [] }, { watch: [], seconds: 5 }, { list: names(20) }];
    expect((await runSteps(steps)).log).toEqual(["20 added", "complete", "complete"]);
  });

  test("does not count as repeated within 5 s, nor by a failed list", async () => {
    const steps: Step[] = [
      { list: names(20) },
      RELIST,
      { list: [] },
      { ...RELIST, seconds: 1 },
      { list: [] },
      { ...RELIST, seconds: 4 },
      { list: new Unavailable("server", "restarting") },
      { list: names(20) },
      RELIST,
      { list: [], seconds: 60 },
      { watch: [] },
    ];
    expect((await runSteps(steps)).entries.size).toBe(20);
  });

  for (const known of [1, 3, 10])
    test(`is repeated also for a kind with ${known} entries`, async () => {
      const emptied = [{ list: names(known) }, RELIST, { list: [] }];
      const once = await runSteps(emptied);
      expect(once.entries.size).toBe(known);
      const twice = await runSteps([...emptied, { watch: [], seconds: 5 }, { list: [] }]);
      expect(twice.log).toEqual([`${known} added`, "complete", `${known} deleted at 5 s`, "complete"]);
    });

  test("is accepted at once if it lacks half of the entries", async () => {
    const half = await runSteps([{ list: names(40) }, RELIST, { list: names(20) }]);
    expect(half.log).toEqual(["40 added", "complete", "20 deleted at 0 s", "complete"]);
  });

  test("never deletes more than half of the entries by lists of less than 5 s", async () => {
    const state = fc.subarray(names(40));
    const lists = fc.array(fc.record({ list: state, seconds: fc.integer({ min: 0, max: 1 }) }), { maxLength: 4 });
    await fc.assert(
      fc.asyncProperty(lists, async (relists) => {
        const steps = relists.flatMap((step) => [{ ...RELIST }, step]);
        const { log } = await runSteps([{ list: names(40) }, ...steps]);
        for (const [, deleted] of log.join("\n").matchAll(/^(\d+) deleted/gm))
          expect(Number(deleted)).toBeLessThanOrEqual(20);
      }),
    );
  });
});

describe("a 404 for the whole kind", () => {
  test("that discovery does not confirm deletes nothing, however long it lasts, and counts as failure", async () => {
    const { log, failures } = await runSteps([
      { list: names(3) },
      { watch: [], error: notServed(true) },
      ...Array.from({ length: 20 }, () => ({ list: notServed(false), seconds: 10 })),
      { list: names(3) },
    ]);
    expect(log).toEqual(["3 added", "complete", "complete"]);
    expect(failures).toHaveLength(20);
    expect(failures[0]).toStartWith("the server does not serve Kind");
  });

  test("deletes the entries when discovery has confirmed it for a minute without interruption", async () => {
    const confirmed = { list: notServed(true), seconds: 30 };
    const interruptions = [notServed(false), new Unavailable("server", "restarting")];
    for (const interruption of interruptions) {
      const { log, failures } = await runSteps([
        { list: names(3) },
        RELIST,
        confirmed,
        confirmed,
        { list: interruption },
        confirmed,
        confirmed,
        confirmed,
      ]);
      expect(log).toEqual(["3 added", "complete", "3 deleted at 150 s", "complete"]);
      expect(failures).toHaveLength(5);
    }
  });

  test("is an empty list at once for a kind without entries, if discovery confirms it", async () => {
    const { log, failures } = await runSteps([{ list: notServed(false) }, { list: notServed(true) }]);
    expect(log).toEqual(["complete"]);
    expect(failures).toHaveLength(1);
  });
});
