// Implements `calico lab pod list`. It reads only the lab's record, so it does not need root.
import { alignColumns } from "../../lib/terminal/table.ts";
import { Lab } from "../lab.ts";
import { DEFAULT_OPTIONS, labName } from "../options.ts";
import { labelText } from "../pods.ts";
import type { LabCall, podListGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { printResult } from "./requested-lab.ts";

export function run({ flags }: LabCall<typeof podListGrammar>): number {
  const { pods } = Lab.open(labName(flags.name ?? DEFAULT_OPTIONS.name));
  const rows = pods.map((p) => [`${p.namespace}/${p.name}`, p.node, p.addresses.join(","), labelText(p.labels)]);
  printResult(openTerminal(), flags, pods, () => alignColumns([["POD", "NODE", "ADDRESSES", "LABELS"], ...rows]));
  return 0;
}
