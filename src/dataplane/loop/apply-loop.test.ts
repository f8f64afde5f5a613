import { expect, test } from "bun:test";
import type { DataplaneReport } from "../../calc/index.ts";
import { HealthAggregator, type HealthReport } from "../../lib/http/health.ts";
import { summarizeRejected } from "../rules/fallback/rejection-log.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { TokenBucket } from "../../lib/token-bucket.ts";
import { ApplyLoop, type ApplyLoopOptions, watchdogMs } from "./apply-loop.ts";
import { type ApplyOutcome, FatalDataplaneError, type Manager, type ManagerMessage } from "./manager.ts";

/** A loop whose parts record their calls. */
function testLoop(
  failing: { name?: string; error?: Error; times?: number } = {},
  more: Partial<ApplyLoopOptions> & { readonly hang?: boolean; readonly withLeftovers?: boolean } = {},
) {
  const calls: string[] = [];
  const seen: ManagerMessage[] = [];
  const reports: DataplaneReport[] = [];
  const fail = (name: string) => {
    if (failing.name !== name || failing.times === 0) return;
    if (failing.times !== undefined) failing.times--;
    throw failing.error ?? new Error(`${name} failed`);
  };
  const manager: Manager = {
    name: "manager",
    onUpdate: (message) => void seen.push(message),
    resolve: () => void calls.push("resolve"),
    apply: () => {
      calls.push("manager");
      fail("manager");
    },
    reports: () => [{ type: "hostEndpointStatus", endpointId: "x", status: "up" }],
  };
  const part = (name: string) => ({
    name,
    queueResync: () => void calls.push(`resync ${name}`),
    apply: async (): Promise<ApplyOutcome> => {
      await Promise.resolve();
      calls.push(name);
      fail(name);
      if (more.hang === true && name === "route") {
        calls.push("hanging");
        await new Promise(() => {});
      }
      return {};
    },
  });
  const set = { ...part("set"), applyDeletions: (): ApplyOutcome => (calls.push("delete sets"), {}) };
  const leftovers = {
    ...part("leftovers"),
    requiresAllRules: true,
    applyDeletions: (): ApplyOutcome => (calls.push("sweep"), {}),
  };
  const loop = new ApplyLoop({
    parts: {
      managers: [manager],
      sets: more.withLeftovers === true ? [set, leftovers] : [set],
      tables: [part("table")],
      links: [part("link")],
      routes: [part("route")],
    },
    logger: silentLogger,
    report: (report) => reports.push(report),
    setRefreshMs: 0,
    routeRefreshMs: 0,
    retryMs: 5,
    roundMs: 5,
    ...more,
  });
  return { loop, calls, seen, reports };
}

/** Runs the loop until `body` ends. Throws the error of the loop. */
async function whileRunning(loop: ApplyLoop, body: () => Promise<unknown>): Promise<void> {
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  try {
    await body();
  } finally {
    stop.abort();
    await running;
  }
}

/** The same, with datastore and interfaces in sync. */
const whileInSync = (loop: ApplyLoop, body: () => Promise<unknown>): Promise<void> =>
  whileRunning(loop, () => {
    loop.interfacesInSync();
    loop.send({ type: "inSync" });
    return body();
  });

test("FD-002 nothing is written before both the datastore and the interfaces are in sync", async () => {
  for (const order of ["datastore first", "interfaces first"]) {
    const { loop, calls } = testLoop();
    await whileRunning(loop, async () => {
      const [first, second] =
        order === "datastore first"
          ? [() => loop.send({ type: "inSync" }), () => loop.interfacesInSync()]
          : [() => loop.interfacesInSync(), () => loop.send({ type: "inSync" })];
      first();
      await Bun.sleep(5);
      expect(calls).toEqual([]);
      second();
      await eventually(() => calls.includes("delete sets"));
    });
  }
});

test("FD-003 sets are created before the rules that use them, and deleted after", async () => {
  const { loop, calls, reports } = testLoop();
  await whileInSync(loop, () => eventually(() => reports.length === 2));
  const order = ["resolve", "manager", "set", "table", "delete sets"].map((name) => calls.indexOf(name));
  expect(order).toEqual([...order].sort((a, b) => a - b));
  expect(calls.indexOf("link")).toBeLessThan(calls.indexOf("route"));
});

test("FD-009 the first round is reported once, after the status of endpoints", async () => {
  const { loop, reports } = testLoop();
  await whileInSync(loop, async () => {
    await eventually(() => reports.length === 2);
    expect(reports.map((r) => r.type)).toEqual(["hostEndpointStatus", "dataplaneInSync"]);
    loop.send({ type: "ipSetRemove", id: "s:x" });
    await eventually(() => reports.length === 3);
    expect(reports[2]?.type).toBe("hostEndpointStatus");
  });
});

