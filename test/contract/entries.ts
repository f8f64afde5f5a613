// Creates the entries that the suites write: small IP pools.
import type { Entry } from "../../src/datastore/index.ts";
import type { Resource, ResourceKey } from "../../src/model/index.ts";

export const poolKey = (name: string): ResourceKey => ({ type: "resource", kind: "IPPool", name });
export const pool = (name: string, cidr = "10.0.0.0/16"): Entry<ResourceKey> & { value: Resource } => ({
  key: poolKey(name),
  value: {
    apiVersion: "projectcalico.org/v3",
    kind: "IPPool",
    metadata: { name },
    spec: { cidr },
  },
});
