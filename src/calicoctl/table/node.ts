// `calicoctl node …`: one line per command, each in a file of its own under commands/.
import type { Group } from "../command.ts";

export const nodeGroup: Group = {
  name: "node",
  about: "Run and inspect the node agent of this machine.",
  commands: [],
};
