// Reads, builds, writes and deletes the workload endpoint in the datastore.
import {
  type CallOptions,
  Conflict,
  type Datastore,
  NotFound,
  type Stored,
  type Write,
} from "../../datastore/index.ts";
import {
  API_VERSION,
  isContainerId,
  isLabelValue,
  isQualifiedName,
  isSubdomain,
  type Labels,
  parseWorkloadEndpointName,
  type ResourceKey,
  type ResourceOf,
  workloadEndpointName,
  workloadEndpointPrefix,
  workloadNameMatches,
} from "../../model/index.ts";
import { CniError, INTERNAL } from "../error.ts";
import { type EndpointIdentity, nameFields } from "../request/identity.ts";

export type WorkloadEndpoint = ResourceOf<"WorkloadEndpoint">;
export type StoredEndpoint = { readonly stored: Stored<ResourceKey>; readonly endpoint: WorkloadEndpoint };

const endpointKey = (namespace: string, name: string): ResourceKey => ({
  type: "resource",
  kind: "WorkloadEndpoint",
  namespace,
  name,
});

/** Returns the endpoint of this workload, regardless of its interface name. */
export async function findEndpoint(
  store: Datastore,
  identity: EndpointIdentity,
  call: CallOptions,
): Promise<StoredEndpoint | undefined> {
  const { endpoint: _, ...workload } = nameFields(identity);
  const namePrefix = workloadEndpointPrefix(workload);
  const { items } = await store.list(
    { type: "resource", kind: "WorkloadEndpoint", namespace: identity.namespace, namePrefix },
    call,
  );
  const stored = items.find((item) => workloadNameMatches(item.key.name, workload));
  return stored && { stored, endpoint: stored.value as WorkloadEndpoint };
}

