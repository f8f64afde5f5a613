// Tests the effect of settings and single messages by sending packets, with both renderers and both iptables variants.
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import {
  allowProfile,
  BACKENDS,
  DataplaneHost,
  hostEndpoint,
  inSync,
  pool,
  policy,
  rule,
  tier,
  workload,
} from "./host.ts";

const tcp = { name: "tcp" };
const port = (first: number, last = first) => ({ first, last });
const OUTSIDE = "192.0.2.99" as IpAddress;
const OUTSIDE6 = "2001:db8::99" as IpAddress;
const HOST = "192.0.2.10" as IpAddress;
const HOST6 = "2001:db8::10" as IpAddress;

for (const backend of BACKENDS)
  describe(backend, () => {
    test("FD-050 hosts can be excluded from outgoing NAT, and pools of load balancers do not count as workload networks", async () => {
      await using host = await DataplaneHost.create(backend, { NATOutgoingExclusions: "IPPoolsAndHostIPs" });
      const a = host.addPod("a", 2);
      host.exec(host.outside, "ip", "addr", "add", "192.0.2.98/24", "dev", "eth0");
      host.exec(host.outside, "ip", "addr", "add", "198.51.100.9/32", "dev", "eth0");
      host.exec(host.outside, "ip", "addr", "add", "198.18.0.9/32", "dev", "eth0");
      host.prober.listen(host.outside, "tcp", 80);
      const seenFrom = (address: string) => host.count(host.outside, `ip saddr ${address} tcp dport 80 tcp flags syn`);
      const [asItself, asHost] = [seenFrom(a.v4), seenFrom("192.0.2.10")];
      host.start();
      const node = { type: "hostMetadataUpdate", hostname: "node-b", ipv6Addr: "", labels: {}, asNumber: "" } as const;
      await host.send(
        allowProfile,
        host.endpoint(a),
        pool("10.65.0.0/16", { masquerade: true }),
        pool("198.51.100.0/24", { allowedUses: ["LoadBalancer"] }),
        pool("198.18.0.0/24"),
        { ...node, ipv4Addr: "192.0.2.98" },
        inSync,
      );
      const from = { from: a.target };
      expect(await host.probe([{ ...from, to: "192.0.2.98" as IpAddress }])).toEqual(["reached"]);
      expect([asItself(), asHost()]).toEqual([1, 0]); // another node
      expect(await host.probe([{ ...from, to: OUTSIDE }])).toEqual(["reached"]);
      expect([asItself(), asHost()]).toEqual([1, 1]); // not a node
      expect(await host.probe([{ ...from, to: "198.51.100.9" as IpAddress }])).toEqual(["reached"]);
      expect([asItself(), asHost()]).toEqual([1, 2]); // an address of a load balancer
      expect(await host.probe([{ ...from, to: "198.18.0.9" as IpAddress }])).toEqual(["reached"]);
      expect([asItself(), asHost()]).toEqual([2, 2]); // a pool of workloads
    });

    test("FD-064 FD-065 a failsafe port is open to its prefix and closed to others, regardless of policy", async () => {
      await using host = await DataplaneHost.create(backend, {
        FailsafeInboundHostPorts: "tcp:192.0.2.98/32:8022,tcp:[2001:db8::98/128]:8022,tcp:8023",
        FailsafeOutboundHostPorts: "tcp:192.0.2.98/32:9000,tcp:9001",
      });
      for (const address of ["192.0.2.98/24", "2001:db8::98/64"])
        host.exec(host.outside, "ip", "addr", "add", address, "dev", "eth0");
      for (const p of [8022, 8023, 8024]) host.prober.listen(host.hostTarget, "tcp", p);
      for (const p of [9000, 9001, 9002]) host.prober.listen(host.outside, "tcp", p);
      host.start();
      const discovery = rule({ protocol: { name: "icmpv6" } }); // neighbour discovery
      await host.send(
        policy("none", [discovery], [discovery]),
        hostEndpoint("eth0", { tiers: [tier(["none"], ["none"])] }),
        inSync,
      );
      const to = (address: IpAddress, p: number, source?: string) => ({
        from: host.outside,
        to: address,
        port: p,
        source: source as IpAddress | undefined,
      });
      expect(
        await host.probe([
          to(HOST, 8022, "192.0.2.98"),
          to(HOST6, 8022, "2001:db8::98"),
          to(HOST, 8022, "192.0.2.99"),
          to(HOST6, 8022, "2001:db8::99"),
          to(HOST, 8023),
          to(HOST6, 8023),
          to(HOST, 8024, "192.0.2.98"),
        ]),
      ).toEqual(["reached", "reached", "silent", "silent", "reached", "reached", "silent"]);
      const outward = (address: string, p: number) => ({ from: host.hostTarget, to: address as IpAddress, port: p });
      const outcomes = await host.probe([
        outward("192.0.2.98", 9000),
        outward("192.0.2.99", 9000),
        outward("192.0.2.99", 9001),
        outward(OUTSIDE6, 9001),
        outward("192.0.2.98", 9002),
      ]);
      expect(outcomes.map((outcome) => outcome === "reached")).toEqual([true, false, true, true, false]);
    });

    test("FD-066 denied packets are rejected instead of dropped if so configured; spoofed ones are still dropped", async () => {
      const setting = backend === "nftables" ? "NftablesFilterDenyAction" : "IptablesFilterDenyAction";
      await using host = await DataplaneHost.create(backend, { [setting]: "REJECT" });
      const [a, b, x] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("x", 4)];
      host.prober.listen(b.target, "tcp", 80);
      host.start();
      const open = rule({ protocol: tcp, dstPorts: [port(80)] });
      await host.send(
        allowProfile,
        policy("p", [open, rule({ protocol: tcp, dstPorts: [port(81)], action: "deny" })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["p"])] }),
        inSync,
      );
      expect(
        await host.probe(
          [
            { from: a.target, to: b.v4, port: 80 },
            { from: a.target, to: b.v4, port: 81 }, // a rule
            { from: a.target, to: b.v6, port: 81 },
            { from: a.target, to: b.v4, port: 82 }, // the end of the tier
            { from: a.target, to: b.v4, port: 82, protocol: "udp" },
          ],
          3000,
        ),
      ).toEqual(["reached", "refused", "refused", "refused", "refused"]);
      // A reject is not possible before routing, so spoofed packets are dropped silently.
      host.exec(x.target, "ip", "addr", "add", "10.65.7.7/32", "dev", "eth0");
      expect(await host.probe([{ from: x.target, to: b.v4, source: "10.65.7.7" as IpAddress }])).toEqual(["silent"]);
    });

    test("FD-077 of two workloads with one interface, the one in its alias is programmed; without an alias, none is", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
      host.start();
      const claim = (name: string, policyName: string) =>
        workload(b.interfaceName, [b.v4, b.v6], { tiers: [tier([policyName])] }, name);
      await host.send(
        allowProfile,
        policy("http", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
        policy("other", [rule({ protocol: tcp, dstPorts: [port(81)] })]),
        host.endpoint(a),
        claim("ns1/second", "other"),
        inSync,
      );
      const cells = [80, 81].map((p) => ({ from: a.target, to: b.v4, port: p }));
      expect(await host.probe(cells)).toEqual(["silent", "reached"]);
      await host.send(claim("ns1/first", "http"));
      expect(await host.probe(cells)).toEqual(["silent", "silent"]);
      // Neither has a route, and packets from the interface are dropped.
      expect(host.namespace.run("ip", ["route"])).not.toContain(b.interfaceName);
      host.prober.listen(a.target, "tcp", 80);
      expect(await host.probe([{ from: b.target, to: a.v4 }])).toEqual(["silent"]);
      const warnings = () =>
        host.lines.filter((line) => line.includes("several workload endpoints claim one interface"));
      expect(warnings()).toEqual([expect.stringContaining("none; the interface stays closed")]);
      const removed = host.reports.filter(({ type }) => type === "workloadEndpointStatusRemove");
      expect(removed).toMatchObject([{ id: { workload: "ns1/second" } }]);
      // The order of the names does not matter.
      const setAlias = (pod: string) =>
        host.namespace.run("ip", ["link", "set", b.interfaceName, "alias", `calico net1 c1 ${pod}`]);
      setAlias("ns1/second");
      await host.send(host.endpoint(a));
      expect(await host.probe(cells)).toEqual(["silent", "reached"]);
      host.reports.length = 0;
      setAlias("ns1/first");
      await host.send(host.endpoint(a));
      expect(await host.probe(cells)).toEqual(["reached", "silent"]);
      await host.send(host.endpoint(a));
      expect(warnings()).toHaveLength(3);
      const statuses = () =>
        host.reports.flatMap((report) =>
          report.type === "workloadEndpointStatus" && report.id.workload !== "ns1/a" ? [report.id.workload] : [],
        );
      expect(statuses()).toEqual(["ns1/first"]); // the other endpoint has no status
      const id = { orchestrator: "k8s", endpoint: "eth0" };
      await host.send({ type: "workloadEndpointRemove", id: { ...id, workload: "ns1/first" } });
      expect(await host.probe(cells)).toEqual(["silent", "reached"]);
      expect(statuses()).toContain("ns1/second");
      await host.send({ type: "workloadEndpointRemove", id: { ...id, workload: "ns1/second" } });
      expect(await host.probe(cells)).toEqual(["silent", "silent"]);
    });

    test("FD-087 a log line contains tier, kind and name, and a rate-limited rule logs only matching packets", async () => {
      const template = "%t|%k|%n|%p";
      await using host = await DataplaneHost.create(backend, {
        LogPrefix: template,
        LogActionRateLimit: "1/hour",
        LogActionRateLimitBurst: "3",
      });
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      host.prober.listen(b.target, "udp", 80);
      host.start();
      await host.send(
        allowProfile,
        policy("web", [rule({ protocol: { name: "udp" }, dstPorts: [port(80)], action: "log" }), rule()]),
        policy("a-rather-long-name", [rule({ protocol: tcp, dstPorts: [port(9)], action: "log" })]),
        host.endpoint(a),
        host.endpoint(b, { tiers: [tier(["a-rather-long-name", "web"])] }),
        inSync,
      );
      const logged = () => host.ruleCounters().filter(({ text }) => /\bLOG\b|log prefix/.test(text));
      const prefixes = logged().map(({ text }) => /prefix "?([^"]*?)(: )?"/.exec(text)?.[1]);
      // iptables allows 29 characters.
      const long = "default|gnp|a-rather-long-name|a-rather-long-name";
      expect(prefixes.sort()).toEqual([backend === "nftables" ? long : long.slice(0, 29), "default|gnp|web|web"]);
      const matching = (p: number) => ({ from: a.target, to: b.v4, port: p, protocol: "udp" as const });
      // Packets to another port are sent first: they must not use up the log rate of the matching ones.
      await host.probe(
        Array.from({ length: 10 }, () => matching(81)),
        50,
      );
      const sum = () => logged().reduce((total, { packets }) => total + packets, 0);
      expect(sum()).toBe(0);
      await host.probe(
        Array.from({ length: 10 }, () => matching(80)),
        300,
      );
      expect(sum()).toBe(3);
    });

    test("FD-104 the host never answers ARP requests of a workload for its own address", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      // The host also has the address, as during a migration, so that it would answer.
      for (const pod of [a, b]) host.exec(host.hostTarget, "ip", "addr", "add", `${pod.v4}/32`, "dev", "lo");
      const ask = (pod: typeof a, address: string): string => {
        host.exec(pod.target, "ip", "addr", "flush", "dev", "eth0", "scope", "global");
        host.exec(pod.target, "ip", "addr", "add", "10.65.9.9/32", "dev", "eth0");
        host.exec(pod.target, "ip", "route", "replace", address, "dev", "eth0", "src", "10.65.9.9");
        try {
          host.exec(pod.target, "ping", "-c1", "-W0.3", address);
        } catch {} // the echo need not be answered
        return host.exec(pod.target, "ip", "neigh", "show", address);
      };
      // The kernel's answer may take longer than one ping on a busy machine.
      const isAnswered = (pod: typeof a, address: string) =>
        eventually(() => ask(pod, address).includes("ee:ee:ee:ee:ee:ee"));
      await isAnswered(a, a.v4); // without calico-ts
      host.start();
      await host.send(allowProfile, host.endpoint(b), inSync);
      expect(ask(b, b.v4)).not.toContain("ee:ee:ee:ee:ee:ee");
      await isAnswered(b, "192.0.2.10"); // other addresses are answered
      await host.send({
        type: "workloadEndpointRemove",
        id: { orchestrator: "k8s", workload: "ns1/b", endpoint: "eth0" },
      });
      host.exec(b.target, "ip", "neigh", "flush", "all");
      await isAnswered(b, b.v4);
    });
  });

