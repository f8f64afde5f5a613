// Policies, sets and host endpoints that agents do not use as they are written: some part of them makes no sense, and was
// replaced by what lets nothing more pass. Agents say so in their logs, where nobody looks first.
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
  "NetworkSet",
  "GlobalNetworkSet",
  "HostEndpoint",
] as const satisfies readonly KindName[];

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
  ["NetworkPolicy", () => policyProcessor],
  ["GlobalNetworkPolicy", () => policyProcessor],
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
    const where = namespace === undefined ? "" : ` -n ${namespace}`;
    const more = problems.length - MOST_EVIDENCE;
    yield {
      id: "not-used",
      severity: isGone ? "error" : "warning",
      object: `${kind}(${namespace === undefined ? "" : `${namespace}/`}${name})`,
      problem: isGone ? "no agent uses it: nothing of it is enforced" : "agents do not use it as it is written",
      cause: `${plural(problems.length, "part")} of it ${problems.length === 1 ? "makes" : "make"} no sense`,
      evidence: [...problems.slice(0, MOST_EVIDENCE), ...(more > 0 ? [`and ${more} more`] : [])],
      fix: `calicoctl get ${kind.toLowerCase()} ${name}${where} -o yaml, correct it, and calicoctl apply: that refuses what makes no sense`,
    };
  }
}
