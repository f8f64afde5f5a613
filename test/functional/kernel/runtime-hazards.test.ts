// Provokes the hazards of calling libc from a JIT-compiled, garbage-collected runtime, for a limited time: buffers that move
// when code becomes hot, an errno that is read too late, a flood of events, millions of messages.
import { describe, expect, test } from "bun:test";
import { NETLINK_ROUTE, NetlinkReader, NetlinkSocket, NetlinkWriter } from "../../../src/kernel/index.ts";
import { parseCidr } from "../../../src/lib/ip/ip.ts";
import { drainEvents } from "./drain-events.ts";
import { isRoot, RtnetlinkNamespace } from "./rtnetlink-namespace.ts";

const BUDGET_MS = 3000;

/** Creates work for the garbage collector: many short-lived typed arrays. */
function makeGarbage(round: number): number {
  let sum = 0;
  for (let i = 0; i < 8; i++) sum += new Uint8Array(64 + ((round + i) & 63)).length;
  return sum;
}

test("two million messages are encoded and decoded correctly, before and after the code is optimized", () => {
  const w = new NetlinkWriter();
  const end = performance.now() + BUDGET_MS;
  let messages = 0;
  for (let round = 0; messages < 2_000_000 && performance.now() < end; round++) {
    w.reset(round + 1);
    for (let i = 0; i < 500; i++)
      w.message(24, 0, () => {
        w.putU32(i);
        w.u32(1, round);
        w.nest(2, () => w.string(3, "cali0123456789a"));
      });
    messages += w.messages;
    makeGarbage(round);
    const bytes = w.buffer;
    const size = w.length / w.messages;
    const view = new DataView(bytes.buffer);
    for (const i of [0, 250, 499]) {
      const at = i * size;
      if (view.getUint32(at + 8, true) !== round + 1 + i || view.getUint32(at + 16, true) !== i)
        throw new Error(`message ${i} of round ${round} is torn`);
      const a = new NetlinkReader(bytes, view, at + 20, at + size);
      a.next();
      if (a.u32() !== round) throw new Error(`round ${round} reads ${a.u32()}`);
      a.next();
      const inner = a.nested();
      inner.next();
      if (inner.string() !== "cali0123456789a") throw new Error(`text of round ${round} is ${inner.string()}`);
    }
  }
  expect(messages).toBeGreaterThan(100_000);
});

describe.skipIf(!isRoot)("against the kernel", () => {
  test("replies are correct while the code is optimized and the garbage collector runs", () => {
    using ns = new RtnetlinkNamespace();
    const first = ns.addVeth("v0");
    const second = ns.addVeth("v1");
    const end = performance.now() + BUDGET_MS;
    let requests = 0;
    for (; performance.now() < end && requests < 300_000; requests++) {
      const isFirst = (requests & 1) === 0;
      const link = ns.kernel.links.get(isFirst ? "v0" : second);
      if (link?.index !== (isFirst ? first : second)) throw new Error(`request ${requests} got ${link?.name}`);
      if ((requests & 63) === 0) makeGarbage(requests);
      if ((requests & 8191) === 0) Bun.gc(true);
    }
    expect(requests).toBeGreaterThan(2000);
  });

  test("an errno is never that of another call, even in a hot loop", () => {
    using ns = new RtnetlinkNamespace();
    const link = ns.addVeth("v0");
    const route = { destination: parseCidr("10.1.0.0/24"), link };
    const end = performance.now() + BUDGET_MS / 2;
    const seen = new Set<string>();
    let rounds = 0;
    for (; performance.now() < end; rounds++) {
      for (const action of [() => ns.kernel.routes.delete(route), () => ns.kernel.links.delete("absent")])
        try {
          action();
        } catch (error) {
          seen.add((error as { errno: string }).errno);
        }
      makeGarbage(rounds);
    }
    expect([...seen].sort()).toEqual(["ENODEV", "ESRCH"]);
    expect(rounds).toBeGreaterThan(1000);
  });

  test("a socket reports an overrun and continues to receive", () => {
    using ns = new RtnetlinkNamespace();
    const link = ns.addVeth("v0");
    using socket = ns.handle.run(() => NetlinkSocket.open(NETLINK_ROUTE, { groups: [7], receiveBufferBytes: 2048 }));
    const change = (n: number) => ({
      action: "replace" as const,
      route: { destination: parseCidr(`10.9.${n >> 8}.${n & 255}/32`), link },
    });
    ns.kernel.routes.apply(Array.from({ length: 3000 }, (_, n) => change(n)));
    let events = 0;
    expect(drainEvents(socket, () => events++)).toBe("overrun");
    expect(events).toBeLessThan(3000);
    ns.kernel.routes.apply([change(5000)]);
    events = 0;
    expect(drainEvents(socket, () => events++)).toBe("drained");
    expect(events).toBe(1);
  });

  test("a dump during concurrent changes contains all routes that were there all the time", async () => {
    using ns = new RtnetlinkNamespace();
    const link = ns.addVeth("v0");
    const stable = Array.from({ length: 3000 }, (_, n) => parseCidr(`10.8.${n >> 8}.${n & 255}/32`));
    ns.kernel.routes.apply(stable.map((destination) => ({ action: "add" as const, route: { destination, link } })));
    // Another process continuously adds and deletes a route.
    const churn = Bun.spawn(
      [
        "ip",
        "netns",
        "exec",
        ns.name,
        "sh",
        "-c",
        "while :; do ip route add 10.7.0.1/32 dev v0; ip route del 10.7.0.1/32; done",
      ],
      { stdout: "ignore", stderr: "ignore" },
    );
    try {
      const end = performance.now() + 1000;
      for (let dumps = 0; performance.now() < end; dumps++) {
        const seen = new Set(ns.kernel.routes.list({ version: 4, table: 254 }).map((r) => r.destination));
        const missing = stable.filter((destination) => !seen.has(destination));
        if (missing.length > 0) throw new Error(`dump ${dumps} lacks ${missing.length} routes`);
      }
    } finally {
      churn.kill();
      await churn.exited;
    }
  });
});
