// Helpers for tests of the BGP service without BIRD and without a cluster.
import type { Bird } from "../../../src/bgp/index.ts";
import type { Datastore } from "../../../src/datastore/index.ts";
import { API_VERSION, type KindName } from "../../../src/model/index.ts";

/** Accepts every file. */
export const acceptingBird: Bird = { check: async () => undefined, reload: async () => "reconfigured" };

export async function put(datastore: Datastore, kind: KindName, name: string, spec: object): Promise<void> {
  const value = { apiVersion: API_VERSION, kind, metadata: { name }, spec };
  await datastore.apply({ key: { type: "resource", kind, name }, value });
}
