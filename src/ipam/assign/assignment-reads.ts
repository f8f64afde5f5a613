// Declares the reads that an assignment needs besides blocks and handles. There are two implementations: the datastore (for
// the plugin's own process, calicoctl and the controllers), and `AssignmentCache` for the node agent's CNI service.
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { IpamConfig, IpPool, Labels } from "../../model/index.ts";
import type { BlockOwner } from "../blocks/block.ts";
import { configOf } from "../config.ts";
import { poolsOf } from "./pools.ts";
import type { Records, StoredAffinity } from "../records.ts";
import { Reservations } from "./reservations.ts";

export interface AssignmentReads {
  config(): Promise<IpamConfig>;
  /** Sorted by name. Pools that cannot be parsed are left out. */
  pools(version?: IpVersion): Promise<readonly IpPool[]>;
  reservations(): Promise<Reservations>;
  /** Undefined if there is no such node. */
  nodeLabels(host: string): Promise<Labels | undefined>;
  /** Sorted by key. */
  affinitiesOf(owner: BlockOwner, version: IpVersion): Promise<readonly StoredAffinity[]>;
}

export class DatastoreReads implements AssignmentReads {
  constructor(readonly records: Records) {}

  async config(): Promise<IpamConfig> {
    return configOf(await this.records.config());
  }

  async pools(version?: IpVersion): Promise<readonly IpPool[]> {
    return poolsOf(await this.records.resources("IPPool"), version);
  }

  async reservations(): Promise<Reservations> {
    return Reservations.of(await this.records.resources("IPReservation"));
  }

  async nodeLabels(host: string): Promise<Labels | undefined> {
    const node = await this.records.resource("Node", host);
    return node && (node.metadata.labels ?? {});
  }

  affinitiesOf(owner: BlockOwner, version: IpVersion): Promise<readonly StoredAffinity[]> {
    return this.records.affinitiesOf(owner, version);
  }
}
