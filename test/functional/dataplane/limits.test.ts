// Tests the limits of a workload: bandwidth by the kernel's queues, packet rate and connections by rules.
import { spawn } from "node:child_process";
import { describe, expect, test } from "bun:test";
import { redirectDeviceName } from "../../../src/dataplane/managers/bandwidth-limits.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, BACKENDS, DataplaneHost, inSync, type Pod } from "./host.ts";

const PACKET_BYTES = 1400;

/** Sends UDP packets that are not answered, as fast as possible. */
function flood(host: DataplaneHost, from: Pod, to: IpAddress, packets: number, bytes = PACKET_BYTES): void {
  const address = to.includes(":") ? `UDP6-SENDTO:[${to}]:9` : `UDP4-SENDTO:${to}:9`;
  const script = `dd if=/dev/zero bs=${bytes} count=${packets} 2>/dev/null | socat -b${bytes} -u - ${address}`;
  host.exec(from.target, "sh", "-c", script);
}

const queues = (host: DataplaneHost) =>
  host.namespace
    .run("tc", ["qdisc", "show"])
    .split("\n")
    .map((line) => line.trim())
    .filter((line) => /tbf|ingress/.test(line))
    .sort();

test("FD-079 bandwidth limits are as recorded, limit traffic, are repaired, and are removed", async () => {
  await using host = await DataplaneHost.create("nftables", { RouteRefreshInterval: "1" });
  const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
  // A limit of another program on a workload must not be changed.
  const foreign = "tc qdisc add dev calic4 root tbf rate 5mbit burst 20kb latency 50ms";
  host.namespace.run("sh", ["-c", foreign]);
  host.start();
  const limits = {
    ingressBandwidth: 1_000_000,
    ingressBurst: 4_000_000,
    egressBandwidth: 2_000_000,
    egressBurst: 5_000_000,
  };
  await host.send(allowProfile, host.endpoint(a), host.endpoint(b, { qosControls: limits }), host.endpoint(c), inSync);
  const device = redirectDeviceName(b.interfaceName);
  const theirs = /^qdisc tbf \S+: dev calic4 /;
  const desired = [
    `qdisc ingress ffff: dev ${b.interfaceName} parent ffff:fff1 ----------------`,
    `qdisc tbf 1: dev ${device} root refcnt N rate 2Mbit burst 625000b lat 154s`,
    `qdisc tbf 1: dev ${b.interfaceName} root refcnt N rate 1Mbit burst 500000b lat 496s`,
  ].sort();
  const ours = () =>
    queues(host)
      .filter((line) => !theirs.test(line))
      .map((line) => line.replace(/refcnt \d+/, "refcnt N"));
  expect(ours()).toEqual(desired);
  expect(redirectDeviceName("cali11111111111")).toBe("bwcali9bf6fa420"); // the same name as in Calico

  // A lower rate with a minimal burst: at any time, no more packets have arrived than the rate allows.
  const rate = 800_000; // bit/s
  const burst = 80_000;
  const slow = { ingressBandwidth: rate, ingressBurst: burst, egressBandwidth: rate, egressBurst: burst };
  await host.send(host.endpoint(b, { qosControls: slow }));
  for (const [from, to] of [
    [a, b],
    [b, a],
  ] as const) {
    const arrived = host.count(to.target, "udp dport 9");
    const startedAt = performance.now();
    flood(host, from, to.v4, 60);
    const early = arrived();
    const seconds = (performance.now() - startedAt) / 1000;
    expect(early * (PACKET_BYTES + 28) * 8).toBeLessThan(burst + rate * seconds + 2 * PACKET_BYTES * 8);
    await eventually(() => arrived() === 60, 20_000); // delayed, but not lost
    expect((performance.now() - startedAt) / 1000).toBeGreaterThan((60 * PACKET_BYTES * 8 - burst) / rate / 1.1);
  }

  // A limit that another program removes or replaces is restored.
  await host.send(host.endpoint(b, { qosControls: limits }));
  host.namespace.run("tc", ["qdisc", "del", "dev", b.interfaceName, "root"]);
  host.namespace.run("tc", ["qdisc", "del", "dev", b.interfaceName, "ingress"]);
  host.namespace.run("tc", [
    "qdisc",
    "replace",
    "dev",
    device,
    "root",
    "handle",
    "1:",
    "tbf",
    "rate",
    "9mbit",
    "burst",
    "9kb",
    "latency",
    "1ms",
  ]);
  await eventually(() => Bun.deepEquals(ours(), desired), 15_000);
  host.namespace.run("ip", ["link", "del", device]);
  await eventually(() => Bun.deepEquals(ours(), desired), 15_000);

  // A restart keeps the limits; a start without limits removes those of the previous run, and no others.
  await host.stop();
  host.start();
  await host.send(allowProfile, host.endpoint(a), host.endpoint(b), host.endpoint(c), inSync);
  expect(ours()).toEqual([]);
  expect(queues(host).filter((line) => theirs.test(line))).toHaveLength(1);
  expect(host.namespace.run("ip", ["link"])).not.toContain(device);

  // When the workload is removed, its redirect device is removed too.
  await host.send(host.endpoint(b, { qosControls: { egressBandwidth: 2_000_000, egressPeakrate: 4_000_000 } }));
  expect(ours()[1]).toMatch(/peakrate 4Mbit/);
  host.namespace.run("ip", ["link", "del", b.interfaceName]);
  await eventually(() => !host.namespace.run("ip", ["link"]).includes(device), 10_000);
}, 120_000);

