// The agent ends, is killed and changes its backend while traffic runs: nothing on a connection is lost, nothing that is
// denied gets through. Counted packet by packet.
import { expect, test } from "bun:test";
import type { Backend } from "../dataplane/host.ts";
import { faults } from "./traffic.ts";
import { prepare } from "./web-node.ts";

for (const backend of ["nftables", "legacy", "nft"] as const)
  test(`${backend}: ended, killed and killed while it starts, the agent loses and opens nothing`, async () => {
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
    // Killed at some point of its first round, then started for good.
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

test("from one backend to the next and back, nothing is lost or opened", async () => {
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

test("the count itself notices a gap and a leak", async () => {
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
