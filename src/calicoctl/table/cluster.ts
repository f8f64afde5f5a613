// Declares `calicoctl cluster …`.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { command, CONFIG, GROUP_FLAGS } from "./flags.ts";

export const clusterDiagsGrammar = {
  flags: {
    since: { type: "text", value: "TIME", defaultText: "all logs", about: "age of the oldest logs, such as 30m or 2h" },
    "max-logs": {
      type: "number",
      value: "N",
      min: 1,
      max: Number.POSITIVE_INFINITY,
      default: 5,
      about: "number of log files per kind of workload",
    },
    "max-parallelism": {
      type: "number",
      value: "N",
      min: 1,
      max: Number.POSITIVE_INFINITY,
      default: 10,
      about: "number of concurrent commands",
    },
    "focus-nodes": {
      type: "text",
      value: "NODES",
      about: "names of nodes, separated by commas, whose logs are collected first",
    },
    "skip-temp-dir-cleanup": { type: "switch", about: "keep the collected files as well as the archive" },
    ...CONFIG,
  },
} as const satisfies Grammar;

export const clusterGroup: Command = {
  name: "cluster",
  about: "Collect diagnostics of the whole cluster.",
  flags: GROUP_FLAGS,
  commands: [
    command({
      name: "diags",
      about: "Collect diagnostics of the cluster in one archive; needs kubectl.",
      usage: [
        "[--since=<TIME>] [--max-logs=<N>] [--max-parallelism=<N>] [--focus-nodes=<NODES>] [--skip-temp-dir-cleanup] [--config=<CONFIG>]",
      ],
      ...clusterDiagsGrammar,
      examples: [{ line: "--since 1h --focus-nodes node1,node2", about: "The last hour, node1 and node2 first." }],
      load: () => import("../commands/cluster-diags.ts"),
    }),
  ],
};
