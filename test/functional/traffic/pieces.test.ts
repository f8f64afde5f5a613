// Tests the programming of large tables in several transactions, before their hooks are added. Meanwhile packets are judged by
// the previous rules: none, or those of another backend.
import { expect, test } from "bun:test";
import { Nft } from "../../../src/kernel/index.ts";
import type { Backend } from "../dataplane/host.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { TrafficNode } from "./node.ts";
import { byIpv6, faults, type FlowResult, type Place } from "./traffic.ts";
import { BASE, prepare, resource } from "./web-node.ts";

const POLICIES = 600;
/** Policies of `web` that allow packets that this test does not send. */
const MANY = Object.fromEntries(
  Array.from({ length: POLICIES }, (_, i) => [
    `${BASE}/networkpolicies/ns1/default.other${i}`,
    resource(
      "NetworkPolicy",
      `default.other${i}`,
      {
        ...{ tier: "default", order: 50, selector: `app == 'web' && !has(x${i})`, types: ["Ingress"] },
        ingress: [{ action: "Allow", protocol: "TCP", destination: { ports: [10_000 + i] } }],
      },
      { namespace: "ns1" },
    ),
  ]),
);

const generation = (node: TrafficNode): number =>
  node.space.enter(() => {
    using nft = new Nft();
    return nft.generation();
  });
const hooks = (node: TrafficNode): number =>
  ["ip", "ip6"]
    .map((family) => node.space.run("nft", ["list", "chains", family]))
    .join("\n")
    .split(/^table /m)
    .filter((table) => table.includes(" calico {"))
    .join("")
    .split("hook ").length - 1;
const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/** Starts the agent and kills it after this number of transactions. Returns false if it made fewer. */
async function killAfterWrites(node: TrafficNode, backend: Backend, writes: number): Promise<boolean> {
  const before = generation(node);
  node.startAgent(backend);
  const deadlineMs = performance.now() + 10_000;
  while (generation(node) < before + writes && performance.now() < deadlineMs) await pause(1);
  await node.endAgent("SIGKILL");
  return generation(node) >= before + writes;
}

/** Kills the agent while it writes its tables. Returns true if the tables exist without hooks. */
async function killBetweenPieces(node: TrafficNode): Promise<boolean> {
  await killAfterWrites(node, "nftables", 2); // the first transaction is that of the ARP table
  return hooks(node) === 0;
}

/** Runs the agent until it has programmed everything. */
async function runUntilOnly(node: TrafficNode, backend: Backend): Promise<void> {
  node.startAgent(backend);
  await node.untilReady();
  await node.untilOnly(backend);
  await node.endAgent("SIGTERM");
}

test("on a node without rules: allowed flows lose nothing, and all denied flows end at the same time", async () => {
  await using world = await prepare(MANY);
  const { node, traffic, pods } = world;
  // Routes as the CNI plugin adds them.
  for (const [pod, name] of [
    [pods.web, "cali00000000000"],
    [pods.client, "cali00000000001"],
    [pods.other, "cali00000000002"],
  ] as const)
    for (const address of [pod.address, pod.address6 ?? ""])
      node.space.run("ip", ["route", "add", address, "dev", name, "proto", "boot", "metric", "1024"]);
  for (const as of [(place: Place) => place, byIpv6]) {
    const [web, client, other, outside] = [pods.web, pods.client, pods.other, node.outside].map(as) as [
      Place,
      Place,
      Place,
      Place,
    ];
    traffic.add(client, web, 8080);
    traffic.add(outside, web, 8090);
    // These are not answered, so that every packet is judged as a new connection.
    traffic.add(client, web, 8081, ["one-way"]);
    traffic.add(other, web, 8080, ["one-way"]);
    traffic.add(other, web, 8090, ["one-way"]);
    traffic.add(outside, web, 8080, ["one-way"]);
  }
  const isDenied = ({ name }: FlowResult) => /web6?:8081|other6? →|outside6? → web6?:8080/.test(name);
  traffic.start();
  await pause(300);
  const open = traffic.results();
  expect(open.filter(({ delivered }) => delivered === 0)).toEqual([]);

  let kills = 0;
  while (!(await killBetweenPieces(node)) && kills++ < 5) node.space.run("nft", ["flush", "ruleset"]);
  expect(hooks(node)).toBe(0);
  await pause(100);
  const half = traffic.results();
  // Incomplete tables do not deny anything, because they have no hooks.
  for (const [i, flow] of half.entries()) expect(flow.delivered).toBeGreaterThan(open[i]?.delivered ?? 0);

  node.startAgent("nftables");
  await node.untilReady();
  await pause(100);
  const ready = traffic.results();
  await pause(300);
  const end = await traffic.finish();
  const allowed = (list: readonly FlowResult[]) => list.filter((flow) => !isDenied(flow));
  expect(faults(allowed(open), allowed(end))).toMatchObject({ lost: [], passed: [] });
  const ended = end.filter(isDenied).map(({ delivered }) => delivered);
  expect(ended).toHaveLength(8);
  expect(ready.filter(isDenied).map(({ delivered }) => delivered)).toEqual(ended);
  // All of them end within one or two ticks of the sender.
  expect(Math.max(...ended) - Math.min(...ended)).toBeLessThan(4);
  expect(Math.max(...ended)).toBeGreaterThan(half.find(isDenied)?.delivered ?? 0);
}, 120_000);

