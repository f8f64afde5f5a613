// `calicoctl cluster …`.
import type { Group } from "../command.ts";
import { CONFIG } from "./flags.ts";

export const clusterGroup: Group = {
  name: "cluster",
  about: "Look at the whole cluster.",
  commands: [
    {
      name: "diags",
      about: "Collect what is needed to find a fault into one archive; needs kubectl.",
      usage: [
        "[--since=<TIME>] [--max-logs=<N>] [--max-parallelism=<N>] [--focus-nodes=<NODES>] [--skip-temp-dir-cleanup] [--config=<CONFIG>]",
      ],
      flags: [
        { name: "since", value: "TIME", about: "logs not older than this: a number and s, m or h" },
        { name: "max-logs", value: "N", about: "log files per kind of workload; 5 unless told" },
        { name: "max-parallelism", value: "N", about: "commands at a time; 10 unless told" },
        { name: "focus-nodes", value: "NODES", about: "names, comma between, whose logs are collected first" },
        { name: "skip-temp-dir-cleanup", about: "leave the collected files beside the archive" },
        CONFIG,
      ],
      words: { least: 0, most: 0 },
      load: () => import("../commands/cluster-diags.ts"),
    },
  ],
};
