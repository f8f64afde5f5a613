// Measures the cost of rules for packets from one pod to another through the host, with 10, 100 and 500 workloads and 1,000
// policies, with nftables and both iptables tools. The reference is a routed veth without rules. A new TCP connection passes
// the dispatch chains and ten policies, of which the last allows it. A stream is one established connection.
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { closeSync, openSync, writeFileSync } from "node:fs";
import * as sys from "../src/kernel/sys/sys.ts";
import { address, cleanRules, cluster, id, interfaceName, kernels, openRules, rule } from "./support/rules.ts";

const CONNECTIONS = 1000;
const ROUNDS = 3;
const SIZES = (process.argv[2] ?? "10,100,500").split(",").map(Number);
const PORT = 7000;
const SO_LINGER = 13;

if (process.env["CALICO_BENCH_INSIDE"] === undefined) {
  const { status } = spawnSync("unshare", ["--net", process.execPath, import.meta.filename, ...process.argv.slice(2)], {
    stdio: "inherit",
    env: { ...process.env, CALICO_BENCH_INSIDE: "1" },
  });
  process.exit(status ?? 1);
}

const ip = (text: string) => execFileSync("ip", text.split(" "), { stdio: "pipe" });
const spaces = ["client", "server"].map((name) => `bench-${name}-${process.pid}`);
const addresses = spaces.map((_, i) => address(i).replace("/32", ""));
const [client = "", server = ""] = spaces;
const [, serverAddress = ""] = addresses;

try {
  build();
  await run();
} finally {
  for (const space of spaces) spawnSync("ip", ["netns", "del", space]);
}

function build(): void {
  writeFileSync("/proc/sys/net/ipv4/ip_forward", "1");
  ip("link set lo up");
  for (const [i, space] of spaces.entries()) {
    const mac = `02:00:00:00:00:0${i + 1}`;
    const host = interfaceName(i);
    ip(`netns add ${space}`);
    ip(`link add ${host} address ee:ee:ee:ee:ee:ee type veth peer name eth0 address ${mac} netns ${space}`);
    ip(`link set ${host} up`);
    ip(`-n ${space} addr add ${addresses[i]}/32 dev eth0`);
    ip(`-n ${space} link set eth0 up`);
    ip(`-n ${space} route add 169.254.1.1 dev eth0 scope link`);
    ip(`-n ${space} neigh replace 169.254.1.1 lladdr ee:ee:ee:ee:ee:ee dev eth0 nud permanent`);
    ip(`-n ${space} route add default via 169.254.1.1`);
    ip(`route add ${addresses[i]} dev ${host}`);
    ip(`neigh replace ${addresses[i]} lladdr ${mac} dev ${host} nud permanent`);
  }
}

async function run(): Promise<void> {
  console.log(`pod to pod, 1,000 policies: µs to connect, p50 (p95) of ${CONNECTIONS}; Gbit/s of one stream`);
  const results = new Map<string, { readonly p50: number; readonly p95: number; readonly gigabits: number }[]>();
  for (const size of SIZES) {
    for (const [name, kernel] of [["bare veth", undefined], ...Object.entries(kernels)] as const) {
      if (kernel !== undefined) {
        const rules = openRules(kernel());
        for (const message of cluster({ endpoints: size, largeSet: false })) rules.send(message);
        for (const last of [900, 901]) rules.send(opening(last));
        await rules.apply();
      }
      const rounds = Array.from({ length: ROUNDS }, () => connections());
      const { p50, p95 } = rounds.toSorted((a, b) => a.p50 - b.p50)[ROUNDS >> 1] ?? { p50: 0, p95: 0 };
      const streams: number[] = [];
      for (let round = 0; round < ROUNDS; round++) streams.push(await throughput());
      const gigabits = streams.toSorted((a, b) => a - b)[ROUNDS >> 1] ?? 0;
      results.set(name, [...(results.get(name) ?? []), { p50, p95, gigabits }]);
      cleanRules();
    }
  }
  for (const [name, rows] of results)
    console.log(
      `  ${name.padEnd(16)} ${rows
        .map(
          ({ p50, p95, gigabits }, i) =>
            `${String(SIZES[i]).padStart(4)} workloads ${p50.toFixed(1)} (${p95.toFixed(1)}) µs ${gigabits.toFixed(1)} Gbit/s`,
        )
        .join("  ")}`,
    );
}