/** Returns the endpoint of exactly the interface that this request names. */
export async function getEndpoint(
  store: Datastore,
  identity: EndpointIdentity,
  call: CallOptions,
): Promise<StoredEndpoint | undefined> {
  const name = workloadEndpointName(nameFields(identity));
  if (name.includes("/")) return undefined; // such a name cannot be stored
  try {
    const stored = await store.get(endpointKey(identity.namespace, name), call);
    return { stored, endpoint: stored.value as WorkloadEndpoint };
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}

/** True if the endpoint belongs to another container of the pod, which is then the newer one. */
export function isOfNewerContainer({ endpoint }: StoredEndpoint, identity: EndpointIdentity): boolean {
  const containerId = endpoint.spec.containerID ?? "";
  return identity.orchestrator === "k8s" && containerId !== "" && containerId !== identity.containerId;
}

export interface EndpointDraft {
  readonly identity: EndpointIdentity;
  readonly labels: Labels;
  readonly generateName?: string;
  readonly spec: Omit<WorkloadEndpoint["spec"], "orchestrator" | "node" | "containerID" | "pod" | "endpoint">;
}

/** Replaces the existing endpoint, or creates a new one. */
export async function writeEndpoint(
  store: Datastore,
  draft: EndpointDraft,
  existing: StoredEndpoint | undefined,
  options: CallOptions & { readonly now: Date },
): Promise<void> {
  const entry = endpointEntry(store, draft, existing, options.now);
  if (existing === undefined) await store.create(entry, options);
  else await store.update({ ...entry, revision: existing.stored.revision }, options);
}

/** Returns the identity of the stored endpoint. A workload has one endpoint, which keeps its first interface name. */
export function storedIdentity(identity: EndpointIdentity, existing: StoredEndpoint | undefined): EndpointIdentity {
  const endpoint = existing && parseWorkloadEndpointName(existing.stored.key.name)?.endpoint;
  return endpoint === undefined ? identity : { ...identity, endpoint };
}

/** Returns the entry of an endpoint that is new or replaces the existing one. */
export function endpointEntry(
  store: Datastore,
  draft: EndpointDraft,
  existing: StoredEndpoint | undefined,
  now: Date,
): { readonly key: ResourceKey; readonly value: WorkloadEndpoint } {
  const { identity, generateName } = draft;
  const name = existing?.stored.key.name ?? workloadEndpointName(nameFields(identity));
  checkEndpoint(name, draft);
  const key = endpointKey(identity.namespace, name);
  const before = existing?.endpoint.metadata;
  const value: WorkloadEndpoint = {
    apiVersion: API_VERSION,
    kind: "WorkloadEndpoint",
    metadata: {
      name,
      ...(generateName === undefined ? {} : { generateName }),
      namespace: identity.namespace,
      // In Kubernetes the endpoint is its pod, which has its own UID.
      ...(store.name === "kubernetes" && before?.uid === undefined ? {} : { uid: before?.uid ?? crypto.randomUUID() }),
      creationTimestamp: before?.creationTimestamp ?? timestamp(now),
      labels: draft.labels,
    },
    spec: {
      orchestrator: identity.orchestrator,
      node: identity.node,
      containerID: identity.containerId,
      ...(identity.pod === "" ? {} : { pod: identity.pod }),
      endpoint: storedIdentity(identity, existing).endpoint,
      ...draft.spec,
    },
  };
  return { key, value };
}

/** Readers drop an endpoint with an invalid field, so its pod would have an address but no network. */
function checkEndpoint(name: string, { identity: { containerId, namespace }, labels, spec }: EndpointDraft): void {
  if (!isSubdomain(name))
    throw new CniError(
      INTERNAL,
      `${name} cannot name a workload endpoint: want lower case letters, digits, - and .`,
      "it consists of the node's name, the pod's name or container's ID, and the interface",
    );
  if (!isSubdomain(namespace))
    throw new CniError(
      INTERNAL,
      `${JSON.stringify(namespace)} cannot be a workload's namespace: want lower case letters, digits, - and .`,
    );
  if (!isContainerId(containerId))
    throw new CniError(INTERNAL, `${containerId} cannot be stored as a container's ID: want letters, digits and -`);
  for (const profile of spec.profiles ?? []) checkProfileName(profile);
  for (const [key, value] of Object.entries(labels))
    if (!isQualifiedName(key) || !isLabelValue(value))
      throw new CniError(INTERNAL, `${JSON.stringify(key)}: ${JSON.stringify(value)} cannot be a label of a workload`);
}

/** Readers drop an endpoint with an invalid profile name, so it is not stored. */
function checkProfileName(name: string): void {
  if (!isSubdomain(name))
    throw new CniError(
      INTERNAL,
      `${JSON.stringify(name)} cannot name a profile: want lower case letters, digits, - and .`,
      "without Kubernetes policy, the profile has the name of the network: rename the network",
    );
}

/** Adds a profile to a stored endpoint, if the endpoint does not have it yet. */
export async function addProfile(
  store: Datastore,
  found: StoredEndpoint,
  profile: string,
  call: CallOptions,
): Promise<void> {
  const { endpoint, stored } = found;
  const profiles = endpoint.spec.profiles ?? [];
  if (profiles.includes(profile)) return;
  checkProfileName(profile);
  const value = { ...endpoint, spec: { ...endpoint.spec, profiles: [...profiles, profile] } };
  await store.update({ key: stored.key, value, revision: stored.revision }, call);
}

/** Returns the deletion of the endpoint as part of a transaction. */
export const deletionOf = ({ stored: { key, revision } }: StoredEndpoint): Write => ({ op: "delete", key, revision });

export const DELETE_ATTEMPTS = 6;

/** Deletes the endpoint that this request names if `mayDelete` allows it; reads it again after a conflict. */
export async function deleteEndpointIf(
  store: Datastore,
  identity: EndpointIdentity,
  mayDelete: (found: StoredEndpoint) => boolean,
  call: CallOptions,
): Promise<void> {
  for (let attempt = 0; attempt < DELETE_ATTEMPTS; attempt++) {
    const found = await getEndpoint(store, identity, call);
    if (found === undefined || !mayDelete(found) || (await deleteEndpoint(store, found, call))) return;
  }
  throw changedTooOften();
}

export const changedTooOften = (): CniError =>
  new CniError(INTERNAL, "error deleting endpoint: endpoint was modified before it could be deleted");

/** @returns false if another process changed the endpoint since it was read */
export async function deleteEndpoint(
  store: Datastore,
  { stored }: StoredEndpoint,
  call: CallOptions,
): Promise<boolean> {
  try {
    await store.delete(stored.key, {
      ...call,
      revision: stored.revision,
      uid: stored.uid,
    });
    return true;
  } catch (error) {
    if (error instanceof NotFound) return true;
    if (error instanceof Conflict) return false;
    throw error;
  }
}

/** Formats a creation time with a resolution of seconds, as Kubernetes does. */
export const timestamp = (now: Date): string => now.toISOString().replace(/\.\d+Z$/, "Z");
