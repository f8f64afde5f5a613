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
  details: `It reads the datastore and, on a node, the host; it changes nothing. As root it sees more of the host: packet
filter rules and BIRD's sessions.

Exit code: 0 nothing found, 3 something found, 1 could not look, 2 wrong usage.`,
  load: () => import("../commands/doctor.ts"),
};
