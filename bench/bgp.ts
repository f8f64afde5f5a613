// Measures BGP with many nodes and peers. Run as root: bun bench/bgp.ts [render] [doctor] [peers] [join-mesh] [join-reflectors]
//   render  computes the plan and configuration of one of 1,000 nodes; BIRD parses it
//   doctor  runs the checks of the doctor for 1,000 and 4,000 nodes with a mesh, reflectors, a BGPPeer between all nodes, or
//           a rack router for each node
//   peers   500 peers with 100 routes each send them to one node, compared with BIRD alone: without filters, and with the
//           same delay of 2 s before it connects
//   join-…  a node joins 50 others, in a mesh or with reflectors, until all of them have its route in the kernel
import { execFileSync } from "node:child_process";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { BgpCollector, BirdControl, birdConfiguration, plan } from "../src/bgp/index.ts";
import { examine } from "../src/calicoctl/doctor/examine.ts";
import { clusterFacts } from "../src/calicoctl/doctor/facts.ts";
import { pollUntil } from "../src/lib/testing/eventually.ts";
import { API_VERSION, type KindName, type Resource } from "../src/model/index.ts";
import { RouterNetwork } from "../test/functional/bgp/routers.ts";
import { median } from "./support/percentile.ts";

const wanted = process.argv.slice(2);
const isWanted = (name: string) => wanted.length === 0 || wanted.includes(name);
const folder = mkdtempSync(join(tmpdir(), "calico-bench-bgp-"));
const put = (collector: BgpCollector, kind: KindName, name: string, spec: object) =>
  collector.setResource(name, { apiVersion: API_VERSION, kind, metadata: { name }, spec }, kind);

function render(): void {
  const NODES = 1000;
  const collector = new BgpCollector();
  for (let i = 0; i < NODES; i++)
    put(collector, "Node", `n${i}`, {
      bgp: { ipv4Address: `10.${i >> 8}.${i & 255}.1/16`, ipv6Address: `fd00::${i.toString(16)}:1/64` },
    });
  put(collector, "IPPool", "p", { cidr: "192.168.0.0/16" });
  for (let i = 0; i < 8; i++) collector.setBlock("n0", `192.168.${i}.0/26`, { state: "confirmed", deleted: false });
  const planned: number[] = [];
  const written: number[] = [];
  const read: number[] = [];
  const file = join(folder, "bird.cfg");
  for (let round = 0; round < 11; round++) {
    let start = performance.now();
    const made = plan(collector.stateFor("n0"), "n0");
    planned.push(performance.now() - start);
    start = performance.now();
    const text = birdConfiguration(made, 4, { password: () => undefined });
    written.push(performance.now() - start);
    writeFileSync(file, text);
    start = performance.now();
    execFileSync("bird", ["-p", "-c", file]);
    read.push(performance.now() - start);
  }
  console.log(
    `render, 1,000 nodes in a mesh: plan ${median(planned).toFixed(1)} ms, text of one family ${median(written).toFixed(1)} ms (${Math.round(Bun.file(file).size / 1024)} kB), BIRD reads it in ${median(read).toFixed(0)} ms`,
  );
}

function doctor(): void {
  const resource = (kind: KindName, name: string, spec: object, labels: Record<string, string> = {}) =>
    ({ apiVersion: API_VERSION, kind, metadata: { name, labels }, spec }) as Resource;
  const meshOff = resource("BGPConfiguration", "default", { nodeToNodeMeshEnabled: false });
  const peer = (name: string, spec: object) => resource("BGPPeer", name, spec);
  const names = (size: number) => Array.from({ length: size }, (_, i) => `n${i}`);
  const cases: Readonly<Record<string, (size: number) => readonly Resource[]>> = {
    mesh: () => [],
    reflectors: () => [meshOff, peer("rr", { nodeSelector: "all()", peerSelector: "has(rr)" })],
    "all peer with all": () => [meshOff, peer("all", { nodeSelector: "all()", peerSelector: "all()" })],
    "a router each": (size) => [
      meshOff,
      ...names(size).map((node, i) => peer(node, { node, peerIP: `172.16.${i >> 8}.${i & 255}`, asNumber: 65000 })),
    ],
  };
  for (const [what, more] of Object.entries(cases)) {
    const times = [1000, 4000].map((size) => {
      const nodes = names(size).map((name, i) =>
        resource(
          "Node",
          name,
          {
            bgp: {
              ipv4Address: `10.${i >> 8}.${i & 255}.1/8`,
              ...(what === "reflectors" && i < 2 ? { routeReflectorClusterID: "244.0.0.1" } : {}),
            },
          },
          { "kubernetes.io/hostname": name, ...(i < 2 ? { rr: "" } : {}) },
        ),
      );
      const resources = [resource("IPPool", "p", { cidr: "192.168.0.0/16" }), ...nodes, ...more(size)];
      const rounds = Array.from({ length: 5 }, () => {
        const start = performance.now();
        examine(clusterFacts(resources));
        return performance.now() - start;
      });
      return median(rounds).toFixed(0);
    });
    console.log(`doctor, ${what}: 1,000 nodes ${times[0]} ms, 4,000 nodes ${times[1]} ms`);
  }
}