test("a bandwidth limit does not change the interface alias, which contains the owner, and is removed also after an upgrade", async () => {
  await using host = await DataplaneHost.create("nftables");
  const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
  const setAlias = (pod: Pod, alias: string) =>
    host.namespace.run("ip", ["link", "set", pod.interfaceName, "alias", alias]);
  const alias = (pod: Pod) => /alias (.*)/.exec(host.namespace.run("ip", ["link", "show", pod.interfaceName]))?.[1];
  setAlias(a, "calico k8s-pod-network c1 ns1/a");
  setAlias(b, "limited by calico"); // written by earlier versions
  // A limit of the CNI bandwidth plugin, with the same handle, which is not Felix's.
  const foreign = `tc qdisc add dev ${c.interfaceName} root handle 1: tbf rate 5mbit burst 20kb latency 25ms`;
  host.namespace.run("sh", ["-c", foreign]);
  const limited = (pod: Pod) =>
    host.endpoint(pod, { qosControls: { ingressBandwidth: 1_000_000, egressBandwidth: 1e6 } });
  const interfaces = () => queues(host).flatMap((line) => /^qdisc tbf .*dev (cali\S+)/.exec(line)?.[1] ?? []);
  host.start();
  await host.send(allowProfile, limited(a), limited(b), host.endpoint(c), inSync);
  expect(interfaces()).toEqual([a.interfaceName, b.interfaceName, c.interfaceName]);
  expect([alias(a), alias(c)]).toEqual(["calico k8s-pod-network c1 ns1/a", undefined]);
  await host.send(host.endpoint(a));
  expect([interfaces(), alias(a)]).toEqual([[b.interfaceName, c.interfaceName], "calico k8s-pod-network c1 ns1/a"]);
  // The next run of Felix recognizes the limit without the alias.
  await host.send(limited(a));
  await host.stop();
  host.start();
  await host.send(allowProfile, host.endpoint(a), host.endpoint(b), host.endpoint(c), inSync);
  expect([interfaces(), alias(a)]).toEqual([[c.interfaceName], "calico k8s-pod-network c1 ns1/a"]);
}, 60_000);

