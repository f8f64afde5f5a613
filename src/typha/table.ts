// Declares the command line of calico-typha.
import { type Command, commandsWith, type Grammar } from "../lib/command-line/command.ts";

export const typhaGrammar = {
  flags: {
    "config-file": {
      type: "text",
      short: "c",
      value: "FILE",
      default: "/etc/calico/typha.cfg",
      about: "optional file with settings",
    },
    version: { type: "switch", about: "print the version" },
  },
} as const satisfies Grammar;

const command = commandsWith({});

export const TYPHA: Command = {
  ...command({
    name: "calico-typha",
    about: "Run Typha, which distributes the contents of the datastore to many agents.",
    usage: ["[-c <FILE> | --config-file=<FILE>]", "version"],
    ...typhaGrammar,
    exitCodes: { 0: "stopped by a signal" },
    load: () => import("./program.ts"),
  }),
  commands: [
    command({
      name: "version",
      about: "Print the version.",
      load: async () => ({ run: (await import("./program.ts")).printVersion }),
    }),
  ],
};
