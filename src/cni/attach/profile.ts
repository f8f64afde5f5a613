// Creates the profile of a network without Kubernetes policy. The profile allows traffic between the network's endpoints and to
// the outside.
import { AlreadyExists, type CallOptions, type Datastore, NotFound } from "../../datastore/index.ts";
import { API_VERSION, isQualifiedName, type ResourceKey, type ResourceOf } from "../../model/index.ts";
import { timestamp } from "./endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import type { EndpointIdentity } from "../request/identity.ts";

const profileKey = (name: string): ResourceKey => ({ type: "resource", kind: "Profile", name });

export async function hasProfile(store: Datastore, name: string, call: CallOptions): Promise<boolean> {
  try {
    await store.get(profileKey(name), call);
    return true;
  } catch (error) {
    if (error instanceof NotFound) return false;
    throw error;
  }
}

/** Creates the profile. An existing one, which an operator may have changed, is not modified. */
export async function createProfile(
  store: Datastore,
  name: string,
  orchestrator: EndpointIdentity["orchestrator"],
  options: CallOptions & { readonly now: Date },
): Promise<void> {
  if (!isQualifiedName(name))
    throw new CniError(
      INTERNAL,
      `${JSON.stringify(name)} cannot be a label of the network's workloads: want at most 63 characters`,
      "give the network a shorter name",
    );
  const allowAll = { action: "Allow", source: {}, destination: {} } as const;
  const allowMembers = { action: "Allow", source: { selector: `has(${name})` }, destination: {} } as const;
  const value: ResourceOf<"Profile"> = {
    apiVersion: API_VERSION,
    kind: "Profile",
    metadata: { name, uid: crypto.randomUUID(), creationTimestamp: timestamp(options.now) },
    spec: {
      ingress: [orchestrator === "k8s" ? allowAll : allowMembers],
      egress: [allowAll],
      labelsToApply: { [name]: "" },
    },
  };
  try {
    await store.create({ key: profileKey(name), value }, options);
  } catch (error) {
    if (!(error instanceof AlreadyExists)) throw error; // another ADD has created it
  }
}
