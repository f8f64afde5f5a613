// The nftables table `inet calico-guard`, which blocks workload traffic after boot until Felix has written its rules.
//
//   absent   since boot, no agent that manages the table has written its rules
//   closed   written by the CNI plugin if the table is absent: drops all packets from and to workload interfaces
//   normal   written by Felix, in the same transaction as its policy rules or later
//
// `closeWorkloads` fails if the table exists, so the plugin can never replace the table of Felix.
import type { NftRuleset } from "./nft.ts";
import type { BaseChain, NftChange } from "./nft-change.ts";
import * as match from "./nft-match.ts";

export const GUARD_TABLE = { family: "inet", name: "calico-guard" } as const;

export type GuardState = "absent" | "closed" | "normal";

/** Before the filter chains (priority 0) of other programs, and after their destination NAT (priority -100). */
const BASE = { type: "filter", priority: -1, policy: "accept" } as const;
export const GUARD_HOOKS = {
  INPUT: { ...BASE, hook: "input" },
  FORWARD: { ...BASE, hook: "forward" },
  OUTPUT: { ...BASE, hook: "output" },
} as const satisfies Record<string, BaseChain>;

/** The same names as in Felix's renderer, which replaces these chains. */
const chainName = (hook: string): string => `filter-${hook}`;
const CLOSED_MARK = "cali:closed;";
const CLOSED_COMMENT = `${CLOSED_MARK} until Felix has written its rules`;

export function guardState(ruleset: Pick<NftRuleset, "tables" | "rules">): GuardState {
  const { family, name } = GUARD_TABLE;
  if (!ruleset.tables(family).some((table) => table.name === name)) return "absent";
  return ruleset.rules(GUARD_TABLE).some(({ comment }) => comment?.startsWith(CLOSED_MARK)) ? "closed" : "normal";
}

/** @throws NftError with errno EEXIST if the table exists */
export function closeWorkloads(ruleset: Pick<NftRuleset, "commit">, interfacePrefixes: readonly string[]): void {
  const table = GUARD_TABLE;
  const drop = (hook: string, direction: "in" | "out"): NftChange[] =>
    interfacePrefixes.map((prefix) => ({
      op: "appendRule",
      table,
      chain: chainName(hook),
      rule: {
        expressions: [...match.interfaceName(direction, `${prefix}*`), match.counter, match.drop],
        comment: CLOSED_COMMENT,
      },
    }));
  ruleset.commit([
    { op: "createTable", table },
    ...Object.entries(GUARD_HOOKS).map(
      ([hook, base]): NftChange => ({ op: "addChain", table, chain: chainName(hook), base }),
    ),
    ...drop("INPUT", "in"),
    ...drop("FORWARD", "in"),
    ...drop("FORWARD", "out"),
    ...drop("OUTPUT", "out"),
  ]);
}
