// Implements `calico lab status`: prints the state of every host.
import { Lab } from "../lab.ts";
import { labStatus, renderStatus } from "../status.ts";
import type { LabCall, statusGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { printResult, requestedLab } from "./requested-lab.ts";

const NOT_READY = 3;

export async function run({ flags }: LabCall<typeof statusGrammar>): Promise<number> {
  const lab = Lab.open(requestedLab(flags));
  const terminal = openTerminal();
  const rows = await labStatus(lab);
  printResult(terminal, flags, rows, () => renderStatus(lab, rows, terminal.colour));
  return rows.every((row) => row.state === "ready") ? 0 : NOT_READY;
}
