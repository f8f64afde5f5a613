// Tests the checks of the host.
import { describe, expect, test } from "bun:test";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { ids, look, only } from "../testing/findings.ts";
import { healthy, link, node, PODS, pool, resource, session, THREE } from "../testing/healthy.ts";
import type { HostFacts } from "./facts.ts";
import { readRejected, rejectedNote } from "./host-rejected-rules.ts";

describe("the host", () => {
  const cluster = [PODS, ...THREE];

  test("sysctls", () => {
    const off = {
      ...healthy,
      sysctl: (path: string) => (path === "net/ipv4/ip_forward" ? "0" : path.endsWith("rp_filter") ? "2" : undefined),
    };
    expect(look(cluster, off).map(({ setting }) => setting)).toEqual([
      "net.ipv4.ip_forward=1",
      "net.ipv4.conf.all.rp_filter=1",
    ]);
    const v6 = [PODS, node("n1", "10.0.0.1/24", { ipv6Address: "fd00::1/64" })];
    const noForward = {
      ...healthy,
      links: [link("eth0", "10.0.0.1/24", "fd00::1/64")],
      sysctl: (path: string) => (path.includes("all/forwarding") ? "0" : undefined),
    };
    expect(ids(look(v6, noForward))).toEqual(["sysctl"]);
    expect(look(cluster, { ...noForward })).toEqual([]); // no IPv6 node
  });

  test("a kernel without a feature that the pools require", () => {
    const bare = { ...healthy, hasModule: (name: string) => name === "nf_tables" };
    expect(look(cluster, bare)).toEqual([]);
    const tunnels = [
      pool("v", "10.65.0.0/17", { vxlanMode: "Always" }),
      pool("i", "10.65.128.0/17", { ipipMode: "CrossSubnet" }),
      ...THREE,
    ];
    expect(look(tunnels, bare).map(({ problem }) => problem)).toEqual([
      "the kernel of n1 does not support vxlan",
      "the kernel of n1 does not support ipip",
    ]);
    const felix = resource("FelixConfiguration", "default", { wireguardEnabled: true });
    expect(only(look([...cluster, felix], bare), "kernel-feature").problem).toContain("wireguard");
    expect(only(look(cluster, { ...healthy, hasModule: () => false }), "kernel-feature").problem).toContain(
      "nf_tables",
    );
  });

  test("mixed iptables backends, and two dataplanes", () => {
    const rules = (calico: number, kubernetes: number, all: number) => ({ calico, kubernetes, all });
    const mixed = { ...healthy, iptables: { legacy: rules(20, 0, 20), nft: rules(0, 30, 30) } };
    expect(only(look(cluster, mixed), "mixed-iptables")).toMatchObject({
      severity: "error",
      setting: "FelixConfiguration(default) spec.iptablesBackend: NFT",
    });
    const foreign = { ...healthy, iptables: { legacy: rules(0, 0, 2), nft: rules(20, 30, 50) } };
    expect(only(look(cluster, foreign), "mixed-iptables").severity).toBe("warning");
    expect(look(cluster, { ...healthy, iptables: { legacy: rules(0, 0, 0), nft: rules(20, 30, 50) } })).toEqual([]);
    const both = { ...healthy, hasCalicoNftTable: true, iptables: { legacy: undefined, nft: rules(20, 0, 20) } };
    expect(only(look(cluster, both), "two-dataplanes").problem).toContain("20");
  });

  test("a guard table that is still closed, and IPv6 without rules", () => {
    const felix = { name: "felix", isRunning: false, detail: "its process has ended" };
    const closed = { ...healthy, guard: { state: "closed", policyFor: [] }, parts: [felix] } as const;
    expect(only(look(cluster, closed), "workloads-closed")).toMatchObject({
      severity: "error",
      evidence: ["the nftables table inet calico-guard is in its closed state", "Felix is not running"],
    });
    const sysctl = (path: string) => (path === "net/ipv6/conf/all/disable_ipv6" ? "0" : healthy.sysctl(path));
    const left = { ...healthy, sysctl, guard: { state: "absent", policyFor: [4] } } as const;
    expect(only(look(cluster, left), "ipv6-without-rules").setting).toContain("ipv6Support");
    const fine: readonly Partial<typeof healthy>[] = [
      { guard: { state: "absent", policyFor: [4, 6] } },
      { guard: { state: "absent", policyFor: [] } },
      { guard: { state: "normal", policyFor: [4] } },
      { guard: undefined },
      { sysctl: healthy.sysctl },
    ];
    for (const each of fine) expect(look(cluster, { ...left, ...each })).toEqual([]);
  });

  test("MTUs larger than the path MTU minus the encapsulation", () => {
    const vxlan = [pool("v", "10.65.0.0/16", { vxlanMode: "Always" }), ...THREE];
    const with_ = (name: string, mtu: number) => ({ ...healthy, links: [...healthy.links, { ...link(name), mtu }] });
    expect(look(vxlan, with_("vxlan.calico", 1450))).toEqual([]);
    expect(only(look(vxlan, with_("vxlan.calico", 1451)), "mtu")).toMatchObject({
      setting: "FelixConfiguration(default) spec.vxlanMTU: 1450",
    });
    expect(look(cluster, with_("cali1", 1500))).toEqual([]);
    const narrow = { ...with_("cali1", 1500), pathMtu: new Map([["n2", 1400]]) };
    expect(only(look(cluster, narrow), "mtu")).toMatchObject({ interface: "cali1", setting: "mtu: 1400" });
    const both = {
      ...healthy,
      links: [...healthy.links, { ...link("vxlan.calico"), mtu: 1450 }, { ...link("cali1"), mtu: 1500 }],
    };
    expect(only(look(vxlan, both), "mtu").evidence.join()).toContain("less 50 of vxlan.calico");
  });

  test("for an MTU set in FelixConfiguration, the finding names that setting, not the CNI configuration", () => {
    const vxlan = [pool("v", "10.65.0.0/16", { vxlanMode: "Always" }), ...THREE];
    const felix = (name: string, mtu: number) => resource("FelixConfiguration", name, { vxlanMTU: mtu });
    const links = (tunnel: number, pod?: number) => [
      ...healthy.links,
      { ...link("vxlan.calico"), mtu: tunnel },
      ...(pod === undefined ? [] : [{ ...link("cali1"), mtu: pod }]),
    ];
    for (const [tunnel, pod] of [[1450], [1450, 9000], [9000, 9000]] as const) {
      const found = look([...vxlan, felix("default", 9000)], { ...healthy, links: links(tunnel, pod) });
      expect(ids(found)).toEqual(["mtu"]);
      expect(found[0]).toMatchObject({
        object: "FelixConfiguration(default)",
        setting: "FelixConfiguration(default) spec.vxlanMTU: 1450",
        fix: expect.stringContaining(`calicoctl patch felixconfiguration default -p '{"spec":{"vxlanMTU":0}}'`),
      });
      expect(found[0]?.problem).toContain("FelixConfiguration.vxlanMTU is 9000");
    }
    // The node's own configuration takes precedence, and 0 means detection, so that the pod's MTU is from the CNI configuration.
    const detected = [...vxlan, felix("default", 9000), felix("node.n1", 0)];
    expect(look(detected, { ...healthy, links: links(1450) })).toEqual([]);
    expect(only(look(detected, { ...healthy, links: links(1450, 9000) }), "mtu").setting).toBe("mtu: 1450");
    // No pool uses VXLAN: the setting has no effect.
    expect(look([PODS, ...THREE, felix("default", 9000)], { ...healthy, links: links(1450) })).toEqual([]);
  });

  test("interfaces without a carrier, instead of findings about the sessions that use them", () => {
    const rack = resource("BGPPeer", "rack", { peerIP: "10.9.0.254", asNumber: 65001 });
    const sessions = [session("10.0.0.2", {}), session("10.9.0.254", { kind: "global" })];
    const birds = { 4: { routerId: "10.0.0.1", sessions }, 6: undefined };
    const withEth = (eth0: object, eth1: object): HostFacts => ({
      ...healthy,
      birds,
      links: [
        { ...link("eth0", "10.0.0.1/24"), ...eth0 },
        { ...link("eth1", "10.9.0.1/24"), ...eth1 },
        { ...link("docker0", "172.17.0.1/16"), hasCarrier: false },
      ],
      sessionEvidence: () => ({ loggedError: "Hold timer expired" }),
    });
    const own = look([...cluster, rack], withEth({ hasCarrier: false }, {}));
    expect(ids(own)).toEqual(["dual-nic", "link-down"]); // eth1 is not in the Node's network
    expect(only(own, "link-down")).toMatchObject({
      severity: "error",
      problem: "eth0 on n1 has no carrier",
      interface: "eth0",
      address: "10.0.0.1",
    });
    const down = only(look(cluster, withEth({ isUp: false, hasCarrier: false }, {})), "link-down");
    expect(down).toMatchObject({ problem: "eth0 on n1 is administratively down", fix: "ip link set eth0 up" });
    const other = look(
      [...cluster, resource("BGPPeer", "rack", { peerIP: "10.9.0.254", asNumber: 65001, sourceAddress: "None" })],
      {
        ...withEth({}, { hasCarrier: false }),
        birds: { 4: { routerId: "10.0.0.1", sessions: sessions.slice(1) }, 6: undefined },
      },
    );
    expect(ids(other)).toEqual(["link-down"]);
    expect(other[0]).toMatchObject({
      problem: "eth1 on n1 has no carrier",
      evidence: [expect.any(String), "in its network: 10.9.0.254"],
    });
  });

  test("an ARP table and a conntrack table near their limits", () => {
    const table = (entries: number) => ({
      ...healthy,
      neighbourTable: { 4: { entries, limit: 1024, overflows: 3 }, 6: undefined },
    });
    expect(look(cluster, table(800))).toEqual([]);
    expect(only(look(cluster, table(900)), "arp-table")).toMatchObject({
      severity: "warning",
      setting: "net.ipv4.neigh.default.gc_thresh3=8192",
    });
    expect(only(look(cluster, table(1024)), "arp-table").severity).toBe("error");
    const full = {
      ...healthy,
      sysctl: (path: string) =>
        ({ "net/netfilter/nf_conntrack_count": "95", "net/netfilter/nf_conntrack_max": "100" })[path],
    };
    expect(only(look(cluster, full), "conntrack-full").setting).toBe("net.netfilter.nf_conntrack_max=200");
  });

  test("no default route, which proxy ARP for pods needs", () => {
    const host = { ...healthy, routesToPodGateway: false, links: [...healthy.links, link("cali1")] };
    expect(only(look(cluster, host), "no-default-route")).toMatchObject({ severity: "error", interface: "cali1" });
  });

  test("sessions that are down, with their cause, and processes that are not running", () => {
    const sessions = [
      session("10.0.0.2", { lastError: "Received: Bad peer AS", localAs: 1, neighborAs: 2 }),
      session("10.0.0.3", { bgpState: "Established", state: "up" }),
    ];
    const host = { ...healthy, birds: { 4: { routerId: "10.0.0.1", sessions }, 6: undefined } };
    expect(only(look(cluster, host), "session-down").cause).toContain("AS numbers do not match");
    const parts = [
      { name: "felix", isRunning: false, detail: "it is failing" },
      { name: "bird", isRunning: true, detail: "" },
    ];
    expect(only(look(cluster, { ...healthy, parts }), "part-not-running").problem).toContain("felix");
  });
});

