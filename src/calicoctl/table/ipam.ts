// `calicoctl ipam …`: one line per command, each in a file of its own under commands/.
import type { Group } from "../command.ts";

export const ipamGroup: Group = {
  name: "ipam",
  about: "Show and repair which addresses are in use.",
  commands: [],
};
