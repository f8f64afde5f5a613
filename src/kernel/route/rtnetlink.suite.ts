// Tests that every Rtnetlink passes: the real kernel and the fake in memory. Each test starts in a new namespace with `lo` up.
import { describe, expect, test } from "bun:test";
import { parseAddress, parseCidr } from "../../lib/ip/ip.ts";
import { type NewRoute, openRtnetlink, type Route, type Rtnetlink } from "../index.ts";

export type OpenRtnetlink = () => { readonly kernel: ReturnType<typeof openRtnetlink> } & Disposable;

const ip = parseAddress;
const cidr = parseCidr;

/** Creates a veth pair with both ends up, and returns the index of the first. */
function addVeth(kernel: Rtnetlink, name: string): number {
  kernel.links.create({ name, up: true, type: { kind: "veth", peer: { name: `${name}p` } } });
  kernel.links.set(`${name}p`, { up: true });
  return kernel.links.get(name)!.index;
}

/** The routes of one table without those that the kernel adds itself. */
function ours(kernel: Rtnetlink, version: 4 | 6, table = 254): Route[] {
  return kernel.routes.list({ version, table }).filter((route) => route.protocol !== 2);
}

const errnoOf = (action: () => void): string => {
  try {
    action();
  } catch (error) {
    return (error as { errno?: string }).errno ?? String(error);
  }
  return "none";
};

