// `calicoctl bgp …`: what nodes do in BGP.
import type { Group } from "../command.ts";
import { CONFIG } from "./flags.ts";

export const bgpGroup: Group = {
  name: "bgp",
  about: "See what nodes do in BGP.",
  commands: [
    {
      name: "plan",
      about: "Show who a node peers with and why, what it announces and what it lets into its kernel.",
      usage: ["NODE [--output=<OUTPUT>] [--from=<DIR>] [--router-id=<ID>] [--secret=<NAME/KEY>…] [--config=<CONFIG>]"],
      flags: [
        {
          name: "output",
          short: "o",
          value: "OUTPUT",
          about: "ps (a table, the default), json, or bird for BIRD's configuration",
        },
        { name: "from", value: "DIR", about: "compute from the resources in these YAML files, not from a datastore" },
        { name: "router-id", value: "ID", about: "what CALICO_ROUTER_ID is on the node: an address, or `hash`" },
        { name: "secret", value: "NAME/KEY", repeatable: true, about: "take this secret's key as known to the node" },
        CONFIG,
      ],
      words: { least: 1, most: 1 },
      details:
        "The plan is the one the node itself computes. What only the node knows is given by flags: without them passwords are shown as missing, and workloads that speak BGP are not among the peers.",
      load: () => import("../commands/bgp-plan.ts"),
    },
  ],
};
