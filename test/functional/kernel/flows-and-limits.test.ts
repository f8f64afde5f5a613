// Conntrack, checksum offload and bandwidth limits, compared with conntrack(8), ethtool(8) and tc(8).
import { describe, expect, test } from "bun:test";
import {
  burstTicks,
  hasTransmitChecksumOffload,
  openConntrack,
  openTrafficControl,
  openWireguard,
  setTransmitChecksumOffload,
} from "../../../src/kernel/index.ts";
import { parseAddress } from "../../../src/lib/ip/ip.ts";
import { isRoot, RtnetlinkNamespace } from "./rtnetlink-namespace.ts";

describe.skipIf(!isRoot)("conntrack", () => {
  test("flows from and to an address are deleted, others are not", async () => {
    using ns = new RtnetlinkNamespace();
    using conntrack = openConntrack(ns.handle);
    const add = (source: string, destination: string, port: number) =>
      ns.exec(
        "conntrack",
        ..."-I -p tcp --state ESTABLISHED -t 300".split(" "),
        "-s",
        source,
        "-d",
        destination,
        "--sport",
        String(port),
        "--dport",
        "80",
      );
    for (let i = 0; i < 5; i++) add("10.0.0.1", "10.0.0.9", 1000 + i);
    add("10.0.0.8", "10.0.0.1", 2000); // the address is the destination
    add("10.0.0.3", "10.0.0.9", 3000);
    add("fd00::1", "fd00::9", 4000);
    add("fd00::2", "fd00::9", 4000);
    const flows = conntrack.list(4);
    expect(flows).toHaveLength(7);
    expect(flows.find((f) => f.original.sourcePort === 3000)).toMatchObject({
      original: { source: "10.0.0.3", destination: "10.0.0.9", protocol: 6, destinationPort: 80 },
      reply: { source: "10.0.0.9", destination: "10.0.0.3" },
    } as never);
    expect(await conntrack.deleteByAddress([parseAddress("10.0.0.1"), parseAddress("fd00::1")])).toBe(7);
    expect(conntrack.list(4).map((f) => f.original.source as string)).toEqual(["10.0.0.3"]);
    expect(conntrack.list(6).map((f) => f.original.source as string)).toEqual(["fd00::2"]);
    expect(ns.exec("conntrack", "-L")).not.toContain("10.0.0.1 ");
    expect(await conntrack.deleteByAddress([parseAddress("10.0.0.1")])).toBe(0);
    expect(await conntrack.deleteByAddress([])).toBe(0);
  });
});

describe.skipIf(!isRoot)("devices", () => {
  test("checksum offload is switched off and on, as shown by ethtool", () => {
    using ns = new RtnetlinkNamespace();
    ns.addVeth("v0");
    const seen = () => /tx-checksum-ip-generic: (\w+)/.exec(ns.exec("ethtool", "-k", "v0"))?.[1];
    expect(seen()).toBe("on");
    ns.handle.run(() => setTransmitChecksumOffload("v0", false));
    expect([seen(), ns.handle.run(() => hasTransmitChecksumOffload("v0"))]).toEqual(["off", false]);
    ns.handle.run(() => setTransmitChecksumOffload("v0", true));
    expect(seen()).toBe("on");
    expect(() => ns.handle.run(() => setTransmitChecksumOffload("absent", false))).toThrow(/ENODEV/);
  });

  test("limits in both directions are shown by tc, and read back", () => {
    using ns = new RtnetlinkNamespace();
    const link = ns.addVeth("v0");
    ns.kernel.links.create({ name: "ifb9", up: true, type: { kind: "ifb" } });
    const target = ns.index("ifb9");
    using tc = openTrafficControl(ns.handle);
    expect(tc.tokenBucket(link)).toBeUndefined();
    expect(tc.ingressRedirect(link)).toBeUndefined();
    const bucket = { bytesPerSecond: 125_000n, limit: 20_000, bufferTicks: burstTicks(125_000, 10_000) };
    tc.setTokenBucket(link, bucket);
    expect(tc.tokenBucket(link)).toEqual(bucket);
    const shown = JSON.parse(ns.exec("tc", "-j", "qdisc", "show", "dev", "v0", "root")) as Record<string, unknown>[];
    expect(shown[0]).toMatchObject({ kind: "tbf", options: { rate: 125_000, burst: 10_000 } });
    const fast = { ...bucket, bytesPerSecond: 12_500_000_000n };
    tc.setTokenBucket(link, fast);
    expect(tc.tokenBucket(link)).toEqual(fast);
    tc.setIngressRedirect(link, target);
    expect(tc.ingressRedirect(link)).toBe(target);
    expect(ns.exec("tc", "filter", "show", "dev", "v0", "parent", "ffff:")).toContain(
      "mirred (Egress Redirect to device ifb9)",
    );
    tc.deleteIngress(link);
    tc.deleteTokenBucket(link);
    expect([tc.tokenBucket(link), tc.ingressRedirect(link)]).toEqual([undefined, undefined]);
  });

  test("a kernel without WireGuard is not an error", () => {
    using ns = new RtnetlinkNamespace();
    using wireguard = openWireguard(ns.handle);
    if (wireguard === undefined) return; // as on most build machines
    expect(wireguard.get("absent")).toBeUndefined();
  });
});