test("two workloads whose redirect devices would have the same name get separate devices", async () => {
  await using host = await DataplaneHost.create("nftables", { RouteRefreshInterval: "1" });
  // A collision of the 36 bits of SHA-512 in the name, found by trying 500,000 interface names.
  const [attacker, victim] = [host.addPod("128d1", 2), host.addPod("5193", 3)];
  const name = redirectDeviceName(victim.interfaceName);
  expect(redirectDeviceName(attacker.interfaceName)).toBe(name);
  const limited = (pod: Pod, egressBandwidth: number) => host.endpoint(pod, { qosControls: { egressBandwidth } });
  /** The rate of the device to which each workload's packets are redirected. */
  const rates = () =>
    [attacker, victim].map(({ interfaceName }) => {
      const filter = host.namespace.run("tc", ["filter", "show", "dev", interfaceName, "ingress"]);
      const device = /device (\w+)/.exec(filter)?.[1];
      if (device === undefined) return undefined;
      return /rate (\S+)/.exec(host.namespace.run("tc", ["qdisc", "show", "dev", device]))?.[1];
    });
  host.start();
  await host.send(allowProfile, host.endpoint(attacker), limited(victim, 2_000_000), inSync);
  expect(rates()).toEqual([undefined, "2Mbit"]);
  await host.send(limited(attacker, 1_000_000));
  expect(rates()).toEqual(["1Mbit", "2Mbit"]);
  expect(host.namespace.run("ip", ["link", "show", name])).toContain(name); // the first keeps the name that Calico uses
  // A restart finds both, in any order of the workloads.
  await host.stop();
  host.start();
  await host.send(allowProfile, limited(attacker, 1_000_000), limited(victim, 2_000_000), inSync);
  expect(rates()).toEqual(["1Mbit", "2Mbit"]);
  // If the limit of one is removed, the device of the other stays.
  await host.send(host.endpoint(attacker));
  expect(rates()).toEqual([undefined, "2Mbit"]);
  const received = host.count(attacker.target, "udp dport 9");
  flood(host, victim, attacker.v4, 1);
  await eventually(() => received() === 1);
  await host.send(host.endpoint(victim));
  expect(host.namespace.run("ip", ["-d", "link"])).not.toContain("bwcali");
}, 60_000);

for (const backend of BACKENDS)
  describe(backend, () => {
    test("FD-078 packets above a workload's rate are dropped, in both directions and with both IP versions", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      host.start();
      const limits = { ingressPacketRate: 10, ingressPacketBurst: 5, egressPacketRate: 20, egressPacketBurst: 7 };
      await host.send(allowProfile, host.endpoint(a), host.endpoint(b, { qosControls: limits }), inSync);
      for (const [from, to, rate, burst, family] of [
        [a, b, 10, 5, "v4"],
        [b, a, 20, 7, "v4"],
        [a, b, 10, 5, "v6"],
      ] as const) {
        const arrived = host.count(to.target, "udp dport 9");
        const startedAt = performance.now();
        flood(host, from, to[family], 100, 64);
        const seconds = (performance.now() - startedAt) / 1000;
        expect(arrived()).toBeGreaterThanOrEqual(Math.min(burst, 1));
        expect(arrived()).toBeLessThanOrEqual(burst + Math.ceil(rate * seconds) + 1);
        expect(arrived()).toBeLessThan(100);
      }
    }, 60_000);

    test("FD-078 a connection above the limit is rejected, and allowed after another has ended", async () => {
      await using host = await DataplaneHost.create(backend);
      const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
      host.start();
      await host.send(
        allowProfile,
        host.endpoint(a),
        host.endpoint(b, { qosControls: { ingressMaxConnections: 2 } }),
        inSync,
      );
      const run = (pod: Pod, ...command: string[]) =>
        spawn("nsenter", [`--net=/proc/${process.pid}/fd/${pod.target.namespace}`, ...command], {
          stdio: ["pipe", "pipe", "ignore"],
        });
      const server = run(b, "socat", "TCP-LISTEN:80,fork,reuseaddr", "EXEC:cat");
      const clients: ReturnType<typeof run>[] = [];
      const connect = () => {
        const client = run(a, "socat", "-", `TCP:${b.v4}:80`);
        clients.push(client);
        let isAnswered = false;
        client.stdout.on("data", () => (isAnswered = true));
        client.stdin.write("hello\n");
        return () => isAnswered;
      };
      try {
        await eventually(() => host.exec(b.target, "ss", "-ltn").includes(":80 "), 5000);
        for (const answered of [connect(), connect()]) await eventually(answered, 10_000);
        expect(await host.probe([{ from: a.target, to: b.v4 }], 2000)).toEqual(["refused"]);
        clients[0]?.stdin.end();
        await eventually(async () => (await host.probe([{ from: a.target, to: b.v4 }], 500))[0] === "reached", 15_000);
      } finally {
        for (const child of [server, ...clients]) child.kill("SIGKILL");
      }
    }, 60_000);
  });
