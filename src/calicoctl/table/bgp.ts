// Declares `calicoctl bgp …`, which shows the BGP sessions and routes of nodes.
import type { Command, Grammar } from "../../lib/command-line/command.ts";
import { command, CONFIG, FROM, GROUP_FLAGS } from "./flags.ts";

export const bgpPlanGrammar = {
  arguments: [{ name: "NODE", about: "name of the node" }],
  flags: {
    output: {
      type: "text",
      short: "o",
      value: "OUTPUT",
      values: ["ps", "json", "bird"],
      default: "ps",
      about: "output format, where ps is a table and bird the configuration of BIRD",
    },
    ...FROM,
    "router-id": { type: "text", value: "ID", about: "CALICO_ROUTER_ID of the node: an address, or hash" },
    secret: {
      type: "text",
      value: "NAME/KEY",
      isRepeatable: true,
      about: "key of a Secret that the node is known to read; may be repeated",
    },
    ...CONFIG,
  },
} as const satisfies Grammar;

export const bgpGroup: Command = {
  name: "bgp",
  about: "Show the BGP sessions and routes of nodes.",
  flags: GROUP_FLAGS,
  commands: [
    command({
      name: "plan",
      about: "Show the peers of a node and why it has them, the routes it announces and the routes it accepts.",
      usage: [
        "NODE [--output=<OUTPUT>] [--from=<DIR>] [--router-id=<ID>] [--secret=<NAME/KEY>]... [--config=<CONFIG>]",
      ],
      details:
        "The node computes the same plan. Inputs that only the node has are given by flags. Secrets are not read: the plan lists those that are not given by --secret. With the Kubernetes datastore and with --from, it assumes that the node can read them. Workloads that use BGP are not listed as peers.",
      ...bgpPlanGrammar,
      examples: [
        { line: "node1", about: "Sessions, announced routes and filters of node1." },
        { line: "node1 -o bird", about: "The configuration of BIRD on node1." },
      ],
      load: () => import("../commands/bgp-plan.ts"),
    }),
  ],
};