/** The last of the client's ten policies allows its outgoing connections, the last of the server's allows them in. */
function opening(last: number) {
  return {
    type: "activePolicyUpdate",
    id: id(last),
    policy: {
      inboundRules: [rule({ protocol: { name: "tcp" }, dstPorts: [{ first: PORT, last: PORT + 10 }] })],
      outboundRules: [rule({})],
      untracked: false,
      preDnat: false,
      namespace: "ns1",
      originalSelector: "all()",
      performanceHints: [],
      tier: "default",
    },
  } as const;
}

function inside<T>(space: string, body: () => T): T {
  const home = openSync("/proc/thread-self/ns/net", "r");
  const there = openSync(`/run/netns/${space}`, "r");
  try {
    if (sys.setns(there, sys.CLONE_NEWNET) < 0) throw new Error(`cannot enter ${space}: run as root`);
    return body();
  } finally {
    sys.setns(home, sys.CLONE_NEWNET);
    closeSync(there);
    closeSync(home);
  }
}

function socketAddress(text: string, port: number): sys.Bytes {
  const bytes = sys.allocate(16);
  const view = new DataView(bytes.buffer);
  view.setUint16(0, sys.AF_INET, true);
  view.setUint16(2, port);
  for (const [i, part] of text.split(".").entries()) bytes[4 + i] = Number(part);
  return bytes;
}

/** Opens connections sequentially. Each ends with a reset, so that none remains in TIME_WAIT. */
function connections(): { readonly p50: number; readonly p95: number } {
  const listener = inside(server, () => {
    const fd = sys.socket(sys.AF_INET, sys.SOCK_STREAM | sys.SOCK_NONBLOCK, 0);
    sys.setsockoptInt(fd, sys.SOL_SOCKET, 2, 1); // SO_REUSEADDR
    if (sys.bind(fd, socketAddress(serverAddress, PORT)) < 0) throw new Error("cannot bind");
    sys.listen(fd, 128);
    return fd;
  });
  const target = socketAddress(serverAddress, PORT);
  const reset = sys.allocate(8);
  new DataView(reset.buffer).setInt32(0, 1, true);
  const times = inside(client, () =>
    Array.from({ length: CONNECTIONS + 100 }, () => {
      const fd = sys.socket(sys.AF_INET, sys.SOCK_STREAM, 0);
      sys.setsockopt(fd, sys.SOL_SOCKET, SO_LINGER, reset);
      const start = Bun.nanoseconds();
      const outcome = sys.connect(fd, target);
      const took = (Bun.nanoseconds() - start) / 1000;
      if (outcome < 0) throw new Error(`no connection: errno ${-outcome}`);
      sys.close(fd);
      const accepted = sys.accept(listener);
      if (accepted >= 0) sys.close(accepted);
      return took;
    }),
  );
  sys.close(listener);
  const sorted = times.slice(100).sort((a, b) => a - b);
  return { p50: sorted[CONNECTIONS >> 1] ?? 0, p95: sorted[Math.floor(CONNECTIONS * 0.95)] ?? 0 };
}

async function throughput(): Promise<number> {
  const port = String(PORT + 1);
  const serving = spawn("ip", ["netns", "exec", server, "iperf3", "-s", "-1", "-p", port, "--forceflush"], {
    stdio: ["ignore", "pipe", "ignore"],
  });
  const ended = new Promise((resolve) => serving.once("exit", resolve));
  await new Promise((resolve) => serving.stdout.once("data", resolve));
  const { stdout } = spawnSync("ip", [
    "netns",
    "exec",
    client,
    "iperf3",
    "-c",
    serverAddress,
    "-p",
    port,
    "-t",
    "1",
    "-J",
  ]);
  serving.kill();
  await ended;
  const report = JSON.parse(stdout.toString()) as { end?: { sum_received?: { bits_per_second: number } } };
  return (report.end?.sum_received?.bits_per_second ?? 0) / 1e9;
}
