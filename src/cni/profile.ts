// The profile of a network outside Kubernetes policy: its endpoints may talk to each other and to the world.
import { AlreadyExists, type Datastore, NotFound } from "../datastore/index.ts";
import { API_VERSION, isQualifiedName, type ResourceKey, type ResourceOf } from "../model/index.ts";
import { timestamp } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import type { EndpointIdentity } from "./identity.ts";

const profileKey = (name: string): ResourceKey => ({ type: "resource", kind: "Profile", name });

export async function hasProfile(store: Datastore, name: string): Promise<boolean> {
  try {
    await store.get(profileKey(name));
    return true;
  } catch (error) {
    if (error instanceof NotFound) return false;
    throw error;
  }
}

/** Makes the profile; one that is there is the operator's and stays as it is. */
export async function createProfile(
  store: Datastore,
  name: string,
  orchestrator: EndpointIdentity["orchestrator"],
  now: Date,
): Promise<void> {
  if (!isQualifiedName(name))
    throw new CniError(
      INTERNAL,
      `${JSON.stringify(name)} cannot be the label of a network's workloads: want at most 63 characters`,
      "give the network a shorter name",
    );
  const anybody = { action: "Allow", source: {}, destination: {} } as const;
  const members = { action: "Allow", source: { selector: `has(${name})` }, destination: {} } as const;
  const value: ResourceOf<"Profile"> = {
    apiVersion: API_VERSION,
    kind: "Profile",
    metadata: { name, uid: crypto.randomUUID(), creationTimestamp: timestamp(now) },
    spec: {
      ingress: [orchestrator === "k8s" ? anybody : members],
      egress: [anybody],
      labelsToApply: { [name]: "" },
    },
  };
  try {
    await store.create({ key: profileKey(name), value });
  } catch (error) {
    if (!(error instanceof AlreadyExists)) throw error; // another pod was faster
  }
}
