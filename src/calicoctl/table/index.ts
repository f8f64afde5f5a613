// Collects all commands of calicoctl in one table. The code of a command is loaded when the command runs.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { bgpGroup } from "./bgp.ts";
import { clusterGroup } from "./cluster.ts";
import { datastoreGroup } from "./datastore.ts";
import { doctorCommand } from "./doctor.ts";
import { explainCommand } from "./explain.ts";
import { command, GLOBAL_FLAGS, GROUP_FLAGS } from "./flags.ts";
import { ipamGroup } from "./ipam.ts";
import { nodeGroup } from "./node.ts";
import { resourceCommands } from "./resources.ts";

export const rootGrammar = {
  flags: {
    ...GROUP_FLAGS,
    version: { type: "switch", isHidden: true, about: "show which command prints the version" },
  },
} as const satisfies Grammar;

export const ROOT: Command = {
  ...command({
    name: "calicoctl",
    about: "Manage Calico: its resources, addresses, nodes and datastore.",
    ...rootGrammar,
    load: () => import("../commands/root.ts"),
  }),
  style: "docopt",
  exitCodes: { 0: "done", 1: "failed, completely or in part" },
  globalFlags: GLOBAL_FLAGS,
  commands: [
    ...resourceCommands,
    explainCommand,
    doctorCommand,
    bgpGroup,
    ipamGroup,
    nodeGroup,
    datastoreGroup,
    clusterGroup,
  ],
};
