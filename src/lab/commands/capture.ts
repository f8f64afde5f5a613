// Implements `calico lab capture`: runs tcpdump on a host.
import { baseEnvironment } from "../host.ts";
import { Lab } from "../lab.ts";
import type { captureGrammar, LabCall } from "../table.ts";
import { requireTools } from "../tools.ts";
import { runAttached } from "./run-attached.ts";
import { requestedLab } from "./requested-lab.ts";

export function run({ flags, args, rest }: LabCall<typeof captureGrammar>): number {
  const host = Lab.open(requestedLab(flags)).host(args.NODE ?? "");
  requireTools(["tcpdump"]);
  return runAttached(host.enter(["tcpdump", "-n", "-l", "-i", "any", ...rest]), baseEnvironment());
}
