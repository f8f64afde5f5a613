// Limits the accounts of calico-node and of the CNI plugin to objects of the node on which they run. RBAC cannot express this,
// because all nodes share one account. The API server gets the node from the token: since Kubernetes 1.30 the token of a pod
// contains the pod's node, since 1.31 a token can be bound to a node (src/cni/kubernetes/token-refresh.ts). A token without a
// node may write none of the objects in this file. test/kubernetes/own-node.test.ts tests this with real requests.
// https://kubernetes.io/docs/reference/access-authn-authz/service-accounts-admin/#schema-for-service-account-private-claims
import { BUILT_IN_TIERS } from "../../src/model/index.ts";
import { texts, type Validation, validating, type ValidatingPolicy } from "./admission.ts";
import { prefixVariables } from "./cel-prefix.ts";
import { type KubernetesObject, NAMESPACE } from "./objects.ts";

const CLAIM = "authentication.kubernetes.io/node-name";
const user = (account: string): string => `system:serviceaccount:${NAMESPACE}:${account}`;
const onlyFor = (...accounts: readonly string[]): Pick<ValidatingPolicy, "matchConditions"> => ({
  matchConditions: [{ name: "account", expression: `request.userInfo.username in ${texts(accounts.map(user))}` }],
});
const OF_A_NODE = onlyFor("calico-node", "calico-cni-plugin");

/** The node in the token, or an empty text. */
const NODE = {
  name: "node",
  expression: `has(request.userInfo.extra) && '${CLAIM}' in request.userInfo.extra ? request.userInfo.extra['${CLAIM}'][0] : ''`,
};
const namesNode: Validation = {
  expression: "variables.node != ''",
  message: "the token names no node: it must be bound to a pod (Kubernetes 1.30) or to a node (Kubernetes 1.31)",
  reason: "Forbidden",
};
const forbidden = (expression: string, message: string): Validation => ({ expression, message, reason: "Forbidden" });

/** Builds CEL expressions. */
const all = (...conditions: readonly string[]): string => conditions.map((condition) => `(${condition})`).join(" && ");
const any = (...conditions: readonly string[]): string => conditions.map((condition) => `(${condition})`).join(" || ");
const isOperation = (...operations: readonly string[]): string => `request.operation in ${texts(operations)}`;

/** For manifests with the Kubernetes datastore. */
export function ownNode(): readonly KubernetesObject[] {
  return [...ownNodeStatus(), ...ownResources(), ...ownBlocks(), ...poolBlocks(), ...ownToken(), ...onlyDefaults()];
}

/** Annotations that the accounts write: those of src/model/kubernetes/node.ts, and those of podPatch in pod.ts. */
const IS_NODE_ANNOTATION = "name.startsWith('projectcalico.org/')";
const IS_POD_ANNOTATION = `name in ${texts(["podIP", "podIPs", "containerID"].map((name) => `cni.projectcalico.org/${name}`))}`;

/**
 * Limits changes of the status and annotations of Nodes and Pods. A request for the status may also change metadata: labels of
 * a Node can attract pods, labels of a pod select its policies, and finalizers prevent its deletion.
 */