/**
 * Returns the configuration of one BIRD that acts as many routers, each with its own routes. It is passive; the port numbers
 * are never used, but BIRD requires that its protocols differ.
 */
function manyPeers(count: number, routes: number): string {
  const parts = ["router id 10.78.0.1;", "protocol device {}"];
  for (let i = 0; i < count; i++) {
    const list = Array.from(
      { length: routes },
      (_, r) => `route 172.${16 + (i >> 7)}.${(i * 2 + (r >> 6)) & 255}.${(r & 63) << 2}/30 blackhole;`,
    );
    parts.push(`ipv4 table t${i};`, `protocol static s${i} { ipv4 { table t${i}; }; ${list.join(" ")} }`);
    parts.push(
      `protocol bgp b${i} { local ${peerAddress(i)} as ${65_000 + (i % 500)}; neighbor 10.77.0.1 port ${10_000 + i} as 64512; strict bind yes; multihop; passive; ipv4 { table t${i}; import none; export all; }; }`,
    );
  }
  return parts.join("\n");
}
const peerAddress = (i: number): string => `10.78.${Math.floor(i / 200)}.${1 + (i % 200)}`;

const bareBird = (count: number): string =>
  [
    "router id 10.77.0.1;",
    "protocol device {}",
    "protocol kernel { ipv4 { export all; }; }",
    "protocol direct { ipv4; }",
    ...Array.from(
      { length: count },
      (_, i) =>
        `protocol bgp b${i} { local 10.77.0.1 as 64512; neighbor ${peerAddress(i)} as ${65_000 + (i % 500)}; multihop; connect delay time 2; ipv4 { import all; export none; }; }`,
    ),
  ].join("\n");