test("FD-001 every message reaches every manager, in order, before anything is applied", async () => {
  const { loop, calls, seen } = testLoop();
  const messages: ManagerMessage[] = Array.from({ length: 50 }, (_, i) => ({ type: "ipSetRemove", id: `s:${i}` }));
  for (const message of messages) if (message.type === "ipSetRemove") loop.send(message);
  loop.interfacesInSync();
  loop.send({ type: "inSync" });
  await whileRunning(loop, () => eventually(() => calls.includes("delete sets")));
  expect(seen).toEqual([...messages, { type: "inSync" }]);
  expect(calls.filter((c) => c === "manager")).toHaveLength(1);
});

test("FD-004 the sender must wait if the queue has a hundred messages", async () => {
  const { loop } = testLoop();
  for (let i = 0; i < 99; i++) loop.send({ type: "ipSetRemove", id: `s:${i}` });
  await loop.ready();
  loop.send({ type: "ipSetRemove", id: "s:99" });
  let isReady = false;
  void loop.ready().then(() => (isReady = true));
  await Bun.sleep(2);
  expect(isReady).toBe(false);
  await whileRunning(loop, () => eventually(() => isReady));
});

test("FD-004 messages are processed even if nothing may be applied yet", async () => {
  const { loop, seen } = testLoop();
  await whileRunning(loop, async () => {
    for (let i = 0; i < 1000; i++) {
      await loop.ready();
      loop.send({ type: "ipSetRemove", id: `s:${i}` });
    }
    await eventually(() => seen.length === 1000);
  });
});

test("FD-004 there are up to ten rounds at once, then one every 100 ms", () => {
  let now = 0;
  const throttle = new TokenBucket({ capacity: 10, initial: 1, refillMs: 100, now: () => now });
  expect(throttle.tryTake()).toBe(0);
  expect(throttle.tryTake()).toBe(100);
  now = 150;
  expect(throttle.tryTake()).toBe(0);
  expect(throttle.tryTake()).toBe(50);
  now = 5000;
  for (let i = 0; i < 10; i++) expect(throttle.tryTake()).toBe(0);
  expect(throttle.tryTake()).toBeGreaterThan(0);
});

test("FD-006 a failing part does not affect the others, and the round is retried", async () => {
  const { loop, calls, reports } = testLoop({ name: "manager", times: 1 });
  await whileInSync(loop, async () => {
    await eventually(() => reports.length >= 2);
    expect(calls).toContain("route");
    expect(calls).toContain("delete sets");
    await eventually(() => calls.filter((call) => call === "manager").length === 2);
  });
});

test("rules of the other backend are removed only in a round in which all sets and tables were written", async () => {
  for (const name of ["set", "table"]) {
    const { loop, calls, reports } = testLoop({ name, times: 2 }, { withLeftovers: true });
    await whileInSync(loop, () => eventually(() => calls.includes("sweep")));
    expect(reports.length).toBeGreaterThan(0);
    const rules = calls.filter((call) => ["table", "delete sets", "sweep"].includes(call));
    // Two failed rounds, which delete unused sets anyway, and the first successful one.
    expect(rules).toEqual(["table", "delete sets", "table", "delete sets", "table", "delete sets", "sweep"]);
  }
});

test("rules of the other backend are removed in a round whose rules were written at the second attempt", async () => {
  const error = new FatalDataplaneError("no such set");
  const { loop, calls } = testLoop({ name: "table", error, times: 1 }, { withLeftovers: true });
  await whileInSync(loop, () => eventually(() => calls.includes("sweep")));
  expect(calls.filter((call) => call === "table")).toHaveLength(2);
});

test("FD-007 a fatal error ends the loop", async () => {
  const { loop } = testLoop({ name: "table", error: new FatalDataplaneError("iptables is broken") });
  loop.interfacesInSync();
  loop.send({ type: "inSync" });
  await expect(loop.run(new AbortController().signal)).rejects.toThrow("iptables is broken");
});

test("rules with a fatal error are tried again after the sets were read", async () => {
  const { loop, calls, reports } = testLoop({ name: "table", error: new FatalDataplaneError("no such set"), times: 1 });
  await whileInSync(loop, async () => {
    await eventually(() => reports.some(({ type }) => type === "dataplaneInSync"));
    expect(calls.filter((call) => /set|table/.test(call))).toEqual([
      ...["set", "table"], // rejected
      ...["resync set", "set", "table", "delete sets"],
    ]);
  });
});

test("a write that is interrupted by the abort is not an error", async () => {
  let isWriting = false;
  const slow = {
    name: "table",
    queueResync: () => {},
    apply: (signal: AbortSignal) =>
      new Promise<ApplyOutcome>((_, reject) => {
        isWriting = true;
        signal.addEventListener("abort", () => reject(new Error("the tool was killed")));
      }),
  };
  const loop = new ApplyLoop({
    parts: { managers: [], sets: [], tables: [slow], links: [], routes: [] },
    logger: silentLogger,
    report: () => {},
    setRefreshMs: 0,
    routeRefreshMs: 0,
  });
  await whileInSync(loop, () => eventually(() => isWriting));
});

