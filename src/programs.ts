// All programs that this one executable contains, with the tables of their command lines. A table is loaded without the
// code of its commands.
import type { Command } from "./lib/command-line/command.ts";

type Main = (argv: readonly string[], program?: string) => Promise<number> | number;

interface Program {
  readonly table: () => Promise<Command>;
  /** Absent if the program needs nothing but its table. */
  readonly main?: () => Promise<{ readonly main: Main }>;
}

const calicoctl: Program = {
  table: async () => (await import("./calicoctl/table/index.ts")).ROOT,
  main: () => import("./calicoctl/index.ts"),
};
const install: Program = { table: async () => (await import("./cni/table.ts")).INSTALL };

/** By the name with which the executable is called. */
export const PROGRAMS: Readonly<Record<string, Program>> = {
  calico: {
    table: async () => (await import("./calico.ts")).CALICO,
    main: () => import("./calico.ts"),
  },
  calicoctl,
  "kubectl-calico": calicoctl,
  "calico-typha": { table: async () => (await import("./typha/table.ts")).TYPHA },
  "calico-kube-controllers": { table: async () => (await import("./controllers/table.ts")).CONTROLLERS },
  "check-status": { table: async () => (await import("./controllers/table.ts")).CHECK_STATUS },
  "calico-ipam": {
    table: async () => (await import("./cni/table.ts")).IPAM_PLUGIN,
    main: () => import("./cni/calico-ipam.ts"),
  },
  "calico-install": install,
  install, // manifests call /opt/cni/bin/install in the image
  "calico-felix": { table: async () => (await import("./felix/table.ts")).FELIX },
  "calico-node": { table: async () => (await import("./node/table.ts")).NODE },
};

/** @throws if there is no such program */
export async function loadMain(name: string): Promise<Main> {
  const program = Object.hasOwn(PROGRAMS, name) ? PROGRAMS[name] : undefined;
  if (program === undefined) throw new Error(`there is no program ${name}`);
  if (program.main !== undefined) return (await program.main()).main;
  const { programMain } = await import("./lib/command-line/run.ts");
  return programMain(await program.table());
}
