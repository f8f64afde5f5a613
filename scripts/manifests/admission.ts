// What the definitions of our resources cannot say by their schema, said to the API server itself, so that it holds for
// kubectl too: built-in tiers stay. Needs Kubernetes 1.30, which has these rules for all.
// https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
import { BUILT_IN_TIERS, TIER_LABEL } from "../../src/model/index.ts";
import type { KubernetesObject } from "./objects.ts";

const API = "admissionregistration.k8s.io/v1";
const GROUPS = ["crd.projectcalico.org", "projectcalico.org"];
const name = "calico-built-in-tiers";

export function admission(): readonly KubernetesObject[] {
  const names = Object.keys(BUILT_IN_TIERS).map((tier) => `'${tier}'`);
  return [
    {
      apiVersion: API,
      kind: "ValidatingAdmissionPolicy",
      metadata: { name },
      spec: {
        failurePolicy: "Fail",
        matchConstraints: {
          resourceRules: [{ apiGroups: GROUPS, apiVersions: ["*"], operations: ["DELETE"], resources: ["tiers"] }],
        },
        validations: [
          {
            expression: `!(oldObject.metadata.name in [${names.join(", ")}])`,
            messageExpression: "'tier ' + oldObject.metadata.name + ' is built in and cannot be deleted'",
            reason: "Forbidden",
          },
        ],
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