for (const from of ["legacy", "nft"] as const)
  test(`from ${from}: killed between transactions and restarted, in both directions, nothing is lost or allowed by mistake`, async () => {
    await using world = await prepare(MANY);
    const { node, traffic } = world;
    node.startAgent(from);
    await node.untilReady();
    const before = await world.begin();
    await node.endAgent("SIGTERM");
    const first = generation(node);
    let hits = 0;
    for (let attempt = 0; attempt < 5 && hits < 2; attempt++) {
      if (!(await killBetweenPieces(node))) {
        // Too late: the hooks were already added. Return to the initial state.
        await runUntilOnly(node, from);
        continue;
      }
      hits++;
      await pause(100); // the old rules remain in force
      // The next start finds incomplete tables or, here, none.
      if (hits === 1)
        for (const family of ["ip", "ip6"])
          node.space.run("nft", ["-f", "-"], `table ${family} calico\ndelete table ${family} calico\n`);
    }
    expect(hits).toBeGreaterThan(0);
    for (const backend of ["nftables", from] as readonly Backend[]) await runUntilOnly(node, backend);
    expect(generation(node)).toBeGreaterThan(first + 4);
    const { lost, passed, checked } = faults(before, await traffic.finish());
    console.log(`${from} → nftables → ${from}, ${hits} kills between pieces: ${checked} packets`);
    expect({ lost, passed }).toEqual({ lost: [], passed: [] });
  }, 240_000);

test("from nftables to nft: killed at every table that it writes, nothing is lost or allowed by mistake", async () => {
  await using world = await prepare(Object.fromEntries(Object.entries(MANY).slice(0, 60)));
  const { node, traffic } = world;
  node.startAgent("nftables");
  await node.untilReady();
  const before = await world.begin();
  await node.endAgent("SIGTERM");
  // Each start writes one table more than the previous one.
  let kills = 0;
  while (kills < 6 && (await killAfterWrites(node, "nft", 1))) {
    kills++;
    await pause(50);
    if ((await node.traces()).nftables === false) break; // everything is written, and the old rules are removed
  }
  expect(kills).toBeGreaterThan(3);
  await runUntilOnly(node, "nft");
  const { lost, passed, checked } = faults(before, await traffic.finish());
  console.log(`nftables → nft, killed ${kills} times: ${checked} packets`);
  expect({ lost, passed }).toEqual({ lost: [], passed: [] });
}, 240_000);

test("an existing large table is changed in one transaction, and nothing is lost or allowed by mistake", async () => {
  await using world = await prepare(MANY);
  const { node, traffic } = world;
  node.startAgent("nftables");
  await node.untilReady();
  const before = await world.begin();
  await node.endAgent("SIGKILL");
  // Another program deleted half of the rules, but not the hooks: the others still deny.
  const listed = node.space.run("nft", ["list", "chain", "ip", "calico", "filter-cali-tw-cali00000000000"]);
  expect(listed).toContain("jump filter-cali-pi-np/ns1/default.other7");
  const chains = Array.from({ length: POLICIES / 2 }, (_, i) => `filter-cali-pi-np/ns1/default.other${i * 2}`);
  const script = chains.map((chain) => `flush chain ip calico ${chain}`).join("\n");
  node.space.run("nft", ["-f", "-"], `${script}\n`);
  const generationBefore = generation(node);
  node.startAgent("nftables");
  await node.untilReady();
  await eventually(
    () => node.space.run("nft", ["list", "chain", "ip", "calico", chains[5] ?? ""]).includes("dport"),
    10_000,
  );
  expect(generation(node)).toBe(generationBefore + 1);
  const { lost, passed, checked } = faults(before, await traffic.finish());
  console.log(`${checked} packets`);
  expect({ lost, passed }).toEqual({ lost: [], passed: [] });
}, 120_000);
