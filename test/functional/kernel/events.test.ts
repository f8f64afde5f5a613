// Events of the real kernel: nothing missed, and told when something was.
import { describe, expect, test } from "bun:test";
import { EventMonitor, type EventSubject, type KernelEvent } from "../../../src/kernel/index.ts";
import { parseAddress, parseCidr } from "../../../src/lib/ip.ts";
import { eventually, isRoot, TestNamespace } from "./support.ts";

function watch(ns: TestNamespace, subjects: EventSubject[], receiveBufferBytes?: number) {
  const events: KernelEvent[] = [];
  const failures: Error[] = [];
  const monitor = new EventMonitor({
    subjects,
    namespace: ns.handle,
    onEvents: (batch) => events.push(...batch),
    onFailure: (why) => failures.push(why),
    ...(receiveBufferBytes === undefined ? {} : { receiveBufferBytes }),
  });
  return { events, failures, [Symbol.asyncDispose]: () => monitor[Symbol.asyncDispose]() };
}

describe.skipIf(!isRoot)("events", () => {
  test("a link's life, its address and its route are told in order", async () => {
    using ns = new TestNamespace();
    await using seen = watch(ns, ["links", "addresses", "routes"]);
    const link = ns.addVeth("v0");
    ns.kernel.addresses.add({ link, address: parseAddress("10.1.0.1"), length: 32 });
    ns.kernel.routes.add({ destination: parseCidr("10.2.0.0/24"), link, protocol: 80 });
    ns.kernel.links.delete("v0");
    await eventually(() => seen.events.some((e) => e.type === "link" && e.isGone && e.link.name === "v0"));
    const story = seen.events.flatMap((e) => {
      if (e.type === "link" && e.link.name === "v0")
        return [e.isGone ? "link gone" : `link ${e.link.isUp ? "up" : "down"}`];
      if (e.type === "address" && e.address.address === parseAddress("10.1.0.1"))
        return [`address ${e.isGone ? "gone" : "new"}`];
      if (e.type === "route" && e.route.protocol === 80) return [`route ${e.isGone ? "gone" : "new"}`];
      return [];
    });
    const once = story.filter((line, i) => line !== story[i - 1]);
    expect(once[0]).toStartWith("link");
    expect(once.indexOf("address new")).toBeLessThan(once.indexOf("route new"));
    expect(once.at(-1)).toBe("link gone");
    expect(seen.failures).toEqual([]);
  });

  test("20,000 route changes arrive complete", async () => {
    using ns = new TestNamespace();
    const link = ns.addVeth("v0");
    await using seen = watch(ns, ["routes"]);
    const routes = Array.from({ length: 10_000 }, (_, i) => ({
      destination: parseCidr(`10.3.${i >> 8}.${i & 255}/32`),
      link,
      protocol: 80,
    }));
    expect(ns.kernel.routes.apply(routes.map((route) => ({ action: "add" as const, route })))).toEqual([]);
    expect(ns.kernel.routes.apply(routes.map((route) => ({ action: "delete" as const, route })))).toEqual([]);
    const count = (isGone: boolean) =>
      seen.events.filter((e) => e.type === "route" && e.isGone === isGone && e.route.protocol === 80).length;
    await eventually(() => count(true) >= 10_000);
    expect([count(false), count(true), seen.events.filter((e) => e.type === "resync").length]).toEqual([
      10_000, 10_000, 0,
    ]);
  });

  test("a burst that overruns the buffer asks for a resync", async () => {
    using ns = new TestNamespace();
    const link = ns.addVeth("v0");
    await using seen = watch(ns, ["routes"], 2048);
    const changes = Array.from({ length: 8000 }, (_, i) => ({
      action: "add" as const,
      route: { destination: parseCidr(`10.3.${i >> 8}.${i & 255}/32`), link },
    }));
    ns.kernel.routes.apply(changes);
    await eventually(() => seen.events.some((e) => e.type === "resync"));
    ns.kernel.routes.add({ destination: parseCidr("10.77.0.0/24"), link });
    await eventually(() =>
      seen.events.some((e) => e.type === "route" && (e.route.destination as string) === "10.77.0.0/24"),
    );
    expect(seen.failures).toEqual([]);
  });

  test("ending is clean, twice, and frees the descriptors", async () => {
    using ns = new TestNamespace();
    for (let i = 0; i < 3; i++) {
      const seen = watch(ns, ["links"]);
      await seen[Symbol.asyncDispose]();
      await seen[Symbol.asyncDispose]();
      expect(seen.failures).toEqual([]);
    }
  });
});
