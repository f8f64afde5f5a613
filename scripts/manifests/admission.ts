// Builds admission policies for rules that the schema of a custom resource definition cannot express. The API server enforces
// them, so they apply to kubectl too: built-in tiers cannot be deleted, a NetworkPolicy is in a tier that its author may use,
// and a NetworkSet has no label that only the system sets (CEL rules of a CRD cannot read labels). Requires Kubernetes 1.30,
// in which these policies are stable.
// https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
import {
  BUILT_IN_TIERS,
  METADATA_ANNOTATION,
  SYSTEM_LABEL_PREFIXES,
  SYSTEM_LABELS,
  TIER_LABEL,
} from "../../src/model/index.ts";
import { type KubernetesObject, NAMESPACE } from "./objects.ts";

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
  /** The requests to which the policy applies; all if absent. */
  readonly matchConditions?: readonly { readonly name: string; readonly expression: string }[];
  /** The policy is evaluated with each object of this kind as `params`, and all must admit the request. */
  readonly params?: { readonly apiVersion: string; readonly kind: string };
  readonly variables?: readonly { readonly name: string; readonly expression: string }[];
  readonly validations: readonly Validation[];
}

/** Returns a policy and its binding. */
export function validating(policy: ValidatingPolicy): readonly KubernetesObject[] {
  const { name, apiGroups = GROUPS, resources, operations, matchConditions, params, variables, validations } = policy;
  const resourceRules = [{ apiGroups, apiVersions: ["*"], operations, resources }];
  return [
    {
      apiVersion: API,
      kind: "ValidatingAdmissionPolicy",
      metadata: { name },
      spec: {
        failurePolicy: "Fail",
        ...(params === undefined ? {} : { paramKind: params }),
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
      spec: {
        policyName: name,
        validationActions: ["Deny"],
        ...(params === undefined ? {} : { paramRef: { selector: {}, parameterNotFoundAction: "Allow" } }),
      },
    },
  ];
}

export function admission(): readonly KubernetesObject[] {
  return [...builtInTiers(), ...tierAccess(), ...systemLabels()];
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

/**
 * Restricts namespaced policies in tiers other than `default`: a user who may write policies of one namespace must not override
 * policies that the administrator created in an earlier tier with a lower `order`, nor change or delete them. The required
 * rights are those of Calico's API server (`get` on the tier, the verb on `tier.networkpolicies` with the name `TIER.*` or the
 * name of the policy). Users who may update the tier need no other rights.
 * https://docs.tigera.io/calico/latest/network-policy/policy-tiers/rbac-tiered-policies
 */
function tierAccess(): readonly KubernetesObject[] {
  // An empty tier is the default tier.
  const tierOf = (object: string): string =>
    `${object}.?spec.tier.orValue('') == '' ? 'default' : string(${object}.spec.tier)`;
  // The API server limits the cost of an expression; more than two of these checks exceed it. So the checks are spread over
  // several variables.
  const rights = (when: "New" | "Old") => {
    const tier = `variables.tier${when}`;
    const mayWrite = (name: string): string =>
      "authorizer.group('projectcalico.org').resource('tier.' + request.resource.resource)" +
      `.namespace(request.namespace).name(${name}).check(request.operation.lowerAscii()).allowed()`;
    const mayOnTier = (group: string, verb: string): string =>
      `authorizer.group(${group}).resource('tiers').name(${tier}).check('${verb}').allowed()`;
    return [
      { name: `mayUpdateTier${when}`, expression: mayOnTier("request.resource.group", "update") },
      { name: `mayGetTier${when}`, expression: mayOnTier("'projectcalico.org'", "get") },
      {
        name: `mayWrite${when}`,
        expression: `${mayWrite(`${tier} + '.*'`)} || ${mayWrite("request.name")}`,
      },
    ];
  };
  const mayUse = (when: "New" | "Old"): Validation => ({
    expression:
      `variables.tier${when} == 'default' || variables.mayUpdateTier${when} || ` +
      `(variables.mayGetTier${when} && variables.mayWrite${when})`,
    messageExpression:
      `'no right to write policies of tier ' + variables.tier${when} + ': needs update on the tier, or get on it and ' + ` +
      `request.operation.lowerAscii() + ' on tier.' + request.resource.resource + ' (group projectcalico.org), name ' + ` +
      `variables.tier${when} + '.*'`,
    reason: "Forbidden",
  });
  return validating({
    name: "calico-tier-access",
    resources: ["networkpolicies", "stagednetworkpolicies"],
    operations: ["CREATE", "UPDATE", "DELETE"],
    // kube-controllers renames old policies (src/controllers/policy-names.ts), and may write all policies of the cluster anyway.
    matchConditions: [
      {
        name: "account",
        expression: `request.userInfo.username != 'system:serviceaccount:${NAMESPACE}:calico-kube-controllers'`,
      },
    ],
    variables: [
      { name: "tierNew", expression: `request.operation == 'DELETE' ? 'default' : (${tierOf("object")})` },
      { name: "tierOld", expression: `request.operation == 'CREATE' ? 'default' : (${tierOf("oldObject")})` },
      ...rights("New"),
      ...rights("Old"),
    ],
    validations: [mayUse("New"), mayUse("Old")],
  });
}

/** calico-ts ignores these labels, but agents of Calico, which may run in the same cluster, do not. */
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

/** Returns a CEL expression for a field that is present and not empty. */
const has = (field: string): string => `has(object.spec.${field}) && size(object.spec.${field}) > 0`;
const add = (path: string, value: string): string => `JSONPatch{op: 'add', path: '${path}', value: ${value}}`;
const unlessSet = (field: string, value: string): string => `${has(field)} ? [] : [${add(`/spec/${field}`, value)}]`;

/**
 * Sets the defaults that calicoctl sets: tier, the label of the tier, and the types according to the rules. A staged Kubernetes
 * policy gets the types that the API server sets for a NetworkPolicy.
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

/**
 * Returns a policy that changes created and updated objects, and its binding. Each expression sees the changes of the
 * expressions before it.
 */
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
