// Everything calicoctl can be asked, as one tree. A command's code is loaded when it is the one.
import type { Group } from "../command.ts";
import { bgpGroup } from "./bgp.ts";
import { clusterGroup } from "./cluster.ts";
import { datastoreGroup } from "./datastore.ts";
import { doctorCommand } from "./doctor.ts";
import { explainCommand } from "./explain.ts";
import { ipamGroup } from "./ipam.ts";
import { nodeGroup } from "./node.ts";
import { resourceCommands } from "./resources.ts";

export const ROOT: Group = {
  name: "calicoctl",
  about: "Manage Calico: its resources, addresses, nodes and datastore.",
  commands: [
    ...resourceCommands,
    explainCommand,
    doctorCommand,
    bgpGroup,
    ipamGroup,
    nodeGroup,
    datastoreGroup,
    clusterGroup,
  ],
};
