// What is wrong here?
import type { Command } from "../command.ts";
import { CONFIG } from "./flags.ts";

export const doctorCommand: Command = {
  name: "doctor",
  about: "Find what is wrong with the cluster and this host, with cause, evidence and fix.",
  usage: ["[--output=<OUTPUT>] [--no-host] [--from=<DIR>] [--config=<CONFIG>]"],
  flags: [
    { name: "output", short: "o", value: "OUTPUT", about: "text (default) or json" },
    { name: "no-host", about: "look at the datastore only, also where this host is a node" },
    { name: "from", value: "DIR", about: "work offline on the YAML and JSON files of this folder" },
    CONFIG,
  ],
  words: { least: 0, most: 0 },
  details: `It reads the datastore and, on a node, the host on which it runs; it changes nothing. Examining the host needs
root. The first line names the hosts that were examined.

Exit code: 0 nothing found, 3 something found, 1 some or all checks could not run, 2 wrong usage.`,
  load: () => import("../commands/doctor.ts"),
};
