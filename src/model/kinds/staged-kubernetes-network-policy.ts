// Defines the kind StagedKubernetesNetworkPolicy: a Kubernetes NetworkPolicy whose verdicts are reported but not enforced.
import { always, choice, field, integer, intOrString, list, map, network, object, pointer, text } from "./fields.ts";
import { defineKind, type ResourceFor } from "./kind.ts";
import { checkStagedDelete, stagedAction } from "./policy.ts";

const labelSelector = object({
  matchLabels: field(map()),
  matchExpressions: field(
    list(
      object({ key: text(), operator: choice("In", "NotIn", "Exists", "DoesNotExist"), values: field(list(text())) }),
    ),
  ),
});
const port = object({
  protocol: pointer(choice("TCP", "UDP", "SCTP")),
  port: pointer(intOrString()),
  endPort: pointer(integer(1, 65535)),
});
const peer = object({
  podSelector: pointer(labelSelector),
  namespaceSelector: pointer(labelSelector),
  ipBlock: pointer(object({ cidr: network(), except: field(list(network())) })),
});

const spec = object({
  stagedAction: stagedAction(),
  podSelector: always(labelSelector, {}),
  ingress: field(list(object({ ports: field(list(port)), from: field(list(peer)) }))),
  egress: field(list(object({ ports: field(list(port)), to: field(list(peer)) }))),
  policyTypes: field(list(text(), 2)),
});
export type StagedKubernetesNetworkPolicyResource = ResourceFor<"StagedKubernetesNetworkPolicy", typeof spec>;

export default defineKind({
  kind: "StagedKubernetesNetworkPolicy",
  description: "A Kubernetes NetworkPolicy whose verdicts are reported, but not enforced.",
  spec,
  rules: (staged, context) => {
    if (staged.stagedAction !== "Delete") return;
    const { podSelector, ...rest } = staged;
    checkStagedDelete(Object.keys(podSelector).length === 0 ? rest : staged, context);
  },
});
