// `calicoctl datastore …`: moving between datastores.
import type { Group } from "../command.ts";
import { CONFIG } from "./flags.ts";

const none = { least: 0, most: 0 };

export const datastoreGroup: Group = {
  name: "datastore",
  about: "Manage the datastore.",
  commands: [
    {
      name: "migrate",
      about: "Move a cluster's data from etcd to the Kubernetes API.",
      commands: [
        {
          name: "export",
          about: "Print what a locked etcd datastore holds, for `import`.",
          usage: ["[--config=<CONFIG>]"],
          flags: [CONFIG],
          words: none,
          load: () => import("../commands/migrate-export.ts"),
        },
        {
          name: "import",
          about: "Store what `export` printed in the Kubernetes API.",
          usage: ["--filename=<FILENAME> [--config=<CONFIG>]"],
          flags: [
            {
              name: "filename",
              short: "f",
              value: "FILENAME",
              about: "what `export` printed, or - for standard input",
            },
            CONFIG,
          ],
          words: none,
          load: () => import("../commands/migrate-import.ts"),
        },
        {
          name: "lock",
          about: "Tell all agents to wait: nothing changes until `unlock`.",
          usage: ["[--config=<CONFIG>]"],
          flags: [CONFIG],
          words: none,
          load: () => import("../commands/migrate-lock.ts"),
        },
        {
          name: "unlock",
          about: "Let the agents go on.",
          usage: ["[--config=<CONFIG>]"],
          flags: [CONFIG],
          words: none,
          load: () => import("../commands/migrate-unlock.ts"),
        },
      ],
    },
    {
      name: "migrate-policy-names",
      about: "Give policies that older releases stored as default.<name> their own names.",
      usage: ["[--config=<CONFIG>]"],
      flags: [CONFIG],
      words: none,
      load: () => import("../commands/migrate-policy-names.ts"),
    },
  ],
};
