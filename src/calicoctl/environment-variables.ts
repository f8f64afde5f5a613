// Declares the environment variables of calicoctl, besides those of the datastore (DATASTORE_VARIABLES).
import type { EnvironmentTable } from "../lib/environment-table.ts";

export const CALICOCTL_VARIABLES: EnvironmentTable = {
  NODENAME: { meaning: "Name of the node for `node run`, if `--name` is absent." },
  CALICO_NODENAME_FILE: {
    meaning: "File with the name of this node, for `doctor`.",
    default: "/var/lib/calico/nodename",
  },
  CALICO_CTL_CONTAINER: { meaning: "If set, `node run` loads no kernel modules and sets no sysctls." },
  CALICO_ROUTER_ID: { meaning: "BGP router ID for `bgp plan`, if `--router-id` is absent." },
  CALICO_ADVERTISE_CLUSTER_IPS: { meaning: "Cluster IP ranges for `bgp plan`." },
  NO_COLOR: { meaning: "If set, output has no colours." },
  TERM: { meaning: "`dumb`: output has no colours." },
  PATH: { meaning: "Folders of the programs that calicoctl runs." },
};
