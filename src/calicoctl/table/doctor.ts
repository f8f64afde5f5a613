// Declares `calicoctl doctor`.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { CONFIG, command, FROM, OUTPUT } from "./flags.ts";

export const doctorGrammar = {
  flags: {
    ...OUTPUT,
    "no-host": { type: "switch", about: "examine only the datastore, also on a node" },
    ...FROM,
    ...CONFIG,
  },
} as const satisfies Grammar;

export const doctorCommand: Command = command({
  name: "doctor",
  about: "Find problems of the cluster and of this host, with cause, evidence and fix.",
  usage: ["[--output=<OUTPUT>] [--no-host] [--from=<DIR>] [--config=<CONFIG>]"],
  ...doctorGrammar,
  details: `Doctor examines the datastore and, on a node, the host on which it runs; it changes nothing. Examining the host
requires root. The first line lists what was examined.`,
  exitCodes: { 0: "no findings", 1: "some or all checks could not run", 3: "findings" },
  examples: [
    { line: "", about: "Examine the cluster and this host." },
    { line: "--from backup/", about: "Examine the resources in a directory." },
  ],
  load: () => import("../commands/doctor.ts"),
});
