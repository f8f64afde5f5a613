// Removes the rules that the nft variant of iptables left in shared tables (`ip filter` and the like). This uses netlink,
// because iptables-nft cannot read a table that contains native nftables rules.
import type { NftChange, NftRuleset, TableRef } from "../../kernel/index.ts";
import { isOwnedChain } from "../iptables/save-text.ts";
import { TABLE_NAMES } from "../rules/rule.ts";

const OWNED_COMMENT = /^cali:/;

/** Removes the rules and chains of Calico and calico-ts. @returns their number */
export function sweepSharedTables(ruleset: NftRuleset, families: readonly ("ip" | "ip6")[]): number {
  let removed = 0;
  for (const family of families)
    for (const { name } of ruleset.tables(family)) {
      if (!(TABLE_NAMES as readonly string[]).includes(name)) continue;
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
  const ownedNames = new Set(owned);
  // Rules in other chains that jump to an owned chain or have an owned comment.
  const strays = ruleset
    .rules(table, { withTargets: true })
    .filter(({ chain }) => !ownedNames.has(chain))
    .filter(
      ({ comment = "", targets = [] }) => OWNED_COMMENT.test(comment) || targets.some((name) => ownedNames.has(name)),
    );
  return [
    ...strays.map(({ chain, handle }): NftChange => ({ op: "deleteRule", table, chain, handle })),
    ...owned.map((chain): NftChange => ({ op: "flushChain", table, chain })),
    ...owned.map((chain): NftChange => ({ op: "deleteChain", table, chain })),
  ];
}
