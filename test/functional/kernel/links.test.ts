// Links, addresses and namespaces, compared with the output of `ip -j`.
import { existsSync } from "node:fs";
import { describe, expect, test } from "bun:test";
import {
  createNamedNamespace,
  deleteNamedNamespace,
  hasErrno,
  listNamedNamespaces,
  NetworkNamespace,
  openRtnetlink,
  procSysctls,
  withNamespace,
} from "../../../src/kernel/index.ts";
import { parseAddress } from "../../../src/lib/ip/ip.ts";
import { isRoot, RtnetlinkNamespace } from "./rtnetlink-namespace.ts";

describe.skipIf(!isRoot)("links", () => {
  test("the other end of a veth pair is created directly in its namespace", () => {
    using host = new RtnetlinkNamespace();
    using pod = new RtnetlinkNamespace();
    host.kernel.links.create({
      name: "cali123",
      up: true,
      mtu: 1440,
      mac: "ee:ee:ee:ee:ee:ee",
      type: {
        kind: "veth",
        peer: { name: "eth0", namespaceFd: pod.handle.fd, mtu: 1440, mac: "0a:00:00:00:00:01" },
      },
    });
    pod.kernel.links.set("eth0", { up: true });
    const [near] = host.ip("link", "show", "cali123");
    const [far] = pod.ip("link", "show", "eth0");
    expect(near).toMatchObject({ mtu: 1440, address: "ee:ee:ee:ee:ee:ee", operstate: "UP" });
    expect(far).toMatchObject({ mtu: 1440, address: "0a:00:00:00:00:01", operstate: "UP" });
    const link = host.kernel.links.get("cali123")!;
    expect(link).toMatchObject({ kind: "veth", isUp: true, isRunning: true, operState: "up", peer: far!.ifindex });
    expect(link.peerNamespaceId).toBeGreaterThanOrEqual(0);
    expect(host.kernel.links.get(link.index)).toEqual(link);
  });

  test("vxlan, bridge and ifb links are created with their attributes", () => {
    using ns = new RtnetlinkNamespace();
    const parent = ns.addVeth("parent");
    ns.kernel.addresses.add({ link: parent, address: parseAddress("10.9.0.1"), length: 24 });
    ns.kernel.links.create({
      name: "vxlan.calico",
      mac: "66:11:22:33:44:55",
      type: { kind: "vxlan", id: 4096, port: 4789, device: parent, local: parseAddress("10.9.0.1"), learning: false },
    });
    ns.kernel.links.create({ name: "br0", up: true, type: { kind: "bridge", stp: false } });
    ns.kernel.links.create({ name: "ifb9", type: { kind: "ifb" }, transmitQueueLength: 77 });
    expect(ns.ip("link", "show", "vxlan.calico")[0]).toMatchObject({
      address: "66:11:22:33:44:55",
      linkinfo: {
        info_kind: "vxlan",
        info_data: { id: 4096, port: 4789, link: "parent", local: "10.9.0.1", learning: false },
      },
    });
    expect(ns.kernel.links.get("vxlan.calico")?.vxlan).toMatchObject({
      id: 4096,
      port: 4789,
      device: parent,
      local: parseAddress("10.9.0.1"),
      learning: false,
    });
    expect(ns.ip("link", "show", "br0")[0]).toMatchObject({
      linkinfo: { info_kind: "bridge", info_data: { stp_state: 0 } },
    });
    expect(ns.ip("link", "show", "ifb9")[0]).toMatchObject({ txqlen: 77, linkinfo: { info_kind: "ifb" } });
  });

  test("a link can be renamed, added to a bridge, set down, moved and deleted", () => {
    using ns = new RtnetlinkNamespace();
    using other = new RtnetlinkNamespace();
    const index = ns.addVeth("v0");
    ns.kernel.links.create({ name: "br0", up: true, type: { kind: "bridge" } });
    ns.kernel.links.set(index, { up: false, name: "renamed", mtu: 1400, alias: "for a test" });
    ns.kernel.links.set("renamed", { master: ns.index("br0") });
    ns.kernel.links.set("renamed", { hairpin: true });
    expect(ns.ip("link", "show", "renamed")[0]).toMatchObject({
      mtu: 1400,
      master: "br0",
      ifalias: "for a test",
      operstate: "DOWN",
      linkinfo: { info_slave_data: { hairpin: true } },
    });
    expect(ns.kernel.links.get("renamed")).toMatchObject({ alias: "for a test", master: ns.index("br0"), isUp: false });
    ns.kernel.links.set("renamed", { master: 0 });
    ns.kernel.links.set("renamed", { namespaceFd: other.handle.fd });
    expect(other.ip("link", "show", "renamed")).toHaveLength(1);
    expect(ns.kernel.links.get("renamed")).toBeUndefined();
    other.kernel.links.delete("renamed");
    expect(other.kernel.links.list().map((l) => l.name)).toEqual(["lo"]);
  });

  test("the list equals that of `ip link`", () => {
    using ns = new RtnetlinkNamespace();
    for (let i = 0; i < 20; i++) ns.addVeth(`v${i}`);
    const seen = ns.ip("link").map((l) => ({ index: l.ifindex, name: l.ifname, mtu: l.mtu }));
    expect(ns.kernel.links.list().map(({ index, name, mtu }) => ({ index, name, mtu }))).toEqual(seen as never);
  });

  test("an error contains the operation and the errno", () => {
    using ns = new RtnetlinkNamespace();
    ns.addVeth("v0");
    const again = () => ns.addVeth("v0", "other");
    expect(again).toThrow(/create veth link v0: EEXIST/);
    expect(() => ns.kernel.links.delete("nothing")).toThrow(/delete link nothing: ENODEV/);
    expect(ns.kernel.links.get("nothing")).toBeUndefined();
    expect(ns.kernel.links.get("a name much longer than a link may have")).toBeUndefined();
  });
});