async function peers(): Promise<void> {
  const [PEERS, ROUTES, ROUNDS] = [500, 100, 3];
  const measure = async (config: string) => {
    await using net = await RouterNetwork.create();
    net.addHost("us", 1);
    net.addHost("them", 2);
    net.ip("us", "route add 10.78.0.0/16 via 10.77.0.2");
    execFileSync("ip", ["-n", net.nameOf("them"), "-batch", "-"], {
      input: Array.from({ length: PEERS }, (_, i) => `addr add ${peerAddress(i)}/32 dev lo`).join("\n"),
    });
    writeFileSync(join(net.folder, "them.conf"), manyPeers(PEERS, ROUTES));
    writeFileSync(join(net.folder, "us.conf"), config);
    const [theirs, ours] = [join(net.folder, "them.ctl"), join(net.folder, "us.ctl")];
    net.start("them", ["bird", "-f", "-c", join(net.folder, "them.conf"), "-s", theirs]);
    await pollUntil(
      () =>
        BirdControl.connect(theirs).then(
          (control) => control[Symbol.dispose](),
          () => "no",
        ),
      (value) => value === undefined,
    );
    const start = performance.now();
    const bird = net.start("us", ["bird", "-f", "-c", join(net.folder, "us.conf"), "-s", ours]);
    await pollUntil(
      () =>
        BirdControl.connect(ours).then(
          (control) => control[Symbol.dispose](),
          () => "no",
        ),
      (value) => value === undefined,
    );
    using control = await BirdControl.connect(ours, 30_000);
    await pollUntil(
      async () =>
        Number(
          /(\d+) of/.exec((await control.request("show route count")).map(({ text }) => text).join(" "))?.[1] ?? 0,
        ),
      (count) => count >= PEERS * ROUTES,
      120_000,
    );
    const seconds = (performance.now() - start) / 1000;
    const rss = Number(/VmRSS:\s+(\d+)/.exec(await Bun.file(`/proc/${bird.pid}/status`).text())?.[1] ?? 0) / 1024;
    return { seconds, rss };
  };
  const collector = new BgpCollector();
  put(collector, "Node", "us", { bgp: { ipv4Address: "10.77.0.1/24" } });
  put(collector, "BGPConfiguration", "default", { nodeToNodeMeshEnabled: false, logSeverityScreen: "Error" });
  for (let i = 0; i < PEERS; i++)
    put(collector, "BGPPeer", `p${i}`, { peerIP: peerAddress(i), asNumber: 65_000 + (i % 500) });
  const ours = birdConfiguration(plan(collector.stateFor("us"), "us"), 4, { password: () => undefined });
  const results = new Map<string, { seconds: number; rss: number }[]>();
  for (let round = 0; round < ROUNDS; round++)
    for (const [name, config] of [
      ["ours", ours],
      ["BIRD alone", bareBird(PEERS)],
    ] as const)
      results.set(name, [...(results.get(name) ?? []), await measure(config)]);
  for (const [name, rounds] of results)
    console.log(
      `peers, ${PEERS} × ${ROUTES} routes, ${name}: all routes after ${median(rounds.map(({ seconds }) => seconds)).toFixed(2)} s (2 s of it the delay before connecting), BIRD ${median(rounds.map(({ rss }) => rss)).toFixed(0)} MB, median of ${ROUNDS}`,
    );
}

async function joining(topology: "mesh" | "reflectors"): Promise<void> {
  const NODES = 50;
  await using net = await RouterNetwork.create({ pinned: true });
  await net.put("IPPool", "p4", { cidr: "192.168.0.0/16" });
  if (topology === "reflectors") {
    await net.put("BGPConfiguration", "default", { nodeToNodeMeshEnabled: false, logSeverityScreen: "Error" });
    await net.put("BGPPeer", "rr", { nodeSelector: "all()", peerSelector: "has(rr)" });
  } else await net.put("BGPConfiguration", "default", { logSeverityScreen: "Error" });
  const add = (number: number) =>
    net.addNode(`n${number}`, number, {
      families: [4],
      unchecked: true, // the processes of fifty hosts share the cores
      ...(topology === "reflectors" && number <= 2
        ? { bgp: { routeReflectorClusterID: "244.0.0.1" }, labels: { rr: "yes" } }
        : {}),
    });
  for (let number = 1; number <= NODES; number++) await add(number);
  const last = `192.168.${NODES}.0/26`;
  await pollUntil(
    () => net.routes("n1", 4).includes(last) && net.routes(`n${NODES}`, 4).split("\n").length >= NODES,
    Boolean,
    300_000,
  );
  const start = performance.now();
  await add(NODES + 1);
  const block = `192.168.${NODES + 1}.0/26`;
  const missing = new Set(Array.from({ length: NODES }, (_, i) => `n${i + 1}`));
  let first = 0;
  await pollUntil(
    () => {
      for (const name of missing)
        if (net.routes(name, 4).includes(block)) {
          missing.delete(name);
          first ||= performance.now() - start;
        }
      return missing.size;
    },
    (left) => left === 0,
    120_000,
  );
  console.log(
    `join, ${NODES} nodes, ${topology}: the first has the new node's route after ${(first / 1000).toFixed(1)} s, all after ${((performance.now() - start) / 1000).toFixed(1)} s`,
  );
}

try {
  if (isWanted("render")) render();
  if (isWanted("doctor")) doctor();
  if (isWanted("peers")) await peers();
  for (const topology of ["mesh", "reflectors"] as const) if (isWanted(`join-${topology}`)) await joining(topology);
} finally {
  rmSync(folder, { recursive: true, force: true });
}
