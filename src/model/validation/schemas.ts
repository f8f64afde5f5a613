// Validates resources with the schema of their kind. A schema is loaded when it is first used. Callers load this module
// lazily too (`loadSchemas`), so that zod does not slow down the start of programs that validate nothing.
import type { FieldFault } from "./faults.ts";
import type { ResourceSchema, Validated, ValidationMode } from "../kinds/kind.ts";
import type { ResourceOf, SchemaKind } from "../resources.ts";
import type { Resource } from "../resource.ts";

export { extras as schemaExtras } from "../kinds/fields.ts";
export type { ResourceSchema, Validated, ValidationMode } from "../kinds/kind.ts";

const LOADERS = {
  IPPool: () => import("../kinds/ip-pool.ts"),
  IPReservation: () => import("../kinds/ip-reservation.ts"),
  Node: () => import("../kinds/node.ts"),
  WorkloadEndpoint: () => import("../kinds/workload-endpoint.ts"),
  HostEndpoint: () => import("../kinds/host-endpoint.ts"),
  NetworkPolicy: () => import("../kinds/network-policy.ts"),
  GlobalNetworkPolicy: () => import("../kinds/global-network-policy.ts"),
  StagedNetworkPolicy: () => import("../kinds/staged-network-policy.ts"),
  StagedGlobalNetworkPolicy: () => import("../kinds/staged-global-network-policy.ts"),
  StagedKubernetesNetworkPolicy: () => import("../kinds/staged-kubernetes-network-policy.ts"),
  Tier: () => import("../kinds/tier.ts"),
  Profile: () => import("../kinds/profile.ts"),
  NetworkSet: () => import("../kinds/network-set.ts"),
  GlobalNetworkSet: () => import("../kinds/global-network-set.ts"),
  BGPConfiguration: () => import("../kinds/bgp-configuration.ts"),
  BGPPeer: () => import("../kinds/bgp-peer.ts"),
  BGPFilter: () => import("../kinds/bgp-filter.ts"),
  CalicoNodeStatus: () => import("../kinds/calico-node-status.ts"),
  FelixConfiguration: () => import("../kinds/felix-configuration.ts"),
  ClusterInformation: () => import("../kinds/cluster-information.ts"),
  KubeControllersConfiguration: () => import("../kinds/kube-controllers-configuration.ts"),
  IPAMConfiguration: () => import("../kinds/ipam-configuration.ts"),
  IPAMBlock: () => import("../kinds/ipam-block.ts"),
  BlockAffinity: () => import("../kinds/block-affinity.ts"),
  IPAMHandle: () => import("../kinds/ipam-handle.ts"),
} as const satisfies Record<SchemaKind, () => Promise<{ readonly default: ResourceSchema }>>;

export const SCHEMA_KINDS = Object.keys(LOADERS) as readonly SchemaKind[];
export const hasSchema = (kind: string): kind is SchemaKind => Object.hasOwn(LOADERS, kind);

/** Loads the schema of a kind. Its methods are synchronous, which is faster for validating many resources. */
export async function loadSchema<K extends SchemaKind>(kind: K): Promise<ResourceSchema<ResourceOf<K>>> {
  const module = await LOADERS[kind]();
  return module.default as unknown as ResourceSchema<ResourceOf<K>>;
}

/** Loads the definition of a kind with its zod schemas, for generating manifests. */
export async function loadDefinition(kind: SchemaKind) {
  return (await LOADERS[kind]()).default.definition;
}

export async function validateResource<R extends Resource>(
  raw: R,
  options: { readonly mode: ValidationMode; readonly stored?: Resource },
): Promise<Validated<ResourceOf<R["kind"]>>> {
  const { kind } = raw;
  if (!hasSchema(kind)) return { ok: false, faults: [noSchema(kind)] };
  const schema = await loadSchema(kind);
  return schema.validate(raw, options.mode, options) as Validated<ResourceOf<R["kind"]>>;
}

const noSchema = (kind: string): FieldFault => ({
  field: "kind",
  value: kind,
  reason: "is not a kind that users can write",
});
