// Implements `calico lab break`, with one handler for each kind of fault.
import { breakLab, type FaultKind } from "../faults.ts";
import { Lab } from "../lab.ts";
import { lockExisting } from "../lock.ts";
import type { breakLinkGrammar, breakNodeGrammar, breakProcessGrammar, LabCall, noGrammar } from "../table.ts";
import { openTerminal } from "../terminal.ts";
import { requestedLab } from "./requested-lab.ts";

export const breakLink = ({ flags, args }: LabCall<typeof breakLinkGrammar>): Promise<number> =>
  inject(flags, "link", args.NODE, args.INTERFACE);

export const breakProcess = ({ flags, args }: LabCall<typeof breakProcessGrammar>): Promise<number> =>
  inject(flags, "process", args.NODE, args.NAME);

export const breakRules = ({ flags, args }: LabCall<typeof breakNodeGrammar>): Promise<number> =>
  inject(flags, "rules", args.NODE);

export const breakRoutes = ({ flags, args }: LabCall<typeof breakNodeGrammar>): Promise<number> =>
  inject(flags, "routes", args.NODE);

export const breakDatastore = ({ flags }: LabCall<typeof noGrammar>): Promise<number> => inject(flags, "datastore");

async function inject(
  flags: { readonly name: string | undefined },
  kind: FaultKind,
  ...where: readonly (string | undefined)[]
): Promise<number> {
  const name = requestedLab(flags);
  using _ = await lockExisting(name);
  openTerminal().line(breakLab(Lab.open(name), [kind, ...where.filter((word) => word !== undefined)]));
  return 0;
}
