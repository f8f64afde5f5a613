// Rules that the schema of a custom resource definition cannot express, enforced by the API server, so that they hold for
// kubectl too: built-in tiers cannot be deleted, and a NetworkSet carries no label that only the system sets (a definition's
// own CEL rules cannot read labels). Needs Kubernetes 1.30, where these policies are stable.
// https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
import {
  BUILT_IN_TIERS,
  METADATA_ANNOTATION,
  SYSTEM_LABEL_PREFIXES,
  SYSTEM_LABELS,
  TIER_LABEL,
} from "../../src/model/index.ts";
import type { KubernetesObject } from "./objects.ts";

const API = "admissionregistration.k8s.io/v1";
const GROUPS = ["crd.projectcalico.org", "projectcalico.org"];

export interface Validation {
  readonly expression: string;
  readonly message?: string;
  readonly messageExpression?: string;
  readonly reason: "Forbidden" | "Invalid";
}

export interface ValidatingPolicy {
  readonly name: string;
  readonly apiGroups?: readonly string[];
  readonly resources: readonly string[];
  readonly operations: readonly string[];
  /** Requests that the policy is for; all if absent. */
  readonly matchConditions?: readonly { readonly name: string; readonly expression: string }[];
  readonly variables?: readonly { readonly name: string; readonly expression: string }[];
  readonly validations: readonly Validation[];
}

/** A policy and the binding that puts it in force. */
export function validating(policy: ValidatingPolicy): readonly KubernetesObject[] {
  const { name, apiGroups = GROUPS, resources, operations, matchConditions, variables, validations } = policy;
  const resourceRules = [{ apiGroups, apiVersions: ["*"], operations, resources }];
  return [
    {
      apiVersion: API,
      kind: "ValidatingAdmissionPolicy",
      metadata: { name },
      spec: {
        failurePolicy: "Fail",
        matchConstraints: { resourceRules },
        ...(matchConditions === undefined ? {} : { matchConditions }),
        ...(variables === undefined ? {} : { variables }),
        validations,
      },
    },
    {
      apiVersion: API,
      kind: "ValidatingAdmissionPolicyBinding",
      metadata: { name },
      spec: { policyName: name, validationActions: ["Deny"] },
    },
  ];
}

export function admission(): readonly KubernetesObject[] {
  return [...builtInTiers(), ...systemLabels()];
}

export const texts = (words: readonly string[]): string => `[${words.map((word) => `'${word}'`).join(", ")}]`;

const builtInTiers = (): readonly KubernetesObject[] =>
  validating({
    name: "calico-built-in-tiers",
    resources: ["tiers"],
    operations: ["DELETE"],
    validations: [
      {
        expression: `!(oldObject.metadata.name in ${texts(Object.keys(BUILT_IN_TIERS))})`,
        messageExpression: "'tier ' + oldObject.metadata.name + ' is built in and cannot be deleted'",
        reason: "Forbidden",
      },
    ],
  });

/** calico-ts ignores these labels. Calico's own agents, which may share the cluster, do not. */
function systemLabels(): readonly KubernetesObject[] {
  // An object that is being deleted must stay writable: its finalizers are removed by updates.
  const unlessDeleted = (rule: string): string => `has(object.metadata.deletionTimestamp) || ${rule}`;
  const isSystem = [
    `label in ${texts(SYSTEM_LABELS)}`,
    ...SYSTEM_LABEL_PREFIXES.map((prefix) => `label.startsWith('${prefix}')`),
  ].join(" || ");
  const literal = (text: string): string => text.replaceAll(".", "[.]");
  const quoted = [...SYSTEM_LABELS.map((label) => `${literal(label)}"`), ...SYSTEM_LABEL_PREFIXES.map(literal)];
  // Letters and the characters . and / as JSON escapes, which no program writes.
  const escapes = String.raw`\\\\u00(2[eEfF]|[4-7])`;
  const message = `labels ${SYSTEM_LABELS.join(", ")} and labels that begin with ${SYSTEM_LABEL_PREFIXES.join(" or ")} are set by the system`;
  return validating({
    name: "calico-system-labels",
    resources: ["networksets"],
    operations: ["CREATE", "UPDATE"],
    validations: [
      {
        expression: unlessDeleted(`!has(object.metadata.labels) || object.metadata.labels.all(label, !(${isSystem}))`),
        message,
        reason: "Invalid",
      },
      {
        expression: unlessDeleted(
          `!has(object.metadata.annotations) || object.metadata.annotations.all(name, name != '${METADATA_ANNOTATION}' || ` +
            `!object.metadata.annotations[name].matches('"(${quoted.join("|")})|${escapes}'))`,
        ),
        message: `annotation ${METADATA_ANNOTATION}: ${message}`,
        reason: "Invalid",
      },
    ],
  });
}

/** Expressions in CEL. A field that is present and not empty. */
const has = (field: string): string => `has(object.spec.${field}) && size(object.spec.${field}) > 0`;
const add = (path: string, value: string): string => `JSONPatch{op: 'add', path: '${path}', value: ${value}}`;
const unlessSet = (field: string, value: string): string => `${has(field)} ? [] : [${add(`/spec/${field}`, value)}]`;

/**
 * Defaults that calicoctl sets: tier, the tier's label, and the types that follow from the rules. A staged Kubernetes policy
 * gets the types that the API server gives a NetworkPolicy.
 */
export function policyDefaults(): readonly KubernetesObject[] {
  const types = `${has("egress")} ? (${has("ingress")} ? ['Ingress', 'Egress'] : ['Egress']) : ['Ingress']`;
  const kubernetesTypes = `${has("egress")} ? ['Ingress', 'Egress'] : ['Ingress']`;
  return [
    ...defaults(
      "calico-policy-defaults",
      ["networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"],
      [unlessSet("tier", "'default'"), tierLabel(), unlessSet("types", types)],
    ),
    ...defaults(
      "calico-staged-kubernetes-policy-defaults",
      ["stagedkubernetesnetworkpolicies"],
      [unlessSet("policyTypes", kubernetesTypes)],
    ),
  ];
}

/** The label always equals the tier. `~1` is a slash in a JSON pointer (RFC 6901). */
function tierLabel(): string {
  const label = add(
    `/metadata/labels/${TIER_LABEL.replace("/", "~1")}`,
    `${has("tier")} ? object.spec.tier : 'default'`,
  );
  return `has(object.metadata.labels) ? [${label}] : [${add("/metadata/labels", "{}")}, ${label}]`;
}

/** A policy that changes new and updated objects, and its binding. Later expressions see the changes of earlier ones. */
function defaults(
  policyName: string,
  resources: readonly string[],
  expressions: readonly string[],
): readonly KubernetesObject[] {
  return [
    {
      apiVersion: API,
      kind: "MutatingAdmissionPolicy",
      metadata: { name: policyName },
      spec: {
        failurePolicy: "Ignore",
        reinvocationPolicy: "Never",
        matchConstraints: {
          resourceRules: [{ apiGroups: GROUPS, apiVersions: ["*"], operations: ["CREATE", "UPDATE"], resources }],
        },
        matchConditions: [{ name: "has-a-spec", expression: "has(object.spec)" }],
        mutations: expressions.map((expression) => ({ patchType: "JSONPatch", jsonPatch: { expression } })),
      },
    },
    {
      apiVersion: API,
      kind: "MutatingAdmissionPolicyBinding",
      metadata: { name: policyName },
      spec: { policyName },
    },
  ];
}
