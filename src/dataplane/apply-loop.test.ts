import { expect, test } from "bun:test";
import type { DataplaneReport } from "../calc/index.ts";
import { silentLogger } from "../lib/log.ts";
import { ApplyLoop } from "./apply-loop.ts";
import { type ApplyOutcome, FatalDataplaneError, type Manager, type ManagerMessage } from "./manager.ts";
import { Throttle } from "./throttle.ts";

/** A loop whose parts write down when they were called. */
function testLoop(failing: { name?: string; error?: Error; times?: number } = {}) {
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
      return {};
    },
  });
  const set = { ...part("set"), applyDeletions: (): ApplyOutcome => (calls.push("delete sets"), {}) };
  const loop = new ApplyLoop({
    parts: {
      managers: [manager],
      sets: [set],
      tables: [part("table")],
      links: [part("link")],
      routes: [part("route")],
    },
    logger: silentLogger,
    report: (report) => reports.push(report),
    setRefreshMs: 0,
    routeRefreshMs: 0,
    retryMs: 5,
  });
  return { loop, calls, seen, reports };
}

async function until(condition: () => boolean): Promise<void> {
  for (let i = 0; i < 500 && !condition(); i++) await Bun.sleep(1);
  expect(condition()).toBe(true);
}

test("FD-002 nothing is written before both the datastore and the interfaces are in sync", async () => {
  for (const order of ["datastore first", "interfaces first"]) {
    const { loop, calls } = testLoop();
    const stop = new AbortController();
    const running = loop.run(stop.signal);
    const [first, second] =
      order === "datastore first"
        ? [() => loop.send({ type: "inSync" }), () => loop.interfacesInSync()]
        : [() => loop.interfacesInSync(), () => loop.send({ type: "inSync" })];
    first();
    await Bun.sleep(5);
    expect(calls).toEqual([]);
    second();
    await until(() => calls.includes("delete sets"));
    stop.abort();
    await running;
  }
});

test("FD-003 sets are made before the rules that name them and deleted after", async () => {
  const { loop, calls, reports } = testLoop();
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  loop.interfacesInSync();
  loop.send({ type: "inSync" });
  await until(() => reports.length === 2);
  stop.abort();
  await running;
  const order = ["resolve", "manager", "set", "table", "delete sets"].map((name) => calls.indexOf(name));
  expect(order).toEqual([...order].sort((a, b) => a - b));
  expect(calls.indexOf("link")).toBeLessThan(calls.indexOf("route"));
});

test("FD-009 the first round is reported once, after the endpoints' statuses", async () => {
  const { loop, reports } = testLoop();
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  loop.interfacesInSync();
  loop.send({ type: "inSync" });
  await until(() => reports.length === 2);
  expect(reports.map((r) => r.type)).toEqual(["hostEndpointStatus", "dataplaneInSync"]);
  loop.send({ type: "ipSetRemove", id: "s:x" });
  await until(() => reports.length === 3);
  expect(reports[2]?.type).toBe("hostEndpointStatus");
  stop.abort();
  await running;
});

test("FD-001 every message reaches every manager, in order, before anything is applied", async () => {
  const { loop, calls, seen } = testLoop();
  const stop = new AbortController();
  const messages: ManagerMessage[] = Array.from({ length: 50 }, (_, i) => ({ type: "ipSetRemove", id: `s:${i}` }));
  for (const message of messages) if (message.type === "ipSetRemove") loop.send(message);
  loop.interfacesInSync();
  loop.send({ type: "inSync" });
  const running = loop.run(stop.signal);
  await until(() => calls.includes("delete sets"));
  expect(seen).toEqual([...messages, { type: "inSync" }]);
  expect(calls.filter((c) => c === "manager")).toHaveLength(1);
  stop.abort();
  await running;
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
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  await until(() => isReady);
  stop.abort();
  await running;
});

test("FD-004 messages are taken while nothing may be applied yet", async () => {
  const { loop, seen } = testLoop();
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  for (let i = 0; i < 1000; i++) {
    await loop.ready();
    loop.send({ type: "ipSetRemove", id: `s:${i}` });
  }
  await until(() => seen.length === 1000);
  stop.abort();
  await running;
});

test("FD-004 ten rounds at once, then one every tenth of a second", () => {
  let now = 0;
  const throttle = new Throttle({ capacity: 10, initial: 1, refillMs: 100, now: () => now });
  expect(throttle.take().ok).toBe(true);
  expect(throttle.take()).toEqual({ ok: false, waitMs: 100 });
  now = 150;
  expect(throttle.take().ok).toBe(true);
  expect(throttle.take()).toEqual({ ok: false, waitMs: 50 });
  now = 5000;
  for (let i = 0; i < 10; i++) expect(throttle.take().ok).toBe(true);
  expect(throttle.take().ok).toBe(false);
});

test("FD-006 a failing part does not stop the others, and the round is tried again", async () => {
  const { loop, calls, reports } = testLoop({ name: "manager", times: 1 });
  const stop = new AbortController();
  const running = loop.run(stop.signal);
  loop.interfacesInSync();
  loop.send({ type: "inSync" });
  await until(() => reports.length >= 2);
  expect(calls).toContain("route");
  expect(calls).toContain("delete sets");
  await until(() => calls.filter((call) => call === "manager").length === 2);
  stop.abort();
  await running;
});

test("FD-007 a fatal failure ends the loop", async () => {
  const { loop } = testLoop({ name: "table", error: new FatalDataplaneError("iptables is broken") });
  loop.interfacesInSync();
  loop.send({ type: "inSync" });
  await expect(loop.run(new AbortController().signal)).rejects.toThrow("iptables is broken");
});

test("a write that is cut off because the agent ends is no failure", async () => {
  const stop = new AbortController();
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
  const running = loop.run(stop.signal);
  loop.send({ type: "inSync" });
  loop.interfacesInSync();
  await until(() => isWriting);
  stop.abort();
  await running;
});
