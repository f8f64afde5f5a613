import { expect, test } from "bun:test";
import { silentLogger } from "../lib/log.ts";
import { Leadership, leaderTimings } from "./leader.ts";
import { FakeKube, status } from "./testing/fake-kube.ts";

const LEASE = "/apis/coordination.k8s.io/v1/namespaces/ns/leases/name";
const timings = { durationMs: 60, giveUpMs: 40, retryMs: 5 };
const replica = (kube: FakeKube, identity: string, now?: () => number, given = timings) =>
  new Leadership({
    api: kube.api,
    namespace: "ns",
    name: "name",
    log: silentLogger,
    identity,
    timings: given,
    ...(now === undefined ? {} : { now }),
  });
const holder = (kube: FakeKube) =>
  (kube.objects.get(LEASE) as { spec?: { holderIdentity?: string } }).spec?.holderIdentity;

test("one replica leads; the next takes over when the first no longer renews", async () => {
  const kube = new FakeKube();
  const stop = new AbortController();
  const [first, second] = [replica(kube, "a"), replica(kube, "b")];
  await first.acquire(stop.signal);
  const crash = new AbortController();
  const holding = first.hold(crash.signal);
  const taking = second.acquire(stop.signal);
  await Bun.sleep(120); // two leases long
  expect([holder(kube), second.mayWork]).toEqual(["a", false]);
  crash.abort(); // and nothing is released
  await holding;
  await taking;
  expect([holder(kube), second.mayWork, first.mayWork]).toEqual(["b", true, false]);
  stop.abort();
});

test("a replica that leaves lets the next begin at once", async () => {
  const kube = new FakeKube();
  const { signal } = new AbortController();
  const [first, second] = [replica(kube, "a"), replica(kube, "b")];
  await first.acquire(signal);
  await first.release();
  const started = performance.now();
  await second.acquire(signal);
  expect(performance.now() - started).toBeLessThan(timings.durationMs);
});

test("a renewal that arrives late does not keep a replica that leaves from letting the next begin", async () => {
  const kube = new FakeKube();
  const { signal } = new AbortController();
  const first = replica(kube, "a");
  await first.acquire(signal);
  const get = kube.get.bind(kube);
  let renewals = 2;
  kube.get = async (path) => {
    const found = await get(path);
    if (renewals-- > 0) kube.put(path, found); // between our reading and our writing
    return found;
  };
  await first.release();
  expect(holder(kube)).toBe("");
});

test("who cannot renew stops before others may begin", async () => {
  const kube = new FakeKube();
  const stop = new AbortController();
  const slow = { durationMs: 3000, giveUpMs: 200, retryMs: 10 };
  const leader = replica(kube, "a", undefined, slow);
  await leader.acquire(stop.signal);
  const holding = leader.hold(stop.signal);
  kube.failure = new Error("down");
  const since = performance.now();
  await holding;
  expect(leader.mayWork).toBe(false);
  expect(performance.now() - since).toBeLessThan(slow.durationMs);
});

test("a holder's promise counts even where ours is shorter", async () => {
  const kube = new FakeKube();
  kube.put(LEASE, { spec: { holderIdentity: "other", leaseDurationSeconds: 1 } });
  const stop = new AbortController();
  const waiting = replica(kube, "a")
    .acquire(stop.signal)
    .catch(() => "stopped");
  await Bun.sleep(200);
  expect(holder(kube)).toBe("other");
  stop.abort();
  expect(await waiting).toBe("stopped");
});

test("without the right to leases it works alone, and says so", async () => {
  const kube = new FakeKube();
  kube.failure = status(403, "forbidden");
  const leader = replica(kube, "a");
  await leader.acquire(new AbortController().signal);
  expect(leader.mayWork).toBe(true);
});

test("a process that was held up does not lead once its lease has run out, whoever has it", async () => {
  const kube = new FakeKube();
  let now = 0;
  const leader = replica(kube, "a", () => now);
  await leader.acquire(new AbortController().signal);
  expect(leader.mayWork).toBe(true);
  now += timings.giveUpMs + 1;
  expect([holder(kube), leader.mayWork]).toEqual(["a", false]);
});

test("the usual lease leaves a third of itself between the last write and the next holder", () =>
  expect(leaderTimings()).toEqual({ durationMs: 15_000, giveUpMs: 10_000, retryMs: 2_000 }));
