import { expect, test } from "bun:test";
import type { DataplaneReport } from "../calc/index.ts";
import { HealthAggregator, type HealthReport } from "../lib/health.ts";
import { describeRefused } from "./rules/refused.ts";
import { silentLogger } from "../lib/log.ts";
import { eventually } from "../lib/testing/eventually.ts";
import { TokenBucket } from "../lib/token-bucket.ts";
import { ApplyLoop, type ApplyLoopOptions, watchdogMs } from "./apply-loop.ts";
import { type ApplyOutcome, FatalDataplaneError, type Manager, type ManagerMessage } from "./manager.ts";

/** A loop whose parts write down when they were called. */
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
    needsWholeRules: true,
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

/** Runs the loop while `body` does; ends it, and throws what it ended with. */
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

/** The same with datastore and interfaces in sync. */
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

test("FD-003 sets are made before the rules that name them and deleted after", async () => {
  const { loop, calls, reports } = testLoop();
  await whileInSync(loop, () => eventually(() => reports.length === 2));
  const order = ["resolve", "manager", "set", "table", "delete sets"].map((name) => calls.indexOf(name));
  expect(order).toEqual([...order].sort((a, b) => a - b));
  expect(calls.indexOf("link")).toBeLessThan(calls.indexOf("route"));
});

test("FD-009 the first round is reported once, after the endpoints' statuses", async () => {
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

test("FD-004 the queue holds a hundred messages and then asks the sender to wait", async () => {
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

test("FD-004 messages are taken while nothing may be applied yet", async () => {
  const { loop, seen } = testLoop();
  await whileRunning(loop, async () => {
    for (let i = 0; i < 1000; i++) {
      await loop.ready();
      loop.send({ type: "ipSetRemove", id: `s:${i}` });
    }
    await eventually(() => seen.length === 1000);
  });
});

test("FD-004 ten rounds at once, then one every tenth of a second", () => {
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

test("FD-006 a failing part does not stop the others, and the round is tried again", async () => {
  const { loop, calls, reports } = testLoop({ name: "manager", times: 1 });
  await whileInSync(loop, async () => {
    await eventually(() => reports.length >= 2);
    expect(calls).toContain("route");
    expect(calls).toContain("delete sets");
    await eventually(() => calls.filter((call) => call === "manager").length === 2);
  });
});

test("what the other backend left is removed only in a round that wrote every set and every table", async () => {
  for (const name of ["set", "table"]) {
    const { loop, calls, reports } = testLoop({ name, times: 2 }, { withLeftovers: true });
    await whileInSync(loop, () => eventually(() => calls.includes("sweep")));
    expect(reports.length).toBeGreaterThan(0);
    const rules = calls.filter((call) => ["table", "delete sets", "sweep"].includes(call));
    // Two rounds that failed, which delete sets of ours all the same, and the first that did not.
    expect(rules).toEqual(["table", "delete sets", "table", "delete sets", "table", "delete sets", "sweep"]);
  }
});

test("the other backend's leftovers go in the round whose rules were taken at the second try", async () => {
  const error = new FatalDataplaneError("no such set");
  const { loop, calls } = testLoop({ name: "table", error, times: 1 }, { withLeftovers: true });
  await whileInSync(loop, () => eventually(() => calls.includes("sweep")));
  expect(calls.filter((call) => call === "table")).toHaveLength(2);
});

test("FD-007 a fatal failure ends the loop", async () => {
  const { loop } = testLoop({ name: "table", error: new FatalDataplaneError("iptables is broken") });
  loop.interfacesInSync();
  loop.send({ type: "inSync" });
  await expect(loop.run(new AbortController().signal)).rejects.toThrow("iptables is broken");
});

test("rules that are refused for good are tried once more after a fresh look at the sets they name", async () => {
  const { loop, calls, reports } = testLoop({ name: "table", error: new FatalDataplaneError("no such set"), times: 1 });
  await whileInSync(loop, async () => {
    await eventually(() => reports.some(({ type }) => type === "dataplaneInSync"));
    expect(calls.filter((call) => /set|table/.test(call))).toEqual([
      ...["set", "table"], // refused
      ...["resync set", "set", "table", "delete sets"],
    ]);
  });
});

test("a write that is cut off because the agent ends is no failure", async () => {
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

test("FD-005 sets and routes are looked at again by timers of their own, up to a tenth late; never when off", async () => {
  for (const random of [0, 0.999]) {
    const { loop, calls } = testLoop({}, { setRefreshMs: 40, routeRefreshMs: 0, random: () => random });
    await whileInSync(loop, async () => {
      const started = performance.now();
      await eventually(() => calls.includes("resync set"));
      expect(performance.now() - started).toBeGreaterThan(30 * (1 + 0.1 * random));
      await eventually(() => calls.filter((call) => call === "resync set").length === 2); // again and again
      expect(calls).not.toContain("resync route");
    });
  }
  const routes = testLoop({}, { setRefreshMs: -1, routeRefreshMs: 20 });
  await whileInSync(routes.loop, () => eventually(() => routes.calls.includes("resync route")));
  expect(routes.calls).toContain("resync link");
  expect(routes.calls).not.toContain("resync set");
});

test("FD-008 live from the start, ready after the first round even if it failed, silent when a part hangs", async () => {
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

  // What the kernel refuses does not make it less ready; the probe's answer names it.
  const page = new HealthAggregator();
  const told = testLoop(
    {},
    {
      health: page.register("InternalDataplaneMainLoop", { live: true, ready: true }),
      healthDetail: () =>
        describeRefused([{ kind: "rule", where: "ip calico x, number 1", instead: "it is left out" }]),
    },
  );
  await whileRunning(told.loop, async () => {
    told.loop.interfacesInSync();
    told.loop.send({ type: "inSync" });
    await eventually(() => page.readiness().ok);
    expect(page.readiness().body).toContain("the kernel refuses ip calico x, number 1: calicoctl doctor");
  });

  // A part that never returns: no report comes any more, and after the watchdog's time the agent is not live.
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

test("FC-105 a loop told to hang writes and reports nothing more, and still ends when asked", async () => {
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

test("FC-105 a slow dataplane waits before every round, and not when it is to end", async () => {
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
