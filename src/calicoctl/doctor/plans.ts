// Every node's BGP plan but for the mesh.
import { type BgpPlan, type PlannedPeer, plan } from "../../bgp/index.ts";
import type { ClusterFacts } from "./facts.ts";

/** Of a session what findings need: with all nodes peering with all nodes there are a million of them in a thousand nodes. */
export type PeerFacts = Pick<PlannedPeer, "family" | "kind" | "neighbor" | "sourceAddress" | "because"> & {
  readonly sameAs: boolean;
};

export interface PlanFacts extends Pick<BgpPlan, "routerId" | "problems"> {
  readonly peers: readonly PeerFacts[];
}

export type Plans = ReadonlyMap<string, PlanFacts>;

/** Secrets are the nodes' to know: that one is missing cannot be told from here. */
export const planAll = ({ withoutMesh }: ClusterFacts): Plans =>
  new Map(
    [...withoutMesh.nodes.keys()].map((name) => {
      const { routerId, problems, peers } = plan(withoutMesh, name, { hasSecret: () => true });
      return [name, { routerId, problems, peers: peers.map(peerFacts) }];
    }),
  );

const peerFacts = ({ family, kind, neighbor, sourceAddress, because, export: { sameAs } }: PlannedPeer): PeerFacts => ({
  family,
  kind,
  neighbor,
  sourceAddress,
  because,
  sameAs,
});
