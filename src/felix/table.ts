// The command line of calico-felix.
import { type Command, commandsWith, type Grammar } from "../lib/command-line/command.ts";

export const felixGrammar = {
  flags: {
    "config-file": {
      type: "text",
      short: "c",
      value: "FILE",
      default: "/etc/calico/felix.cfg",
      about: "file with settings; it need not exist",
    },
    dump: {
      type: "switch",
      about: "print the messages for the dataplane, one line of JSON each, and program nothing",
    },
    version: { type: "switch", about: "print the version" },
  },
} as const satisfies Grammar;

export const FELIX: Command = commandsWith({})({
  name: "calico-felix",
  about: "Run Felix, the agent that programs policy and routes on this host.",
  ...felixGrammar,
  exitCodes: {
    1: "failed, or stopped by a signal",
    2: "wrong usage, or the shutdown took too long",
    129: "restart requested, such as for a changed setting",
  },
  examples: [{ line: "--dump", about: "Print what would be programmed." }],
  load: () => import("./program.ts"),
});