export function ownNodeStatus(): readonly KubernetesObject[] {
  const isSame = (field: string, empty: string): string =>
    `object.metadata.?${field}.orValue(${empty}) == oldObject.metadata.?${field}.orValue(${empty})`;
  const otherAnnotations = (object: string): string =>
    `variables.${object}.filter(name, !(variables.isNode ? ${IS_NODE_ANNOTATION} : ${IS_POD_ANNOTATION}))`;
  return validating({
    name: "calico-own-node-status",
    apiGroups: [""],
    resources: ["nodes/status", "pods/status"],
    operations: ["UPDATE"],
    ...OF_A_NODE,
    variables: [
      NODE,
      { name: "isNode", expression: "request.resource.resource == 'nodes'" },
      { name: "before", expression: "oldObject.metadata.?annotations.orValue({})" },
      { name: "after", expression: "object.metadata.?annotations.orValue({})" },
    ],
    validations: [
      namesNode,
      forbidden(
        "(variables.isNode ? oldObject.metadata.name : oldObject.spec.nodeName) == variables.node",
        "the account of a node writes the status of this node and of its pods only",
      ),
      forbidden(
        all(isSame("labels", "{}"), isSame("finalizers", "[]"), isSame("ownerReferences", "[]")),
        "the account of a node changes no labels, finalizers or owners",
      ),
      forbidden(
        all(
          `${otherAnnotations("after")}.all(name, name in variables.before && variables.after[name] == variables.before[name])`,
          `${otherAnnotations("before")}.all(name, name in variables.after)`,
        ),
        "the account of a node changes only the annotations that calico-ts writes",
      ),
    ],
  });
}

/** Limits resources that have their node in `spec.node`. Objects that are marked as deleted may be removed by any node. */
function ownResources(): readonly KubernetesObject[] {
  const isMarked = "request.operation == 'DELETE' && string(oldObject.spec.?deleted.orValue('')) == 'true'";
  const isOwn = (object: string, ...operations: readonly string[]) =>
    any(`!(${isOperation(...operations)})`, `${object}.spec.node == variables.node`);
  return validating({
    name: "calico-own-node-resources",
    resources: ["blockaffinities", "caliconodestatuses", "caliconodestatuses/status"],
    operations: ["CREATE", "UPDATE", "DELETE"],
    ...OF_A_NODE,
    variables: [NODE],
    validations: [
      namesNode,
      forbidden(
        any(isMarked, all(isOwn("object", "CREATE", "UPDATE"), isOwn("oldObject", "UPDATE", "DELETE"))),
        "the account of a node writes resources of this node only",
      ),
    ],
  });
}

/**
 * Limits changes of blocks. A node may own a block, or borrow addresses from the block of another node, so each allocation is
 * checked: a request may add, change and remove only allocations whose attributes contain the token's node. Allocations of
 * virtual machines move between nodes: their attributes may change if the machine remains the same. Allocations without a node
 * (those of old versions, reserved ones) belong to the owner of the block. A node may only claim a block without an owner, or
 * release its own block.
 */
