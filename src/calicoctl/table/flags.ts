// Declares the flags that several commands of calicoctl share, and the types of a call with these flags.
import { type Call as AnyCall, commandsWith, type FlagTable, type Grammar } from "../../lib/command-line/command.ts";
import { Failure } from "../command-line/failure.ts";
import { LOG_LEVELS, parseLogLevel } from "../command-line/log-level.ts";

export const GLOBAL_FLAGS = {
  "log-level": {
    type: "text",
    short: "l",
    value: "LEVEL",
    values: LOG_LEVELS,
    isCheckedByCommand: true,
    check: checkLogLevel,
    default: "panic",
    about: "log to standard error from this level on",
  },
  context: { type: "text", value: "CONTEXT", about: "context of the kubeconfig to use" },
  "allow-version-mismatch": {
    type: "switch",
    about: "continue although this program and the cluster have different versions",
  },
} as const satisfies FlagTable;

/** The message, its stream and the exit code 1 are those of Calico. */
function checkLogLevel(level: string): void {
  if (parseLogLevel(level) === undefined)
    throw new Failure(`Unknown log level: ${level}, expected one of: \n${LOG_LEVELS.join(", ")}.`, { stream: "out" });
}

export const command = commandsWith(GLOBAL_FLAGS);

export type Call<G extends Grammar> = AnyCall<G, typeof GLOBAL_FLAGS>;

export const CONFIG = {
  config: {
    type: "text",
    short: "c",
    value: "CONFIG",
    defaultText: "/etc/calico/calicoctl.cfg; without that file the environment",
    about: "file with the connection to the datastore",
  },
} as const satisfies FlagTable;

/** The part of a call that is needed to open the datastore. */
export type DatastoreCall = Pick<Call<{ readonly flags: typeof CONFIG }>, "flags" | "io">;

export const NAMESPACE = {
  namespace: {
    type: "text",
    short: "n",
    value: "NS",
    defaultText: "default",
    about: "namespace of namespaced resources that do not specify one",
  },
} as const satisfies FlagTable;

const FILENAME = {
  type: "text",
  short: "f",
  value: "FILENAME",
  about: "file or directory with resources in YAML or JSON, or - for standard input",
} as const;
const OTHER_INPUT = {
  recursive: { type: "switch", short: "R", about: "also read the subdirectories of a directory" },
  "skip-empty": { type: "switch", about: "accept files and directories without resources" },
} as const satisfies FlagTable;

/** Flags of commands that can read resources from files. */
export const INPUT = { filename: FILENAME, ...OTHER_INPUT } as const satisfies FlagTable;
export const REQUIRED_INPUT = {
  filename: { ...FILENAME, isRequired: true },
  ...OTHER_INPUT,
} as const satisfies FlagTable;

/** The part of a call that is needed to read resources. */
export type InputCall = Pick<Call<{ readonly flags: typeof INPUT }>, "flags" | "io">;

export const OUTPUT = {
  output: {
    type: "text",
    short: "o",
    value: "OUTPUT",
    values: ["text", "json"],
    default: "text",
    about: "output format",
  },
} as const satisfies FlagTable;

export const FROM = {
  from: {
    type: "text",
    value: "DIR",
    about: "work offline on the YAML and JSON files of this directory, without a datastore",
  },
} as const satisfies FlagTable;

/** As in Calico, `--config` is also accepted before the name of a subcommand. */
export const GROUP_FLAGS = { config: { ...CONFIG.config, isHidden: true } } as const satisfies FlagTable;
