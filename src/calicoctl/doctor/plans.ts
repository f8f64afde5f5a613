// Every node's BGP plan but for the mesh.
import { type BgpPlan, plan } from "../../bgp/index.ts";
import type { ClusterFacts } from "./facts.ts";

export type Plans = ReadonlyMap<string, BgpPlan>;

/** Secrets are the nodes' to know: that one is missing cannot be told from here. */
export const planAll = ({ withoutMesh }: ClusterFacts): Plans =>
  new Map([...withoutMesh.nodes.keys()].map((name) => [name, plan(withoutMesh, name, { hasSecret: () => true })]));
