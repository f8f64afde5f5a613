// Finds policies, sets and host endpoints of which Felix ignores or replaces an invalid part, so that they allow no more
// than they were meant to. Felix also logs a warning for each.
import {
  globalNetworkSetProcessor,
  hostEndpointProcessor,
  type KindName,
  networkSetProcessor,
  policyProcessor,
  type Resource,
  type UpdateProcessor,
} from "../../model/index.ts";
import type { ClusterFacts } from "./facts.ts";
import { type Finding, plural } from "./finding.ts";

export const JUDGED_KINDS = [
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
  "StagedKubernetesNetworkPolicy",
  "NetworkSet",
  "GlobalNetworkSet",
  "HostEndpoint",
] as const satisfies readonly KindName[];

/** Kinds of Kubernetes that Felix reads where Kubernetes is the datastore, and their names for kubectl. */
const KUBECTL_NAMES: ReadonlyMap<KindName, string> = new Map<KindName, string>([
  ["KubernetesNetworkPolicy", "networkpolicy"],
  ["KubernetesClusterNetworkPolicy", "clusternetworkpolicy"],
]);
export const JUDGED_KUBERNETES_KINDS: readonly KindName[] = [...KUBECTL_NAMES.keys()];

/** A resource, and what is wrong with it. */
export interface NotUsed {
  readonly kind: KindName;
  readonly name: string;
  readonly namespace?: string;
  readonly problems: readonly string[];
  /** Nothing of it is used. */
  readonly isGone: boolean;
}

const PROCESSORS: ReadonlyMap<KindName, () => UpdateProcessor> = new Map<KindName, () => UpdateProcessor>([
  ...(
    [
      "NetworkPolicy",
      "GlobalNetworkPolicy",
      "StagedNetworkPolicy",
      "StagedGlobalNetworkPolicy",
      "StagedKubernetesNetworkPolicy",
      "KubernetesNetworkPolicy",
      "KubernetesClusterNetworkPolicy",
    ] as const
  ).map((kind) => [kind, () => policyProcessor] as const),
  ["NetworkSet", () => networkSetProcessor],
  ["GlobalNetworkSet", globalNetworkSetProcessor],
  ["HostEndpoint", hostEndpointProcessor],
]);

/** As an agent reads them, each by itself. */
export function judge(resources: readonly Resource[]): readonly NotUsed[] {
  return resources.flatMap((value) => {
    const { kind, metadata } = value;
    const processor = PROCESSORS.get(kind)?.();
    if (processor === undefined) return [];
    const where = metadata.namespace === undefined ? {} : { namespace: metadata.namespace };
    const problems: string[] = [];
    const key = { type: "resource", kind, name: metadata.name, ...where } as const;
    const told = processor.process({ key, value }, (problem) => problems.push(problem));
    if (problems.length === 0) return [];
    return [
      { kind, name: metadata.name, ...where, problems, isGone: told.every((update) => update.value === undefined) },
    ];
  });
}

const MOST_EVIDENCE = 5;

export function* notUsed(cluster: ClusterFacts): Generator<Finding> {
  for (const { kind, name, namespace, problems, isGone } of cluster.notUsed) {
    const id = `${namespace === undefined ? "" : `${namespace}/`}${name}`;
    const more = problems.length - MOST_EVIDENCE;
    yield {
      id: "not-used",
      severity: isGone ? "error" : "warning",
      object: `${kind}(${id})`,
      problem: isGone
        ? `${titleOf(kind)} ${id} is invalid: nothing of it is enforced`
        : `${titleOf(kind)} ${id} is not enforced as it is written`,
      cause: `${plural(problems.length, "part")} of it ${problems.length === 1 ? "is" : "are"} invalid; Felix ignores or replaces ${problems.length === 1 ? "it" : "them"} so that no more traffic is allowed`,
      evidence: [...problems.slice(0, MOST_EVIDENCE), ...(more > 0 ? [`and ${more} more`] : [])],
      fix: fixFor(kind, name, namespace),
    };
  }
}

const titleOf = (kind: KindName): string =>
  KUBECTL_NAMES.has(kind) ? kind.replace("Kubernetes", "Kubernetes ") : kind;

function fixFor(kind: KindName, name: string, namespace: string | undefined): string {
  const where = namespace === undefined ? "" : ` -n ${namespace}`;
  const kubectl = KUBECTL_NAMES.get(kind);
  return kubectl === undefined
    ? `calicoctl get ${kind.toLowerCase()} ${name}${where} -o yaml, correct it, and calicoctl apply, which rejects invalid values`
    : `kubectl edit ${kubectl} ${name}${where}: correct these fields, or express them in a way that calico-ts supports`;
}