/** @param isEnabled false skips the suite, for test runs without root */
export function rtnetlinkSuite(name: string, open: OpenRtnetlink, isEnabled = true): void {
  describe.skipIf(!isEnabled)(`${name}: links`, () => {
    test("both ends of a veth pair are created and deleted together", () => {
      using box = open();
      const { links } = box.kernel;
      const index = addVeth(box.kernel, "v0");
      expect(links.get("v0")).toMatchObject({ index, kind: "veth", isUp: true, isRunning: true, mtu: 1500 });
      expect(links.get("v0p")?.peer).toBe(index);
      links.set("v0p", { up: false });
      expect(links.get("v0")).toMatchObject({ isUp: true, isRunning: false });
      links.delete("v0p");
      expect(links.get("v0")).toBeUndefined();
      expect(errnoOf(() => links.delete("v0"))).toBe("ENODEV");
    });

    test("a name can be used only once, and settings are read back", () => {
      using box = open();
      const { links } = box.kernel;
      addVeth(box.kernel, "v0");
      expect(errnoOf(() => links.create({ name: "v0", type: { kind: "bridge" } }))).toBe("EEXIST");
      links.set("v0", { mtu: 1400, mac: "ee:ee:ee:ee:ee:ee", alias: "a" });
      expect(links.get("v0")).toMatchObject({ mtu: 1400, mac: "ee:ee:ee:ee:ee:ee", alias: "a" });
      expect(errnoOf(() => links.set("absent", { mtu: 1400 }))).toBe("ENODEV");
    });
  });

  describe.skipIf(!isEnabled)(`${name}: addresses`, () => {
    test("an address can be added only once, and adds the route of its prefix", () => {
      using box = open();
      const { addresses, routes } = box.kernel;
      const link = addVeth(box.kernel, "v0");
      const address = { link, address: ip("10.1.0.5"), length: 24 };
      addresses.add(address);
      expect(errnoOf(() => addresses.add(address))).toBe("EEXIST");
      expect(addresses.list({ version: 4, link })).toMatchObject([{ address: "10.1.0.5", length: 24 }] as never);
      expect(routes.list({ version: 4, table: 254 })).toMatchObject([
        { destination: "10.1.0.0/24", link, scope: "link", protocol: 2, source: "10.1.0.5" },
      ] as never);
      addresses.delete(address);
      expect(errnoOf(() => addresses.delete(address))).toBe("EADDRNOTAVAIL");
      expect(routes.list({ version: 4, table: 254 })).toEqual([]);
    });
  });

  describe.skipIf(!isEnabled)(`${name}: routes`, () => {
    const forms: readonly { name: string; route: (link: number) => NewRoute; want: Partial<Route> }[] = [
      {
        name: "workload",
        route: (link) => ({ destination: cidr("10.65.0.2/32"), link, scope: "link", priority: 1024 }),
        want: { destination: cidr("10.65.0.2/32"), scope: "link", priority: 1024, protocol: 3, type: "unicast" },
      },
      {
        name: "gateway",
        route: (link) => ({ destination: cidr("10.66.0.0/26"), link, gateway: ip("10.1.0.1"), protocol: 80 }),
        want: { gateway: ip("10.1.0.1"), protocol: 80, scope: "universe", onlink: false },
      },
      {
        name: "tunnel",
        route: (link) => ({
          destination: cidr("10.67.0.0/26"),
          link,
          gateway: ip("10.99.0.1"),
          onlink: true,
          metrics: { mtu: 1450, advmss: 1400 },
        }),
        want: { gateway: ip("10.99.0.1"), onlink: true, metrics: { mtu: 1450, advmss: 1400 } },
      },
      {
        name: "blackhole",
        route: () => ({ destination: cidr("10.68.0.0/26"), type: "blackhole", protocol: 80 }),
        want: { type: "blackhole", scope: "universe" },
      },
      {
        name: "prohibit in a large table",
        route: () => ({ destination: cidr("10.69.0.0/26"), type: "prohibit", table: 4000 }),
        want: { type: "prohibit", table: 4000 },
      },
      {
        name: "IPv6 unreachable",
        route: () => ({ destination: cidr("fd00:1::/64"), type: "unreachable" }),
        want: { type: "unreachable", priority: 1024 },
      },
      {
        name: "throw",
        route: () => ({ destination: cidr("10.70.0.0/26"), type: "throw", table: 77 }),
        want: { type: "throw", table: 77 },
      },
      {
        name: "IPv6 workload",
        route: (link) => ({ destination: cidr("fd00:65::2/128"), link, priority: 1024 }),
        want: { destination: cidr("fd00:65::2/128"), priority: 1024 },
      },
      {
        name: "multipath",
        route: (link) => ({
          destination: cidr("10.71.0.0/26"),
          nextHops: [
            { link, gateway: ip("10.1.0.1"), weight: 1, onlink: false },
            { link, gateway: ip("10.99.0.2"), weight: 5, onlink: true },
          ],
        }),
        want: { type: "unicast" },
      },
      {
        name: "TOS and source",
        route: (link) => ({ destination: cidr("10.72.0.0/26"), link, tos: 0x10, source: ip("10.1.0.5") }),
        want: { tos: 0x10, source: ip("10.1.0.5") },
      },
    ];
    for (const { name: form, route, want } of forms)
      test(`${form}: is read back as it was added, and rejected the second time`, () => {
        using box = open();
        const { addresses, routes } = box.kernel;
        const link = addVeth(box.kernel, "v0");
        addresses.add({ link, address: ip("10.1.0.5"), length: 24 });
        const spec = route(link);
        routes.add(spec);
        const version = spec.destination.includes(":") ? 6 : 4;
        const [found, ...more] = ours(box.kernel, version, spec.table).filter(
          (r) => r.destination === spec.destination,
        );
        expect(more).toEqual([]);
        expect(found).toMatchObject({ ...spec, ...want } as never);
        expect(errnoOf(() => routes.add(spec))).toBe("EEXIST");
        const { isDead: _, ...again } = found!;
        routes.replace(again);
        expect(ours(box.kernel, version, spec.table).filter((r) => r.destination === spec.destination)).toEqual([
          found!,
        ]);
        routes.delete({
          destination: spec.destination,
          table: spec.table,
          tos: spec.tos ?? 0,
        });
        expect(ours(box.kernel, version, spec.table).filter((r) => r.destination === spec.destination)).toEqual([]);
        expect(errnoOf(() => routes.delete({ destination: spec.destination, table: spec.table ?? 254 }))).toBe("ESRCH");
      });

    test("routes with different priorities are different routes, and replacing one keeps the other", () => {
      using box = open();
      const { routes } = box.kernel;
      const a = addVeth(box.kernel, "va");
      const b = addVeth(box.kernel, "vb");
      for (const destination of [cidr("10.65.0.2/32"), cidr("fd00:65::2/128")]) {
        routes.add({ destination, link: a, priority: 1024 });
        routes.add({ destination, link: b, priority: 512 });
        routes.replace({ destination, link: b, priority: 1024 });
        const version = destination.includes(":") ? 6 : 4;
        const seen = () =>
          ours(box.kernel, version)
            .map((r) => [r.priority, r.link])
            .sort();
        expect(seen()).toEqual([
          [1024, b],
          [512, b],
        ]);
        routes.delete({ destination, priority: 1024 });
        expect(seen()).toEqual([[512, b]]);
      }
    });

    test("routes are filtered by table, link and protocol", () => {
      using box = open();
      const { routes } = box.kernel;
      const a = addVeth(box.kernel, "va");
      const b = addVeth(box.kernel, "vb");
      routes.add({ destination: cidr("10.2.0.0/32"), link: a, protocol: 80 });
      routes.add({ destination: cidr("10.2.0.1/32"), link: b, protocol: 80 });
      routes.add({ destination: cidr("10.2.0.2/32"), link: b, table: 300 });
      const destinations = (filter: Parameters<typeof routes.list>[0]) =>
        routes.list(filter).map((r) => r.destination as string);
      expect(destinations({ version: 4, link: b, table: 254 })).toEqual(["10.2.0.1/32"]);
      expect(destinations({ version: 4, protocol: 80 }).sort()).toEqual(["10.2.0.0/32", "10.2.0.1/32"]);
      expect(destinations({ version: 4, table: 300 })).toEqual(["10.2.0.2/32"]);
      expect(destinations({ version: 4, table: 301 })).toEqual([]);
      expect(destinations({ version: 6, table: 301 })).toEqual([]);
    });

    test("invalid routes are rejected with the kernel's errno", () => {
      using box = open();
      const { links, routes } = box.kernel;
      const link = addVeth(box.kernel, "v0");
      const destination = cidr("10.3.0.0/24");
      expect(errnoOf(() => routes.add({ destination, link: 9999 }))).toBe("ENODEV");
      expect(errnoOf(() => routes.add({ destination, link, gateway: ip("10.44.0.1") }))).toBe("ENETUNREACH");
      links.set(link, { up: false });
      expect(errnoOf(() => routes.add({ destination, link }))).toBe("ENETDOWN");
      expect(errnoOf(() => routes.delete({ destination }))).toBe("ESRCH");
    });

    test("routes are deleted when their link goes down or is deleted", () => {
      using box = open();
      const { links, routes } = box.kernel;
      const link = addVeth(box.kernel, "v0");
      for (const destination of [cidr("10.3.0.0/24"), cidr("fd00:3::/64")]) routes.add({ destination, link });
      links.set(link, { up: false });
      expect([...ours(box.kernel, 4), ...ours(box.kernel, 6)]).toEqual([]);
      links.set(link, { up: true });
      routes.add({ destination: cidr("10.3.0.0/24"), link });
      links.delete(link);
      expect(ours(box.kernel, 4)).toEqual([]);
    });

    test("a batch applies the valid changes and returns the rejected ones", () => {
      using box = open();
      const link = addVeth(box.kernel, "v0");
      const destinations = Array.from({ length: 300 }, (_, i) => cidr(`10.5.${i >> 8}.${i & 255}/32`));
      const faults = box.kernel.routes.apply([
        ...destinations.map((destination) => ({ action: "replace" as const, route: { destination, link } })),
        { action: "delete", route: { destination: cidr("10.250.0.0/16") } },
        { action: "add", route: { destination: destinations[0]!, link } },
        { action: "add", route: { destination: cidr("10.251.0.0/16"), link } },
      ]);
      expect(faults.map((f) => [f.change.action, f.change.route.destination as string, f.error.errno])).toEqual([
        ["delete", "10.250.0.0/16", "ESRCH"],
        ["add", "10.5.0.0/32", "EEXIST"],
      ]);
      expect(faults[0]?.error.message).toStartWith("delete route 10.250.0.0/16: ESRCH");
      expect(ours(box.kernel, 4)).toHaveLength(301);
    });

    test("a lookup returns the route with the longest prefix", () => {
      using box = open();
      const { routes } = box.kernel;
      const a = addVeth(box.kernel, "va");
      const b = addVeth(box.kernel, "vb");
      for (const [text, link] of [
        ["10.0.0.0/8", a],
        ["10.65.0.0/24", b],
        ["fd00::/16", a],
        ["fd00:1::/32", b],
      ] as const)
        routes.add({ destination: cidr(text), link });
      expect(routes.lookup(ip("10.65.0.9"))).toMatchObject({ destination: "10.65.0.0/24", link: b } as never);
      expect(routes.lookup(ip("10.66.0.9"))).toMatchObject({ destination: "10.0.0.0/8", link: a } as never);
      expect(routes.lookup(ip("fd00:1::9"))).toMatchObject({ destination: "fd00:1::/32", link: b } as never);
      expect(routes.lookup(ip("172.16.0.1"))).toBeUndefined();
    });

    for (const type of ["blackhole", "prohibit", "unreachable", "throw"] as const)
      test(`a lookup that matches a ${type} route returns no route`, () => {
        using box = open();
        const { routes } = box.kernel;
        const link = addVeth(box.kernel, "va");
        for (const [near, far, address] of [
          ["10.65.0.0/26", "10.0.0.0/8", "10.65.0.9"],
          ["fd00:1::/64", "fd00::/16", "fd00:1::9"],
        ] as const) {
          routes.add({ destination: cidr(near), type });
          expect(routes.lookup(ip(address))).toBeUndefined();
          routes.add({ destination: cidr(far), link });
          expect(routes.lookup(ip(address))).toBeUndefined();
        }
      });
  });

  describe.skipIf(!isEnabled)(`${name}: rules`, () => {
    test("rules are added, unique, and deleted", () => {
      using box = open();
      const { rules } = box.kernel;
      for (const version of [4, 6] as const) {
        const before = rules.list(version);
        expect(before.map((r) => [r.priority, r.table])).toContainEqual([32766, 254]);
        const source = cidr(version === 4 ? "10.0.0.0/8" : "fd00::/8");
        const rule = {
          version,
          priority: 99,
          action: "table",
          table: 1000,
          source,
          mark: { value: 0x100000, mask: 0x300000 },
          inverted: true,
        } as const;
        rules.add(rule);
        expect(rules.list(version).filter((r) => r.priority === 99)).toMatchObject([rule]);
        expect(errnoOf(() => rules.add(rule))).toBe("EEXIST");
        rules.delete(rule);
        expect(errnoOf(() => rules.delete(rule))).toBe("ENOENT");
        expect(rules.list(version)).toEqual(before);
      }
    });
  });

  describe.skipIf(!isEnabled)(`${name}: neighbours`, () => {
    test("permanent entries and proxies are added and deleted, in both families", () => {
      using box = open();
      const { neighbours } = box.kernel;
      const link = addVeth(box.kernel, "v0");
      for (const address of [ip("10.65.0.2"), ip("fd00::2")]) {
        const version = address.includes(":") ? 6 : 4;
        const permanent = () => neighbours.list({ version, link }).filter((n) => n.state === "permanent");
        neighbours.set({ link, address, mac: "ca:fe:00:00:00:01" });
        neighbours.set({ link, address, mac: "ca:fe:00:00:00:02" });
        expect(permanent()).toEqual([{ link, address, mac: "ca:fe:00:00:00:02", state: "permanent" }]);
        neighbours.delete({ link, address });
        expect(permanent()).toEqual([]);
        neighbours.addProxy({ link, address });
        neighbours.addProxy({ link, address });
        expect(neighbours.listProxies(version)).toEqual([{ link, address }]);
        neighbours.deleteProxy({ link, address });
        expect(neighbours.listProxies(version)).toEqual([]);
        expect(errnoOf(() => neighbours.deleteProxy({ link, address }))).toBe("ENOENT");
      }
    });

    test("FDB entries of a VXLAN device are replaced, appended and deleted", () => {
      using box = open();
      const { links, neighbours } = box.kernel;
      links.create({ name: "vxlan0", up: true, type: { kind: "vxlan", id: 7, port: 4789, learning: false } });
      const link = links.get("vxlan0")!.index;
      const mac = "66:00:00:00:00:01";
      neighbours.setFdb({ link, mac, destination: ip("192.0.2.1") });
      neighbours.setFdb({ link, mac, destination: ip("192.0.2.2") });
      const entry = { link, mac, destination: ip("192.0.2.2"), isPermanent: true };
      expect(neighbours.listFdb(link)).toEqual([entry]);
      const zero = "00:00:00:00:00:00";
      neighbours.appendFdb({ link, mac: zero, destination: ip("192.0.2.3") });
      neighbours.appendFdb({ link, mac: zero, destination: ip("192.0.2.4") });
      expect(neighbours.listFdb(link).filter((e) => e.mac === zero)).toHaveLength(2);
      neighbours.deleteFdb({ link, mac, destination: ip("192.0.2.2") });
      expect(errnoOf(() => neighbours.deleteFdb({ link, mac, destination: ip("192.0.2.2") }))).toBe("ENOENT");
      expect(neighbours.listFdb(link).filter((e) => e.mac === mac)).toEqual([]);
    });
  });
}
