// Large tables are written in pieces before packets are shown to them. Meanwhile, whatever stood there before goes on to
// judge every packet: nothing at all, or another backend's rules.
import { expect, test } from "bun:test";
import { Nft } from "../../../src/kernel/index.ts";
import type { Backend } from "../dataplane/host.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { TrafficNode } from "./node.ts";
import { byIpv6, faults, type FlowResult, type Place } from "./traffic.ts";
import { BASE, prepare, resource } from "./web-node.ts";

const POLICIES = 600;
/** Policies of `web` that allow what nobody here sends. */
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

/** Starts the agent and ends it as soon as it has written so often; false when it does not. */
async function killAfterWrites(node: TrafficNode, backend: Backend, writes: number): Promise<boolean> {
  const before = generation(node);
  node.startAgent(backend);
  const end = performance.now() + 10_000;
  while (generation(node) < before + writes && performance.now() < end) await pause(1);
  await node.endAgent("SIGKILL");
  return generation(node) >= before + writes;
}

/** Ends the agent while it writes its tables: they are there, and no packet is shown to them. */
async function killBetweenPieces(node: TrafficNode): Promise<boolean> {
  await killAfterWrites(node, "nftables", 2); // the table of ARP comes first, by itself
  return hooks(node) === 0;
}

/** The agent does all it has to do, and ends. */
async function runUntilOnly(node: TrafficNode, backend: Backend): Promise<void> {
  node.startAgent(backend);
  await node.untilReady();
  await node.untilOnly(backend);
  await node.endAgent("SIGTERM");
}

test("on a node without any rules: what is allowed loses nothing, what is denied ends at one moment and never comes again", async () => {
  await using world = await prepare(MANY);
  const { node, traffic, pods } = world;
  // As the CNI plugin leaves them.
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
    // Nobody answers these, so every packet is judged anew.
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
  // Half-written tables have closed nothing: nobody is asked, as before.
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
  // All of them within a tick of the sender or two: one moment.
  expect(Math.max(...ended) - Math.min(...ended)).toBeLessThan(4);
  expect(Math.max(...ended)).toBeGreaterThan(half.find(isDenied)?.delivered ?? 0);
}, 120_000);

for (const from of ["legacy", "nft"] as const)
  test(`from ${from}: killed between pieces and started again, both ways, nothing is lost or opened`, async () => {
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
        // Too late: it had shown packets to its tables. Back to where we began.
        await runUntilOnly(node, from);
        continue;
      }
      hits++;
      await pause(100); // the old rules judge on
      // What is half written is found by the next start or, here, gone.
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

test("from nftables to nft: killed at every table it writes, nothing is lost or opened", async () => {
  await using world = await prepare(Object.fromEntries(Object.entries(MANY).slice(0, 60)));
  const { node, traffic } = world;
  node.startAgent("nftables");
  await node.untilReady();
  const before = await world.begin();
  await node.endAgent("SIGTERM");
  // Each time it gets one table further than the last time.
  let kills = 0;
  while (kills < 6 && (await killAfterWrites(node, "nft", 1))) {
    kills++;
    await pause(50);
    if ((await node.traces()).nftables === false) break; // all is written, and the old rules are swept
  }
  expect(kills).toBeGreaterThan(3);
  await runUntilOnly(node, "nft");
  const { lost, passed, checked } = faults(before, await traffic.finish());
  console.log(`nftables → nft, killed ${kills} times: ${checked} packets`);
  expect({ lost, passed }).toEqual({ lost: [], passed: [] });
}, 240_000);

test("a large table that is there already is changed in one go under traffic, and nothing is lost or opened", async () => {
  await using world = await prepare(MANY);
  const { node, traffic } = world;
  node.startAgent("nftables");
  await node.untilReady();
  const before = await world.begin();
  await node.endAgent("SIGKILL");
  // Somebody took half of it away, but not the hooks: the rest still closes.
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