function ownBlocks(): readonly KubernetesObject[] {
  const entries = (object: string) =>
    `${object}.spec.allocations.map(i, i == null ? null : ${object}.spec.attributes[i])`;
  const isGone = "request.operation == 'DELETE' || object.spec.?deleted.orValue(false)";
  const affinity = (object: string) => `${object}.spec.?affinity.orValue('')`;
  const isMachine = "e.?handle_id.orValue('').contains('.vmi.')";
  // Allocations without a node belong to the owner of the block.
  const isMine =
    "e == null || has(e.releasedAt) || e.?secondary.node.orValue(variables.ownedBefore ? variables.node : '') == variables.node";
  /** The parts that a request must not change: free and own allocations are replaced by null, machines by their handle. */
  const fixed = (list: string) => `variables.${list}.map(e, ${isMine} ? null : (${isMachine} ? e.handle_id : e))`;
  const fixedWithMachines = (list: string) =>
    `variables.${list}.map(e, e != null && ${isMachine} ? e.handle_id : (${isMine} ? null : e))`;
  return validating({
    name: "calico-own-node-blocks",
    resources: ["ipamblocks", "ipamhandles"],
    operations: ["CREATE", "UPDATE", "DELETE"],
    ...OF_A_NODE,
    variables: [
      NODE,
      // Handles contain no node.
      { name: "isBlock", expression: "request.resource.resource == 'ipamblocks'" },
      { name: "isMarked", expression: "request.operation == 'DELETE' && oldObject.spec.?deleted.orValue(false)" },
      { name: "isGone", expression: isGone },
      { name: "isNew", expression: "request.operation == 'CREATE'" },
      ...prefixVariables("block", "object.spec.cidr"),
      { name: "ownerBefore", expression: `variables.isNew ? '' : ${affinity("oldObject")}` },
      { name: "ownerAfter", expression: `variables.isGone ? '' : ${affinity("object")}` },
      { name: "ownedBefore", expression: "variables.ownerBefore in ['', 'host:' + variables.node]" },
      {
        name: "before",
        expression: `variables.isNew ? object.spec.allocations.map(i, null) : ${entries("oldObject")}`,
      },
      {
        name: "after",
        expression: `variables.isGone ? oldObject.spec.allocations.map(i, null) : ${entries("object")}`,
      },
    ],
    validations: [
      namesNode,
      forbidden(
        any(
          "!variables.isBlock",
          "variables.isMarked",
          "variables.ownerBefore == variables.ownerAfter",
          all("variables.ownedBefore", "variables.ownerAfter in ['', 'host:' + variables.node]"),
        ),
        "the account of a node claims and gives up blocks for this node only",
      ),
      forbidden(
        any(
          "!variables.isBlock",
          "variables.isMarked",
          `${fixed("before")} == ${fixed("after")}`,
          `${fixedWithMachines("before")} == ${fixedWithMachines("after")}`,
        ),
        "the account of a node assigns and releases addresses of this node only",
      ),
      forbidden(
        any(
          "!variables.isBlock",
          "variables.isGone",
          all(
            any("variables.isNew", "object.spec.cidr == oldObject.spec.cidr"),
            "object.spec.unallocated.all(i, object.spec.allocations[i] == null)",
          ),
        ),
        "a block keeps its prefix, and only free addresses are in its queue",
      ),
      forbidden(
        any(
          "!variables.isBlock",
          "!variables.isNew",
          all(
            "variables.blockBits != ''",
            "object.spec.cidr == variables.blockCanonical",
            "object.metadata.name == object.spec.cidr.replace('.', '-').replace(':', '-').replace('/', '-')",
            "!variables.blockBits.substring(variables.blockLength).contains('1')",
            `size(variables.blockBits) - variables.blockLength < ${BLOCK_SIZES.length}`,
            `size(object.spec.allocations) == [${BLOCK_SIZES.join(", ")}][size(variables.blockBits) - variables.blockLength]`,
          ),
        ),
        "a block has the name of its prefix, and an allocation for each of its addresses",
      ),
    ],
  });
}

/** The number of addresses in a block, by the number of its host bits. Pools allow at most 12 bits (/20, /116). */
const BLOCK_SIZES = Array.from({ length: 13 }, (_, hostBits) => 2 ** hostBits);

/**
 * New blocks must have the block size of their pool. A smaller block inside the block of another node would attract packets to
 * the pods of that node.
 */
function poolBlocks(): readonly KubernetesObject[] {
  return validating({
    name: "calico-own-node-block-size",
    resources: ["ipamblocks"],
    operations: ["CREATE"],
    ...OF_A_NODE,
    params: { apiVersion: "crd.projectcalico.org/v1", kind: "IPPool" },
    variables: [
      ...prefixVariables("block", "object.spec.cidr"),
      ...prefixVariables("pool", "params.spec.?cidr.orValue('')"),
      { name: "default", expression: "variables.poolIs4 ? 26 : 122" },
      // The default in the CRD is 0 or absent.
      { name: "given", expression: "int(params.spec.?blockSize.orValue(0))" },
      {
        name: "common",
        expression: "variables.poolLength < variables.blockLength ? variables.poolLength : variables.blockLength",
      },
    ],
    validations: [
      {
        expression: any(
          "size(variables.poolBits) == 0",
          "size(variables.poolBits) != size(variables.blockBits)",
          "variables.poolBits.substring(0, variables.common) != variables.blockBits.substring(0, variables.common)",
          "variables.blockLength == (variables.given == 0 ? variables.default : variables.given)",
        ),
        messageExpression: "'the block does not have the size of blocks in pool ' + params.metadata.name",
        reason: "Forbidden",
      },
    ],
  });
}

