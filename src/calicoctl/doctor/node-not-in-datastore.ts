// Reports that the datastore has no Node for this host, although the host has an agent or a nodename file.
import type { ClusterFacts, LocalNode } from "./facts.ts";
import { type Finding, formatList, plural } from "./finding.ts";

export function nodeNotInDatastore(cluster: ClusterFacts, { name, evidence, hasAgent }: LocalNode): Finding {
  const names = [...cluster.nodes.keys()];
  return {
    id: "node-not-in-datastore",
    severity: hasAgent ? "error" : "warning",
    object: `Node(${name})`,
    problem: `this host is node ${name}, but the datastore has no Node ${name}`,
    cause:
      "the Node was deleted, the datastore was emptied or replaced, or this command uses another datastore than calico-node",
    evidence: [
      ...evidence,
      names.length === 0
        ? "the datastore has no nodes"
        : `the datastore has ${plural(names.length, "node")}: ${formatList(names)}`,
    ],
    fix: hasAgent
      ? `compare this command's datastore settings with those of calico-node (calicoctl node diags collects them); if they are the same, restart calico-node, which creates the Node again`
      : `if this host is no longer a node: calico-node -uninstall. If it is one: start calico-node, which creates the Node again. If it is a node of another cluster: doctor --no-host`,
    node: name,
  };
}
