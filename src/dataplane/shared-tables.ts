// What the nft variant of iptables left in the tables everybody shares (`ip filter` and the like). The tool itself gives up
// on a whole table as soon as somebody has put a native rule there, so they are read and cleaned over netlink.
import type { NftChange, NftRuleset, TableRef } from "../kernel/index.ts";
import { isOwnedChain } from "./iptables/save-text.ts";
import { LAYERS } from "./rules/rule.ts";

const OUR_COMMENT = /^cali:/;

/** Takes our rules and chains out of the shared tables of these families. @returns how many chains and rules that were */
export function sweepSharedTables(ruleset: NftRuleset, families: readonly ("ip" | "ip6")[]): number {
  let removed = 0;
  for (const family of families)
    for (const { name } of ruleset.tables(family)) {
      if (!(LAYERS as readonly string[]).includes(name)) continue;
      const changes = removals(ruleset, { family, name });
      ruleset.commit(changes);
      removed += changes.length;
    }
  return removed;
}

function removals(ruleset: NftRuleset, table: TableRef): NftChange[] {
  const owned = ruleset
    .chains(table)
    .map(({ name }) => name)
    .filter(isOwnedChain);
  const isOurs = new Set(owned);
  // In chains of others: what leads to ours, or carries our mark.
  const strays = ruleset
    .rules(table, { withTargets: true })
    .filter(({ chain }) => !isOurs.has(chain))
    .filter(({ comment = "", targets = [] }) => OUR_COMMENT.test(comment) || targets.some((name) => isOurs.has(name)));
  return [
    ...strays.map(({ chain, handle }): NftChange => ({ op: "deleteRule", table, chain, handle })),
    ...owned.map((chain): NftChange => ({ op: "flushChain", table, chain })),
    ...owned.map((chain): NftChange => ({ op: "deleteChain", table, chain })),
  ];
}
