// Implements `calico lab demo`.
import { demonstrate } from "../demo.ts";
import { Lab } from "../lab.ts";
import { lockExisting } from "../lock.ts";
import type { LabCall, noGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { requestedLab } from "./requested-lab.ts";

export async function run({ flags }: LabCall<typeof noGrammar>): Promise<number> {
  const name = requestedLab(flags);
  using _ = await lockExisting(name);
  await demonstrate(Lab.open(name), openTerminal());
  return 0;
}
