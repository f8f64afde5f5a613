// The workload endpoint in the datastore: finding the one there is, building the new one, writing it.
import { Conflict, type Datastore, NotFound, type Stored, type Write } from "../datastore/index.ts";
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
} from "../model/index.ts";
import { CniError, INTERNAL } from "./error.ts";
import { type EndpointIdentity, nameFields } from "./identity.ts";

export type WorkloadEndpoint = ResourceOf<"WorkloadEndpoint">;
export type StoredEndpoint = { readonly stored: Stored<ResourceKey>; readonly endpoint: WorkloadEndpoint };

const endpointKey = (namespace: string, name: string): ResourceKey => ({
  type: "resource",
  kind: "WorkloadEndpoint",
  namespace,
  name,
});

/** The endpoint of this workload, by whatever interface name it was made. */
export async function findEndpoint(store: Datastore, identity: EndpointIdentity): Promise<StoredEndpoint | undefined> {
  const { endpoint: _, ...workload } = nameFields(identity);
  const { items } = await store.list({
    type: "resource",
    kind: "WorkloadEndpoint",
    namespace: identity.namespace,
    namePrefix: workloadEndpointPrefix(workload),
  });
  const stored = items.find((item) => workloadNameMatches(item.key.name, workload));
  return stored && { stored, endpoint: stored.value as WorkloadEndpoint };
}

/** Exactly the endpoint this request names. */
export async function getEndpoint(store: Datastore, identity: EndpointIdentity): Promise<StoredEndpoint | undefined> {
  const name = workloadEndpointName(nameFields(identity));
  if (name.includes("/")) return undefined; // one that cannot be stored is not there
  try {
    const stored = await store.get(endpointKey(identity.namespace, name));
    return { stored, endpoint: stored.value as WorkloadEndpoint };
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}

/** In Kubernetes an endpoint may belong to a newer container of the pod. */
export function isAnothers({ endpoint }: StoredEndpoint, identity: EndpointIdentity): boolean {
  const holder = endpoint.spec.containerID ?? "";
  return identity.orchestrator === "k8s" && holder !== "" && holder !== identity.containerId;
}

export interface EndpointDraft {
  readonly identity: EndpointIdentity;
  readonly labels: Labels;
  readonly generateName?: string;
  readonly spec: Omit<WorkloadEndpoint["spec"], "orchestrator" | "node" | "containerID" | "pod" | "endpoint">;
}

/** Writes the endpoint: over the one that was found, or as a new one. */
export async function writeEndpoint(
  store: Datastore,
  draft: EndpointDraft,
  existing: StoredEndpoint | undefined,
  now: Date,
): Promise<void> {
  const entry = endpointEntry(store, draft, existing, now);
  if (existing === undefined) await store.create(entry);
  else await store.update({ ...entry, revision: existing.stored.revision });
}

/**
 * The identity under which the endpoint is stored. A workload has one endpoint: it keeps the interface name under which it
 * was stored first.
 */
export function storedIdentity(identity: EndpointIdentity, existing: StoredEndpoint | undefined): EndpointIdentity {
  const endpoint = existing && parseWorkloadEndpointName(existing.stored.key.name)?.endpoint;
  return endpoint === undefined ? identity : { ...identity, endpoint };
}

/** What is stored of an endpoint that is new, or takes the place of one that was found. */
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
      // In Kubernetes the endpoint is its pod, which has an identity of its own.
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

/** Whoever reads it drops one with a name that is none: its pod would have an address and no network. */
function checkEndpoint(name: string, { identity: { containerId, namespace }, labels, spec }: EndpointDraft): void {
  if (!isSubdomain(name))
    throw new CniError(
      INTERNAL,
      `${name} cannot name a workload endpoint: want lower case letters, digits, - and .`,
      "its parts are the node's name, the pod's or the container's ID, and the interface",
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

/** An endpoint that names a profile there cannot be is dropped by its readers too. */
function checkProfileName(name: string): void {
  if (!isSubdomain(name))
    throw new CniError(
      INTERNAL,
      `${JSON.stringify(name)} cannot name a profile: want lower case letters, digits, - and .`,
      "outside Kubernetes policy a network's profile has the network's name: give the network another",
    );
}

/** Adds a profile to an endpoint that is already there; nothing to do when it has it. */
export async function addProfile(store: Datastore, found: StoredEndpoint, profile: string): Promise<void> {
  const { endpoint, stored } = found;
  const profiles = endpoint.spec.profiles ?? [];
  if (profiles.includes(profile)) return;
  checkProfileName(profile);
  const value = { ...endpoint, spec: { ...endpoint.spec, profiles: [...profiles, profile] } };
  await store.update({ key: stored.key, value, revision: stored.revision });
}

/** Its deletion as part of a greater write. */
export const deletionOf = ({ stored: { key, revision } }: StoredEndpoint): Write => ({ op: "delete", key, revision });

export const DELETE_ATTEMPTS = 6;

/** Deletes the endpoint that this request names if `mayDelete` allows it; reads it again when somebody changes it. */
export async function deleteEndpointIf(
  store: Datastore,
  identity: EndpointIdentity,
  mayDelete: (found: StoredEndpoint) => boolean,
): Promise<void> {
  for (let attempt = 0; attempt < DELETE_ATTEMPTS; attempt++) {
    const found = await getEndpoint(store, identity);
    if (found === undefined || !mayDelete(found) || (await deleteEndpoint(store, found))) return;
  }
  throw changedTooOften();
}

export const changedTooOften = (): CniError =>
  new CniError(INTERNAL, "error deleting endpoint: endpoint was modified before it could be deleted");

/** Whether it was deleted; false when somebody changed it in between. */
export async function deleteEndpoint(store: Datastore, { stored }: StoredEndpoint): Promise<boolean> {
  try {
    await store.delete(stored.key, {
      revision: stored.revision,
      ...(stored.uid === undefined ? {} : { uid: stored.uid }),
    });
    return true;
  } catch (error) {
    if (error instanceof NotFound) return true;
    if (error instanceof Conflict) return false;
    throw error;
  }
}

/** Seconds, as the field writes creation times. */
export const timestamp = (now: Date): string => now.toISOString().replace(/\.\d+Z$/, "Z");