/**
 * Limits the tokens that calico-node requests for the CNI plugin. Before Kubernetes 1.31 a token cannot be bound to a node. A
 * token that is not bound is valid for at most one day, and may write none of the objects in this file.
 */
function ownToken(): readonly KubernetesObject[] {
  return validating({
    name: "calico-own-node-token",
    apiGroups: [""],
    resources: ["serviceaccounts/token"],
    operations: ["CREATE"],
    ...onlyFor("calico-node"),
    // In a request without the field it is null, not absent.
    variables: [NODE, { name: "isBound", expression: "object.spec.?boundObjectRef.orValue(null) != null" }],
    validations: [
      namesNode,
      forbidden(
        any(
          "!variables.isBound",
          all("object.spec.boundObjectRef.kind == 'Node'", "object.spec.boundObjectRef.name == variables.node"),
        ),
        "the account of a node requests tokens for this node only",
      ),
      forbidden(
        any("variables.isBound", "object.spec.?expirationSeconds.orValue(0) <= 86400"),
        "a token that is bound to no node is valid for at most a day",
      ),
    ],
  });
}

/** The resources that startup creates (src/node/startup/default-resources.ts), with the defaults of the schemas. */
const FELIX_DEFAULTS = {
  reportingInterval: "0s",
  logSeverityScreen: "Info",
  nftablesMode: "Auto",
  nftablesFlowTableOffload: "Disabled",
  bpfLogLevel: "",
  bpfConnectTimeLoadBalancing: "TCP",
  bpfHostNetworkedNATWithoutCTLB: "Enabled",
  floatingIPs: "Disabled",
};
const BGP_DEFAULTS = { logSeverityScreen: "Info", serviceLoadBalancerAggregation: "Enabled" };
const map = (fields: Readonly<Record<string, string>>): string =>
  `{${Object.entries(fields)
    .map(([name, value]) => `'${name}': '${value}'`)
    .join(", ")}}`;

/** Limits cluster-wide settings and pools: a node may create only those that the first node of a cluster creates. */
function onlyDefaults(): readonly KubernetesObject[] {
  const names = (resource: string, ...allowed: readonly string[]) =>
    any(`request.resource.resource != '${resource}'`, `object.metadata.name in ${texts(allowed)}`);
  // CRDs of the group projectcalico.org are those of Calico, and may set other defaults.
  const contents = (resource: string, defaults: Readonly<Record<string, string>>) =>
    any(
      `request.resource.resource != '${resource}' || request.resource.group != 'crd.projectcalico.org'`,
      `!has(object.spec) || object.spec.all(field, field in ${map(defaults)} && object.spec[field] == ${map(defaults)}[field])`,
    );
  const settings = ["felixconfigurations", "bgpconfigurations", "ipamconfigs", "ipamconfigurations"];
  return validating({
    name: "calico-only-defaults",
    resources: [...settings, "clusterinformations", "ippools", "tiers"],
    operations: ["CREATE"],
    ...onlyFor("calico-node", "calico-cni-plugin", "calico-typha"),
    validations: [
      forbidden(
        all(
          ...[...settings, "clusterinformations"].map((resource) => names(resource, "default")),
          names("ippools", "default-ipv4-ippool", "default-ipv6-ippool"),
          names("tiers", ...Object.keys(BUILT_IN_TIERS)),
        ),
        "the account of a node creates only default settings, pools and tiers",
      ),
      forbidden(
        all(
          contents("felixconfigurations", FELIX_DEFAULTS),
          contents("bgpconfigurations", BGP_DEFAULTS),
          any("request.resource.resource != 'clusterinformations'", "object.spec.?datastoreReady.orValue(true)"),
        ),
        "the account of a node creates settings with their default contents only",
      ),
    ],
  });
}
