// Implements the lock of the datastore, and defines the format of an exported datastore, for the commands of
// `datastore migrate`.
//
// An export is text in three parts separated by `===` lines: resources as YAML lists, ClusterInformation as JSON, and the
// state of IPAM as JSON.
import { type Client, Conflict, NotFound } from "../../../datastore/index.ts";
import { ignoreUnreadable, readClusterInformation, type Resource, withSpecFields } from "../../../model/index.ts";
import { Failure } from "../../command-line/failure.ts";
import type { ManagedKind } from "../../resources/kinds.ts";

/** In the order of import: resources that others refer to are first. */
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
const MAX_ATTEMPTS = 5;

/** The state of IPAM, as keys and stored JSON. */
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

/** Sets `datastoreReady`, which all agents watch: while it is false, they neither read nor write. */
export async function setReady(store: Client, ready: boolean): Promise<void> {
  for (let attempt = 1; ; attempt++) {
    const information = await clusterInformation(store);
    if (information === undefined) throw new Failure("The datastore has no ClusterInformation: it is not initialized");
    try {
      await store.update(withSpecFields(information, { datastoreReady: ready }));
      return;
    } catch (error) {
      if (!(error instanceof Conflict) || attempt >= MAX_ATTEMPTS) throw error;
    }
  }
}
