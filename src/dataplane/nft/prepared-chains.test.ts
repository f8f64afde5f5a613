import { expect, test } from "bun:test";
import { objectsLeftPerRound } from "../../lib/testing/heap-growth.ts";
import { DesiredChains } from "../rules/desired-chains.ts";
import { accept, chain, inSet, jump } from "../rules/rule.ts";
import { PreparedChains } from "./prepared-chains.ts";
import { nftChainName } from "./render.ts";

test("removed chains, and sets that no chain uses any more, use no memory", async () => {
  const desired = new DesiredChains({
    kernelName: nftChainName,
    onContentChange: (name) => prepared.invalidate(name),
    onNeedChange: () => {},
  });
  const prepared = new PreparedChains(desired);
  desired.set("filter", chain("FORWARD", [{ action: jump("cali-edited") }]));
  desired.hold("filter-FORWARD");
  const left = await objectsLeftPerRound((number) => {
    // One policy is changed, and another one is added and removed.
    desired.set("filter", chain("cali-edited", [{ match: [inSet("source", `s:${number}`)], action: accept }]));
    expect(prepared.get("filter-cali-edited")?.sets).toEqual(new Set([`s:${number}`]));
    expect(prepared.usersOf(`s:${number - 1}`)).toEqual([]);
    desired.set("filter", chain(`cali-${number}`, [{ match: [inSet("source", `t:${number}`)], action: accept }]));
    desired.hold(`filter-cali-${number}`);
    prepared.get(`filter-cali-${number}`);
    desired.release(`filter-cali-${number}`);
    desired.remove(`filter-cali-${number}`);
  });
  expect(left).toBeLessThan(0.5);
});
