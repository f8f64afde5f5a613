// Implements `calico lab heal`: repairs the faults of `break`.
import { healLab } from "../faults.ts";
import { Lab } from "../lab.ts";
import { lockExisting } from "../lock.ts";
import type { LabCall, noGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { requestedLab } from "./requested-lab.ts";

export async function run({ flags }: LabCall<typeof noGrammar>): Promise<number> {
  const name = requestedLab(flags);
  using _ = await lockExisting(name);
  const done = await healLab(Lab.open(name));
  openTerminal().line(done.length === 0 ? "no faults to repair" : done.join("\n"));
  return 0;
}
