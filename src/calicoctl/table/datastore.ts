// Declares `calicoctl datastore …`, which moves data between datastores.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { command, CONFIG, GROUP_FLAGS } from "./flags.ts";

export const datastoreGrammar = { flags: CONFIG } as const satisfies Grammar;
const USAGE = ["[--config=<CONFIG>]"];

export const importGrammar = {
  flags: {
    filename: {
      type: "text",
      short: "f",
      value: "FILENAME",
      isRequired: true,
      about: "output of `export`, or - for standard input",
    },
    ...CONFIG,
  },
} as const satisfies Grammar;

export const datastoreGroup: Command = {
  name: "datastore",
  about: "Manage the datastore.",
  flags: GROUP_FLAGS,
  commands: [
    {
      name: "migrate",
      about: "Move the data of a cluster from etcd to the Kubernetes API.",
      flags: GROUP_FLAGS,
      commands: [
        command({
          name: "export",
          about: "Print the contents of a locked etcd datastore, for `import`.",
          usage: USAGE,
          ...datastoreGrammar,
          examples: [{ line: "> calico.export", about: "Write everything to a file." }],
          load: () => import("../commands/migrate/export.ts"),
        }),
        command({
          name: "import",
          about: "Store the output of `export` in the Kubernetes API.",
          usage: ["--filename=<FILENAME> [--config=<CONFIG>]"],
          ...importGrammar,
          examples: [{ line: "-f calico.export", about: "Read the file that `export` wrote." }],
          load: () => import("../commands/migrate/import.ts"),
        }),
        command({
          name: "lock",
          about: "Lock the datastore: agents make no changes until `unlock`.",
          usage: USAGE,
          ...datastoreGrammar,
          load: () => import("../commands/migrate/lock.ts"),
        }),
        command({
          name: "unlock",
          about: "Unlock the datastore, so that agents continue.",
          usage: USAGE,
          ...datastoreGrammar,
          load: () => import("../commands/migrate/unlock.ts"),
        }),
      ],
    },
    command({
      name: "migrate-policy-names",
      about: "Rename policies that older releases stored as default.<name> to <name>.",
      usage: USAGE,
      ...datastoreGrammar,
      load: () => import("../commands/migrate/policy-names.ts"),
    }),
  ],
};
