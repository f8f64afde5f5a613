// Implements `calico lab pod del`.
import { Lab } from "../lab.ts";
import { lockExisting } from "../lock.ts";
import { podTitle } from "../pods.ts";
import type { LabCall, podDeleteGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { removePod } from "../up.ts";
import { printResult, requestedLab } from "./requested-lab.ts";

export async function run({ flags, args }: LabCall<typeof podDeleteGrammar>): Promise<number> {
  const name = requestedLab(flags);
  using _ = await lockExisting(name);
  const lab = Lab.open(name);
  const pod = lab.pod(args.POD);
  removePod(lab, pod);
  printResult(openTerminal(), flags, pod, () => `deleted pod ${podTitle(pod)}`);
  return 0;
}
