// Stops and kills Felix and changes its backend while traffic runs: no packet of a connection is lost, and no denied packet
// passes. Every packet is counted.
import { expect, test } from "bun:test";
import type { Backend } from "../dataplane/host.ts";
import { faults } from "./traffic.ts";
import { prepare } from "./web-node.ts";

for (const backend of ["nftables", "legacy", "nft"] as const)
  test(`${backend}: stopped, killed, and killed during startup, the agent loses no packet and allows nothing by mistake`, async () => {
    await using world = await prepare();
    const { node, traffic } = world;
    node.startAgent(backend);
    await node.untilReady();
    const before = await world.begin();
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      await node.endAgent(signal);
      node.startAgent(backend);
      await node.untilReady();
    }
    // Killed at some point of its first apply, then started again.
    for (const afterMs of [250, 500, 900]) {
      await node.endAgent("SIGKILL");
      node.startAgent(backend);
      await new Promise((resolve) => setTimeout(resolve, afterMs));
    }
    await node.endAgent("SIGKILL");
    node.startAgent(backend);
    await node.untilReady();
    const { lost, passed, checked } = faults(before, await traffic.finish());
    console.log(
      `${backend}: ${checked} packets over six restarts, ${lost.length} lost, ${passed.length} wrongly passed`,
    );
    expect({ lost, passed }).toEqual({ lost: [], passed: [] });
  }, 240_000);

test("from one backend to the next and back, nothing is lost or allowed by mistake", async () => {
  await using world = await prepare();
  const { node, traffic } = world;
  const order: readonly Backend[] = ["nftables", "legacy", "nft", "nftables", "nft", "legacy", "nftables"];
  let before;
  for (const backend of order) {
    node.startAgent(backend);
    await node.untilReady();
    await node.untilOnly(backend);
    before ??= await world.begin();
    await node.endAgent("SIGTERM");
  }
  const { lost, passed, checked } = faults(before ?? [], await traffic.finish());
  console.log(`${order.join(" → ")}: ${checked} packets, ${lost.length} lost, ${passed.length} wrongly passed`);
  expect({ lost, passed }).toEqual({ lost: [], passed: [] });
}, 300_000);

test("the traffic counters detect a lost packet and a packet that should be denied", async () => {
  await using world = await prepare();
  const { node, traffic } = world;
  node.startAgent("nftables");
  await node.untilReady();
  const before = await world.begin();
  await node.endAgent("SIGKILL");
  node.space.run("nft", ["delete table ip calico"]);
  await new Promise((resolve) => setTimeout(resolve, 100));
  node.space.run("nft", ["table ip gap { chain c { type filter hook forward priority 0; policy drop;\n }\n }"]);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const { lost, passed } = faults(before, await traffic.finish());
  expect(lost.length).toBeGreaterThan(0);
  expect(passed.length).toBeGreaterThan(0);
}, 60_000);
