import { expect, test } from "bun:test";
import { silentLogger } from "../lib/log/log.ts";
import { Leadership, leaderTimings } from "./leader-election.ts";
import { FakeKube, status } from "./testing/fake-kube.ts";
import { staysTrue } from "../lib/testing/eventually.ts";

const LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/name";
const timings = { durationMs: 60, renewDeadlineMs: 40, retryMs: 5 };
const replica = (kube: FakeKube, identity: string, now?: () => number, given = timings) =>
  new Leadership({
    api: kube.api,
    namespace: "ns",
    name: "name",
    log: silentLogger,
    identity,
    timings: given,
    now,
  });
const holder = (kube: FakeKube) =>
  (kube.objects.get(LEASE) as { spec?: { holderIdentity?: string } }).spec?.holderIdentity;

test("one replica leads; another takes over when the first stops renewing", async () => {
  const kube = new FakeKube();
  const stop = new AbortController();
  const [first, second] = [replica(kube, "a"), replica(kube, "b")];
  await first.acquire(stop.signal);
  const crash = new AbortController();
  const holding = first.hold(crash.signal);
  const taking = second.acquire(stop.signal);
  await staysTrue(() => holder(kube) === "a" && !second.isLeader, 120); // two leases long
  crash.abort(); // and nothing is released
  await holding;
  await taking;
  expect([holder(kube), second.isLeader, first.isLeader]).toEqual(["b", true, false]);
  stop.abort();
});

test("another replica can start at once after a leader that shuts down", async () => {
  const kube = new FakeKube();
  const { signal } = new AbortController();
  const [first, second] = [replica(kube, "a"), replica(kube, "b")];
  await first.acquire(signal);
  await first.release();
  const started = performance.now();
  await second.acquire(signal);
  expect(performance.now() - started).toBeLessThan(timings.durationMs);
});

test("a leader that shuts down releases the lease even if a renewal is written meanwhile", async () => {
  const kube = new FakeKube();
  const { signal } = new AbortController();
  const first = replica(kube, "a");
  await first.acquire(signal);
  const get = kube.get.bind(kube);
  let renewals = 2;
  kube.get = async (path) => {
    const found = await get(path);
    if (renewals-- > 0) kube.put(path, found); // between the read and the write of the release
    return found;
  };
  await first.release();
  expect(holder(kube)).toBe("");
});

test("a leader that cannot renew stops before another replica may start", async () => {
  const kube = new FakeKube();
  const stop = new AbortController();
  const slow = { durationMs: 3000, renewDeadlineMs: 200, retryMs: 10 };
  const leader = replica(kube, "a", undefined, slow);
  await leader.acquire(stop.signal);
  const holding = leader.hold(stop.signal);
  kube.failure = new Error("down");
  const since = performance.now();
  await holding;
  expect(leader.isLeader).toBe(false);
  expect(performance.now() - since).toBeLessThan(slow.durationMs);
});

test("the duration in the lease is respected even if this replica uses a shorter one", async () => {
  const kube = new FakeKube();
  kube.put(LEASE, { spec: { holderIdentity: "other", leaseDurationSeconds: 1 } });
  const stop = new AbortController();
  const waiting = replica(kube, "a")
    .acquire(stop.signal)
    .catch(() => "stopped");
  await staysTrue(() => holder(kube) === "other", 200);
  stop.abort();
  expect(await waiting).toBe("stopped");
});

test("without access to leases a replica works without one and logs a warning", async () => {
  const kube = new FakeKube();
  kube.failure = status(403, "forbidden");
  const leader = replica(kube, "a");
  await leader.acquire(new AbortController().signal);
  expect(leader.isLeader).toBe(true);
});

test("a process that was paused until its lease expired is not the leader, even if no other replica holds the lease", async () => {
  const kube = new FakeKube();
  let now = 0;
  const leader = replica(kube, "a", () => now);
  await leader.acquire(new AbortController().signal);
  expect(leader.isLeader).toBe(true);
  now += timings.renewDeadlineMs + 1;
  expect([holder(kube), leader.isLeader]).toEqual(["a", false]);
});

test("by default a third of the lease lies between the last write and the next holder", () =>
  expect(leaderTimings()).toEqual({ durationMs: 15_000, renewDeadlineMs: 10_000, retryMs: 2_000 }));
