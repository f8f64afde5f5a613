// Upgrades Felix from an earlier version and rolls it back while traffic runs: no packet of a connection is lost, and no
// denied packet passes. PREVIOUS_CALICO is the folder with the executables of the earlier version (its `dist/`).
import { expect, test } from "bun:test";
import { join } from "node:path";
import { faults } from "./traffic.ts";
import { prepare } from "./web-node.ts";

const previous = process.env["PREVIOUS_CALICO"];
if (previous === undefined) console.log("skipped: set PREVIOUS_CALICO to the dist/ folder of an earlier version");

for (const backend of ["nftables", "legacy", "nft"] as const)
  test.skipIf(previous === undefined)(
    `${backend}: an upgrade, a roll-back and another upgrade lose and open nothing`,
    async () => {
      await using world = await prepare();
      const { node, traffic } = world;
      const previousFelix = join(previous ?? "", "calico-felix");
      node.startAgent(backend, {}, previousFelix);
      await node.untilReady();
      const before = await world.begin();
      for (const program of [undefined, previousFelix, undefined]) {
        await node.endAgent("SIGTERM");
        node.startAgent(backend, {}, program);
        await node.untilReady();
      }
      const { lost, passed, checked } = faults(before, await traffic.finish());
      console.log(
        `${backend}: ${checked} packets over three changes, ${lost.length} lost, ${passed.length} wrongly passed`,
      );
      expect({ lost, passed }).toEqual({ lost: [], passed: [] });
    },
    240_000,
  );