describe("rules that the kernel rejects", () => {
  const rule = { kind: "rule", where: "ip calico filter-cali-pi-x rule 1" } as const;
  const limit = "ingressMaxConnections (nft_connlimit)";

  test("are grouped by setting, as an error if packets are dropped", () => {
    const host: HostFacts = {
      ...healthy,
      rejected: [
        { ...rule, setting: limit, instead: "the rule is omitted", error: "add rule: ENOENT" },
        { ...rule, where: "elsewhere", setting: limit, instead: "the rule is omitted" },
        { ...rule, instead: "all packets that reach the rule are dropped" },
      ],
    };
    const found = look([PODS, ...THREE], host);
    expect(found.map(({ id, severity, setting }) => ({ id, severity, setting }))).toEqual([
      { id: "rejected-by-kernel", severity: "error", setting: undefined },
      { id: "rejected-by-kernel", severity: "warning", setting: limit },
    ]);
    expect(found[0]?.problem).toContain("rejects 1 rule: traffic that policy may allow is dropped");
    expect(found[1]?.problem).toBe("the kernel of n1 rejects 2 rules");
    expect(found[1]?.evidence[0]).toBe("ip calico filter-cali-pi-x rule 1: add rule: ENOENT: the rule is omitted");
    expect(rejectedNote(host.rejected)).toContain("rejects 1 rule or set");
    expect(rejectedNote(host.rejected.slice(0, 2))).toBeUndefined();
  });

  test("are read from Felix's file; a missing or invalid file counts as empty", () => {
    const folder = mkdtempSync(join(tmpdir(), "calico-rejected-"));
    try {
      const file = join(folder, "rejected.json");
      expect(readRejected(file)).toEqual([]);
      writeFileSync(file, "[{");
      expect(readRejected(file)).toEqual([]);
      writeFileSync(file, JSON.stringify([{ ...rule, definition: "x", instead: "the rule is omitted" }, 7]));
      expect(readRejected(file)).toEqual([{ ...rule, instead: "the rule is omitted" }]);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });
});
