// What the commands under `datastore migrate` share: the lock, and the form of an exported datastore.
//
// An export is text in three parts with `===` lines between: resources as YAML lists, ClusterInformation as JSON, and
// the address manager's state as JSON.
import { type Client, Conflict, NotFound } from "../../../datastore/index.ts";
import { ignoreUnreadable, readClusterInformation, type Resource, withSpecFields } from "../../../model/index.ts";
import { Failure } from "../../command-line/failure.ts";
import type { ManagedKind } from "../../resources/kinds.ts";

/** In this order: what others refer to comes first. */
export const MIGRATED_KINDS: readonly ManagedKind[] = [
  "IPPool",
  "BGPPeer",
  "Tier",
  "GlobalNetworkPolicy",
  "StagedGlobalNetworkPolicy",
  "GlobalNetworkSet",
  "HostEndpoint",
  "KubeControllersConfiguration",
  "NetworkPolicy",
  "StagedNetworkPolicy",
  "StagedKubernetesNetworkPolicy",
  "NetworkSet",
  "Node",
  "BGPConfiguration",
  "FelixConfiguration",
  "IPReservation",
  "BGPFilter",
];

export const PART_SEPARATOR = "===\n";
const CLUSTER = { kind: "ClusterInformation", name: "default" } as const;
const MOST_TRIES = 5;

/** The address manager's state, as keys and stored JSON. */
export interface IpamExport {
  readonly block_affinities?: readonly IpamEntry[];
  readonly blocks?: readonly IpamEntry[];
  readonly handles?: readonly IpamEntry[];
  readonly config?: IpamEntry;
}
export interface IpamEntry {
  readonly Key: string;
  readonly Value: unknown;
  readonly TTL: number;
}

export async function clusterInformation(store: Client): Promise<Resource | undefined> {
  try {
    return await store.get(CLUSTER);
  } catch (error) {
    if (error instanceof NotFound) return undefined;
    throw error;
  }
}

export const isLocked = (information: Resource | undefined): boolean =>
  information !== undefined && readClusterInformation(information, ignoreUnreadable).isDatastoreReady === false;

/** All agents watch this flag: while it is false they neither read nor write. */
export async function setReady(store: Client, ready: boolean): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const information = await clusterInformation(store);
    if (information === undefined)
      throw new Failure("This datastore has no ClusterInformation yet: nothing has been written to it");
    try {
      await store.update(withSpecFields(information, { datastoreReady: ready }));
      return;
    } catch (error) {
      if (!(error instanceof Conflict) || attempt >= MOST_TRIES) throw error;
    }
  }
}
