// The program `calico`, called by a user: the lab, and short forms of the other programs. A container runtime calls the
// same file as its CNI plugin (main.ts).
import { ROOT } from "./calicoctl/table/index.ts";
import { CNI_SERVICE } from "./cni/table.ts";
import { type Call, type Command, commandsWith, type Grammar } from "./lib/command-line/command.ts";
import { programMain } from "./lib/command-line/run.ts";
import { BUILD } from "./lib/process/build.ts";
import { COMPONENT, HEALTH } from "./node/table.ts";

const command = commandsWith({});

const rootGrammar = {
  flags: {
    version: { type: "switch", short: "v", about: "print the version" },
    t: { type: "switch", about: "check that the datastore of the CNI configuration on standard input is ready" },
  },
} as const satisfies Grammar;

const SHORT_FORMS = "Short for calico ctl";
const loadCalicoctl = () => import("./calicoctl/index.ts");

/** `calico get` is `calico ctl get`; `version` is the version of this program. */
const shortForms = (ROOT.commands ?? [])
  .filter(({ name }) => name !== "version")
  .map(
    ({ name, about, commands }): Command => ({
      name,
      about,
      section: SHORT_FORMS,
      commands,
      program: async () => ROOT,
      load: async () => {
        const { main: calicoctl } = await loadCalicoctl();
        return { run: ({ rest }: Call) => calicoctl([name, ...rest], "calico") };
      },
    }),
  );

export const CALICO: Command = {
  ...command({
    name: "calico",
    about: "Run a cluster on this machine, manage a cluster, or run components of Calico.",
    details: "A container runtime calls this program as its CNI plugin, with CNI_COMMAND in the environment.",
    ...rootGrammar,
    exitCodes: { 0: "done", 1: "failed" },
    load: async () => ({ run: runRoot }),
  }),
  examples: [
    { line: "lab up", about: "A cluster of three hosts on this machine." },
    { line: "doctor", about: "Find faults of the cluster and of this host." },
    { line: "get nodes -o wide", about: "The same as calicoctl get nodes -o wide." },
  ],
  commands: [
    {
      name: "lab",
      about: "Run a cluster in network namespaces on this machine.",
      program: async () => (await import("./lab/table.ts")).LAB,
      load: async () => {
        const { main: lab } = await import("./lab/index.ts");
        return { run: ({ rest }: Call) => lab(rest) };
      },
    },
    {
      name: "ctl",
      about: "Manage a cluster; the same as calicoctl.",
      program: async () => ROOT,
      load: async () => {
        const { main: calicoctl } = await loadCalicoctl();
        return { run: ({ rest }: Call) => calicoctl(rest, "calico ctl") };
      },
    },
    COMPONENT,
    HEALTH,
    CNI_SERVICE,
    command({ name: "version", about: "Print the version.", load: async () => ({ run: printVersion }) }),
    ...shortForms,
  ],
};

export const main = programMain(CALICO);

async function runRoot({ flags, io, commandName }: Call<typeof rootGrammar>): Promise<number> {
  if (flags.t) return (await import("./cni/calico.ts")).main(["-t"]);
  if (flags.version) return printVersion({ io });
  // A container runtime that set no CNI_COMMAND reads standard output, which must stay empty.
  const { helpText, helpWidth } = await import("./lib/command-line/help.ts");
  const shown = { command: CALICO, commandName, globalFlags: {}, style: "gnu" } as const;
  io.err(helpText(shown, helpWidth(io.columns?.())));
  return 0;
}

function printVersion({ io }: Pick<Call, "io">): number {
  io.out(`calico ${BUILD.version} (${BUILD.commit})\n`);
  return 0;
}
