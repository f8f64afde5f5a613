// Finds policies, network sets and host endpoints with invalid parts, which Felix ignores or replaces so that no additional
// traffic is allowed. Felix also logs a warning for each.
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

export const CHECKED_KINDS = [
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
  "StagedKubernetesNetworkPolicy",
  "NetworkSet",
  "GlobalNetworkSet",
  "HostEndpoint",
] as const satisfies readonly KindName[];

/** Kubernetes kinds that Felix reads if the Kubernetes API is the datastore, and their names for kubectl. */
const KUBECTL_NAMES: ReadonlyMap<KindName, string> = new Map<KindName, string>([
  ["KubernetesNetworkPolicy", "networkpolicy"],
  ["KubernetesClusterNetworkPolicy", "clusternetworkpolicy"],
]);
export const CHECKED_KUBERNETES_KINDS: readonly KindName[] = [...KUBECTL_NAMES.keys()];

/** A resource with invalid parts. */
export interface NotUsed {
  readonly kind: KindName;
  readonly name: string;
  readonly namespace?: string;
  readonly problems: readonly string[];
  /** Felix ignores the whole resource. */
  readonly isIgnored: boolean;
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

/** Processes each resource as Felix does, and returns those with problems. */
export function findNotUsed(resources: readonly Resource[]): readonly NotUsed[] {
  return resources.flatMap((value) => {
    const { kind, metadata } = value;
    const processor = PROCESSORS.get(kind)?.();
    if (processor === undefined) return [];
    const where = metadata.namespace === undefined ? {} : { namespace: metadata.namespace };
    const problems: string[] = [];
    const key = { type: "resource", kind, name: metadata.name, ...where } as const;
    const updates = processor.process({ key, value }, (problem) => problems.push(problem));
    if (problems.length === 0) return [];
    return [
      { kind, name: metadata.name, ...where, problems, isIgnored: updates.every(({ value }) => value === undefined) },
    ];
  });
}

const MAX_EVIDENCE = 5;

export function* notUsed(cluster: ClusterFacts): Generator<Finding> {
  for (const { kind, name, namespace, problems, isIgnored } of cluster.notUsed) {
    const id = `${namespace === undefined ? "" : `${namespace}/`}${name}`;
    const more = problems.length - MAX_EVIDENCE;
    yield {
      id: "not-used",
      severity: isIgnored ? "error" : "warning",
      object: `${kind}(${id})`,
      problem: isIgnored
        ? `${titleOf(kind)} ${id} is invalid: no part of it is enforced`
        : `${titleOf(kind)} ${id} is not enforced as it is written`,
      cause: `${plural(problems.length, "part")} of it ${problems.length === 1 ? "is" : "are"} invalid; Felix ignores or replaces ${problems.length === 1 ? "it" : "them"} so that no additional traffic is allowed`,
      evidence: [...problems.slice(0, MAX_EVIDENCE), ...(more > 0 ? [`and ${more} more`] : [])],
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
