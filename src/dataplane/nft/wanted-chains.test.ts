import { expect, test } from "bun:test";
import { objectsLeftPerRound } from "../../lib/testing/heap-growth.ts";
import { accept, chain, inSet, jump } from "../rules/rule.ts";
import { WantedChains } from "./wanted-chains.ts";

test("sets that no chain uses any more, and chains that are gone, leave nothing in memory", async () => {
  const chains = new WantedChains(() => {});
  chains.setHook("filter", "FORWARD", "insert", [{ action: jump("cali-edited") }]);
  const left = await objectsLeftPerRound((number) => {
    // A policy is edited, and another one comes and goes.
    chains.set("filter", chain("cali-edited", [{ match: [inSet("source", `s:${number}`)], action: accept }]));
    expect(chains.needed("filter-cali-edited")?.sets).toEqual(new Set([`s:${number}`]));
    expect(chains.usersOf(`s:${number - 1}`)).toEqual([]);
    chains.set("filter", chain(`cali-${number}`, [{ match: [inSet("source", `t:${number}`)], action: accept }]));
    chains.needed(`filter-cali-${number}`);
    chains.remove(`filter-cali-${number}`);
  });
  expect(left).toBeLessThan(0.5);
});