for (const backend of ["legacy", "nft"] as const)
  test(`${backend}: FD-063 policy of the source and of the destination applies to a packet to an IPVS service`, async () => {
    await using host = await DataplaneHost.create(backend);
    const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
    for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
    host.prober.listen(host.hostTarget, "tcp", 80);
    // Emulates IPVS: the address of a service is local, and a packet to it is sent on as if the host had sent it. Marks stay
    // on the packet.
    host.start({}, backend, { ipvs: true });
    await host.send(
      allowProfile,
      policy("http", [], [rule({ protocol: tcp, dstPorts: [port(80)] })]),
      host.endpoint(a, { tiers: [tier([], ["http"])] }),
      host.endpoint(b),
      hostEndpoint("eth0", {}),
      inSync,
    );
    const saved = host.namespace.run(`iptables-${backend}-save`, ["-t", "filter"]);
    const chain = (name: string) =>
      saved
        .split("\n")
        .filter((line) => line.startsWith(`-A ${name} `))
        .map((line) => line.replace(/ -m comment --comment "cali:\S+"/, ""));
    expect(chain("cali-forward-check")).toEqual([
      "-A cali-forward-check -m conntrack --ctstate RELATED,ESTABLISHED -j RETURN",
      '-A cali-forward-check -p tcp -m comment --comment "To kubernetes NodePort service" -m multiport --dports 30000:32767 -m set --match-set cali40this-host dst -g cali-set-endpoint-mark',
      '-A cali-forward-check -p udp -m comment --comment "To kubernetes NodePort service" -m multiport --dports 30000:32767 -m set --match-set cali40this-host dst -g cali-set-endpoint-mark',
      '-A cali-forward-check -m comment --comment "To kubernetes service" -m set ! --match-set cali40this-host dst -j cali-set-endpoint-mark',
    ]);
    expect(chain("cali-set-endpoint-mark")).toEqual([
      `-A cali-set-endpoint-mark -i ${a.interfaceName} -g cali-sm-${a.interfaceName}`,
      `-A cali-set-endpoint-mark -i ${b.interfaceName} -g cali-sm-${b.interfaceName}`,
      "-A cali-set-endpoint-mark -i eth0 -g cali-sm-eth0",
      '-A cali-set-endpoint-mark -i cali+ -m comment --comment "Unknown endpoint" -j DROP',
      '-A cali-set-endpoint-mark -m comment --comment "Non-Cali endpoint mark" -j MARK --set-xmark 0x200000/0xffe00000',
    ]);
    const from = chain("cali-from-endpoint-mark");
    expect(from.map((line) => line.replace(/.* -[gj] /, ""))).toEqual([
      `cali-fw-${a.interfaceName}`,
      `cali-fw-${b.interfaceName}`,
      "cali-fhfw-eth0",
      "DROP",
    ]);
    expect(chain("cali-forward-endpoint-mark").map((line) => line.replace(/^-A \S+ /, ""))).toEqual([
      "-m mark ! --mark 0x200000/0xffe00000 -j cali-from-endpoint-mark",
      "-o cali+ -j cali-to-wl-dispatch",
      "-j cali-to-hep-forward",
      "-j MARK --set-xmark 0x0/0xffe00000",
      '-m comment --comment "Policy explicitly accepted packet." -m mark --mark 0x10000/0x10000 -j ACCEPT',
    ]);
    // Policy of an endpoint applies to packets that the host sends with that endpoint's mark.
    const mark = (interfaceName: string) =>
      Number(/--set-xmark (0x[0-9a-f]+)\//.exec(chain(`cali-sm-${interfaceName}`)[0] ?? "")?.[1]);
    const marked = async (bits: number) => {
      const words = `OUTPUT -p tcp -j MARK --set-mark ${bits}`.split(" ");
      host.exec(host.hostTarget, "iptables-nft", "-t", "raw", "-A", ...words);
      const outcomes = await host.probe([80, 81].map((p) => ({ from: host.hostTarget, to: b.v4, port: p })));
      host.exec(host.hostTarget, "iptables-nft", "-t", "raw", "-D", ...words);
      return outcomes.map((outcome) => outcome === "reached");
    };
    expect(await marked(mark(a.interfaceName))).toEqual([true, false]); // policy of a
    expect(await marked(mark(b.interfaceName))).toEqual([true, true]);
    expect(await marked(0x200000)).toEqual([true, true]); // not from a workload interface
    expect(await marked(0xffe00000)).toEqual([false, false]); // a mark that no endpoint has
    // Packets to a service from an unknown workload interface are dropped immediately.
    expect(await host.probe([{ from: c.target, to: HOST, port: 80 }])).toEqual(["silent"]);
    await host.send({
      type: "workloadEndpointRemove",
      id: { orchestrator: "k8s", workload: "ns1/a", endpoint: "eth0" },
    });
    const after = host.namespace.run(`iptables-${backend}-save`, ["-t", "filter"]);
    expect(after).not.toContain(`cali-sm-${a.interfaceName}`);
    expect(after).toContain(`cali-sm-${b.interfaceName}`);
  });

test("FD-105 flow offload has no effect if the kernel lacks it; otherwise policy still applies to the start of flows", async () => {
  await using host = await DataplaneHost.create("nftables", {
    NFTablesFlowTableOffload: "All",
    NFTablesFlowTableDataIfacePattern: "^eth.*",
  });
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
  host.start();
  await host.send(
    allowProfile,
    policy("p", [rule({ protocol: tcp, dstPorts: [port(80)] })]),
    host.endpoint(a),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    inSync,
  );
  const cells = [80, 81].map((p) => ({ from: a.target, to: b.v4, port: p }));
  expect(await host.probe(cells)).toEqual(["reached", "silent"]);
  const rules = host.namespace.run("nft", ["list", "table", "ip", "calico"]);
  const offers = (() => {
    try {
      host.namespace.run("nft", ["add table ip probe; add flowtable ip probe f { hook ingress priority 0; }"]);
      return true;
    } catch {
      return false;
    }
  })();
  expect(rules.includes("flow add @calico")).toBe(offers);
  if (offers) expect(rules).toMatch(/flowtable calico \{[^}]*devices = \{[^}]*calia2[^}]*\}/);
});