describe.skipIf(!isRoot)("addresses", () => {
  test("addresses of both families have the scope, label and broadcast that `ip addr` prints", () => {
    using ns = new RtnetlinkNamespace();
    const link = ns.addVeth("v0");
    const { addresses } = ns.kernel;
    const one = { link, address: parseAddress("10.1.0.1"), length: 24 };
    addresses.add({ ...one, broadcast: parseAddress("10.1.0.255"), label: "v0:x" });
    addresses.add({ link, address: parseAddress("169.254.1.1"), length: 32, scope: "link" });
    addresses.add({ link, address: parseAddress("fd00::1"), length: 64, noDuplicateDetection: true });
    const info = ns.ip("addr", "show", "v0")[0]!.addr_info as Record<string, unknown>[];
    expect(info.filter((a) => a.scope !== "link" || a.family === "inet")).toMatchObject([
      { local: "169.254.1.1", prefixlen: 32, scope: "link" },
      { local: "10.1.0.1", prefixlen: 24, broadcast: "10.1.0.255", label: "v0:x", scope: "global" },
      { local: "fd00::1", prefixlen: 64, scope: "global" },
    ]);
    const listed = addresses.list({ link }).filter((a) => !a.address.startsWith("fe80"));
    expect(listed).toMatchObject([
      { address: "169.254.1.1", scope: "link" },
      { address: "10.1.0.1", length: 24, scope: "universe", label: "v0:x", isTentative: false },
      { address: "fd00::1", length: 64, isTentative: false },
    ] as never);
    expect(() => addresses.add(one)).toThrow(/EEXIST/);
    addresses.replace(one);
    addresses.delete(one);
    expect(() => addresses.delete(one)).toThrow(/EADDRNOTAVAIL/);
    expect(addresses.list({ version: 4, link })).toHaveLength(1);
  });
});

describe.skipIf(!isRoot)("namespaces", () => {
  test("a named namespace is created and listed, and deleting it twice is not an error", () => {
    const name = "krt-named";
    deleteNamedNamespace(name);
    createNamedNamespace(name);
    try {
      expect(listNamedNamespaces()).toContain(name);
      expect(() => createNamedNamespace(name)).toThrow(/EEXIST/);
      using handle = NetworkNamespace.named(name);
      using here = NetworkNamespace.current();
      expect(handle.inode).not.toBe(here.inode);
    } finally {
      deleteNamedNamespace(name);
    }
    deleteNamedNamespace(name);
    expect(existsSync(`/run/netns/${name}`)).toBeFalse();
    expect(() => NetworkNamespace.named(name)).toThrow(/ENOENT/);
    expect(() => createNamedNamespace("../evil")).toThrow(/not a network namespace name/);
  });

  test("sockets and sysctls belong to the entered namespace, and an error returns to the previous one", () => {
    using ns = new RtnetlinkNamespace();
    using previous = NetworkNamespace.current();
    ns.addVeth("only-here");
    const inside = withNamespace(ns.handle, () => {
      using kernel = openRtnetlink();
      procSysctls.write(["net", "ipv4", "conf", "only-here", "proxy_arp"], 1);
      return kernel.links.list().map((l) => l.name);
    });
    expect(inside).toContain("only-here");
    expect(ns.exec("cat", "/proc/sys/net/ipv4/conf/only-here/proxy_arp").trim()).toBe("1");
    const fail = () =>
      withNamespace(ns.handle, () => {
        procSysctls.read(["net", "ipv4", "conf", "absent", "proxy_arp"]);
      });
    expect(fail).toThrow(/read sysctl net\/ipv4\/conf\/absent\/proxy_arp: ENOENT/);
    using after = NetworkNamespace.current();
    expect(after.inode).toBe(previous.inode);
    expect(() => procSysctls.read(["net", "..", "x"])).toThrow(RangeError);
  });

  test("entering a file that is not a namespace fails, and the thread stays where it is", () => {
    using here = NetworkNamespace.current();
    using file = NetworkNamespace.open("/etc/hostname");
    let caught: unknown;
    try {
      withNamespace(file, () => 1);
    } catch (error) {
      caught = error;
    }
    expect(hasErrno(caught, "EINVAL")).toBeTrue();
    using after = NetworkNamespace.current();
    expect(after.inode).toBe(here.inode);
  });
});
