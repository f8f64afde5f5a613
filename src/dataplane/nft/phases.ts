// Orders the changes of the parts of an nftables table (chains, sets, maps, …) within one transaction.
//
//   release    removes references: flushes chains, deletes map elements
//   create     creates what rules refer to: chains, sets, maps, flowtables; and fills sets
//   fill       adds rules and map elements
//   activate   creates base chains and adds their rules: from here on the kernel passes packets to the table
//   remove     deletes what nothing refers to any more
//
// Within a phase the order does not matter to the kernel. Each part returns its changes by phase.
import type { NftChange } from "../../kernel/index.ts";

type Phase = "release" | "create" | "fill" | "activate" | "remove";

export type PhasedChanges = Readonly<Partial<Record<Phase, readonly NftChange[]>>>;

export const changesIn = (parts: readonly PhasedChanges[], phases: readonly Phase[]): NftChange[] =>
  phases.flatMap((phase) => parts.flatMap((part) => part[phase] ?? []));