test("FD-005 sets and routes have separate resync intervals with up to 10 % jitter, and none if disabled", async () => {
  for (const random of [0, 0.999]) {
    const started = performance.now(); // before the loop: on a busy machine it may be in sync long before this test goes on
    const { loop, calls } = testLoop({}, { setRefreshMs: 40, routeRefreshMs: 0, random: () => random });
    await whileInSync(loop, async () => {
      await eventually(() => calls.includes("resync set"));
      expect(performance.now() - started).toBeGreaterThan(30 * (1 + 0.1 * random));
      await eventually(() => calls.filter((call) => call === "resync set").length >= 2); // repeatedly
      expect(calls).not.toContain("resync route");
    });
  }
  const routes = testLoop({}, { setRefreshMs: -1, routeRefreshMs: 20 });
  await whileInSync(routes.loop, () => eventually(() => routes.calls.includes("resync route")));
  expect(routes.calls).toContain("resync link");
  expect(routes.calls).not.toContain("resync set");
});

test("FD-008 the loop is live from the start, ready after the first round even if it failed, and not live if a part hangs", async () => {
  const health: HealthReport[] = [];
  const { loop, reports } = testLoop({ name: "table", times: 1 }, { health: (report) => health.push(report) });
  await whileRunning(loop, async () => {
    await eventually(() => health.length > 0);
    loop.interfacesInSync();
    await Bun.sleep(3);
    expect(health.every((report) => report.live === true && report.ready === false)).toBe(true);
    loop.send({ type: "inSync" });
    await eventually(() => reports.some((report) => report.type === "dataplaneInSync"));
    await eventually(() => health.at(-1)?.ready === true);
  });

  // Rejected rules do not affect readiness, but the reply of the probe contains them.
  const page = new HealthAggregator();
  const rejecting = testLoop(
    {},
    {
      health: page.register("InternalDataplaneMainLoop", { live: true, ready: true }),
      healthDetail: () =>
        summarizeRejected([{ kind: "rule", where: "ip calico x rule 1", instead: "the rule is omitted" }]),
    },
  );
  await whileRunning(rejecting.loop, async () => {
    rejecting.loop.interfacesInSync();
    rejecting.loop.send({ type: "inSync" });
    await eventually(() => page.readiness().ok);
    expect(page.readiness().body).toContain("the kernel rejects ip calico x rule 1: run calicoctl doctor");
  });

  // A part never returns: no more health reports are sent, and after the watchdog time Felix is not live.
  let now = 0;
  const aggregator = new HealthAggregator(() => now);
  const hung = testLoop(
    {},
    {
      health: aggregator.register("InternalDataplaneMainLoop", { live: true, ready: true }, watchdogMs(90)),
      hang: true,
    },
  );
  const hungStop = new AbortController();
  void hung.loop.run(hungStop.signal);
  hung.loop.interfacesInSync();
  hung.loop.send({ type: "inSync" });
  await eventually(() => hung.calls.includes("hanging"));
  expect(aggregator.liveness().ok).toBe(true);
  now = 89_000;
  expect(aggregator.liveness().ok).toBe(true);
  now = 91_000;
  expect(aggregator.liveness()).toMatchObject({ ok: false, status: 503 });
  expect([watchdogMs(90), watchdogMs(5), watchdogMs(0)]).toEqual([90_000, 20_000, 20_000]);
  hungStop.abort();
});

test("FC-105 after hang(), the loop writes and reports nothing, but ends when aborted", async () => {
  const health: HealthReport[] = [];
  const { loop, calls, reports, seen } = testLoop({}, { health: (report) => health.push(report) });
  await whileInSync(loop, async () => {
    await eventually(
      () => reports.some((report) => report.type === "dataplaneInSync") && health.at(-1)?.ready === true,
    );
    loop.hang();
    await Bun.sleep(1);
    const before = [calls.length, health.length, seen.length];
    loop.send({ type: "vtepRemove", node: "n" });
    loop.applySoon();
    await Bun.sleep(20);
    expect([calls.length, health.length, seen.length]).toEqual(before);
  });
});

test("FC-105 the simulated delay precedes every round, and ends when aborted", async () => {
  const { loop, calls } = testLoop({}, { applyDelayMs: 30 });
  const started = performance.now();
  await whileInSync(loop, async () => {
    await eventually(() => calls.includes("delete sets"));
    expect(performance.now() - started).toBeGreaterThanOrEqual(29);
  });

  const slow = testLoop({}, { applyDelayMs: 60_000 });
  await whileInSync(slow.loop, () => Bun.sleep(5));
  expect(slow.calls).toEqual([]);
});
