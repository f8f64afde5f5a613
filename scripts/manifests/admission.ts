// What the definitions of our resources cannot say by their schema, said to the API server itself, so that it holds for
// kubectl too: built-in tiers stay. Needs Kubernetes 1.30, which has these rules for all.
// https://kubernetes.io/docs/reference/access-authn-authz/validating-admission-policy/
import { BUILT_IN_TIERS } from "../../src/model/index.ts";
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

const DEFAULTS = "calico-policy-defaults";
const POLICIES = ["networkpolicies", "globalnetworkpolicies", "stagednetworkpolicies", "stagedglobalnetworkpolicies"];
const has = (field: string): string => `has(object.spec.${field}) && size(object.spec.${field}) > 0`;

/** Fills in what calicoctl would: a policy without a tier is in the default one, and has the types of its rules. */
export function policyDefaults(): readonly KubernetesObject[] {
  const types = `${has("egress")} ? (${has("ingress")} ? ['Ingress', 'Egress'] : ['Egress']) : ['Ingress']`;
  const patch = (field: string, value: string) =>
    `${has(field)} ? [] : [JSONPatch{op: 'add', path: '/spec/${field}', value: ${value}}]`;
  const mutation = (expression: string) => ({ patchType: "JSONPatch", jsonPatch: { expression } });
  return [
    {
      apiVersion: API,
      kind: "MutatingAdmissionPolicy",
      metadata: { name: DEFAULTS },
      spec: {
        failurePolicy: "Ignore",
        reinvocationPolicy: "Never",
        matchConstraints: {
          resourceRules: [
            { apiGroups: GROUPS, apiVersions: ["*"], operations: ["CREATE", "UPDATE"], resources: POLICIES },
          ],
        },
        matchConditions: [{ name: "has-a-spec", expression: "has(object.spec)" }],
        mutations: [mutation(patch("tier", "'default'")), mutation(patch("types", types))],
      },
    },
    {
      apiVersion: API,
      kind: "MutatingAdmissionPolicyBinding",
      metadata: { name: DEFAULTS },
      spec: { policyName: DEFAULTS },
    },
  ];
}
