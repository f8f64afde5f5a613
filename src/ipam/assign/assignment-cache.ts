// Caches the reads of one host's assignments. The node agent's CNI service uses it, so that an assignment is a single write.
//
//   pools, reservations, IPAM configuration, node, affinities   as old as the watch delay; Calico's values are as outdated
//                                                               if a delay occurs between its reads and its write
//   blocks of this host                                         the last value that this process read or wrote
//
// Cached blocks need no watch: the compare-and-swap of a block rejects a write that was decided by an outdated value, and
// IPAM then reads the block from the datastore. An assignment that the cache cannot satisfy is repeated with reads from
// the datastore (`auto-assign.ts`). So an outdated cache costs a second attempt, never a wrong address.
import type { WatchedEntries } from "../../datastore/index.ts";
import type { Cidr, IpVersion } from "../../lib/ip/ip.ts";
import type { IpamConfig, IpPool, Labels, StoredQuery } from "../../model/index.ts";
import type { AssignmentReads } from "./assignment-reads.ts";
import { type BlockOwner, formatBlockOwner } from "../blocks/block.ts";
import { configOf } from "../config.ts";
import { poolsOf } from "./pools.ts";
import type { StoredAffinity, StoredBlock } from "../records.ts";
import { Reservations } from "./reservations.ts";

const POOLS = { type: "resource", kind: "IPPool" } as const;
const RESERVATIONS = { type: "resource", kind: "IPReservation" } as const;
const CONFIG = { type: "ipamConfig" } as const;

export class AssignmentCache implements AssignmentReads {
  readonly #blocks = new Map<Cidr, StoredBlock>();

  /** @param entries must contain the results of `queriesFor(host)` */
  constructor(
    readonly host: string,
    readonly entries: Pick<WatchedEntries, "isInSync" | "get" | "list">,
  ) {}

  static queriesFor(host: string): readonly StoredQuery[] {
    const node = { type: "resource", kind: "Node", name: host } as const;
    return [POOLS, RESERVATIONS, CONFIG, node, { type: "blockAffinity", host, affinityType: "host" }];
  }

  /** True if the cache can be used for assignments of this owner. */
  isUsableFor(owner: BlockOwner): boolean {
    return owner.type === "host" && owner.name === this.host && this.entries.isInSync;
  }

  async config(): Promise<IpamConfig> {
    return configOf(this.entries.get(CONFIG)?.value);
  }

  async pools(version?: IpVersion): Promise<readonly IpPool[]> {
    return poolsOf(
      this.entries.list(POOLS).map(({ value }) => value),
      version,
    );
  }

  async reservations(): Promise<Reservations> {
    return Reservations.of(this.entries.list(RESERVATIONS).map(({ value }) => value));
  }

  async nodeLabels(host: string): Promise<Labels | undefined> {
    const node = this.entries.get({ type: "resource", kind: "Node", name: host });
    return node && (node.value.metadata.labels ?? {});
  }

  async affinitiesOf(owner: BlockOwner, version: IpVersion): Promise<readonly StoredAffinity[]> {
    return this.entries.list({ type: "blockAffinity", host: owner.name, affinityType: owner.type, version });
  }

  /** Undefined if this process has not read or written the block. */
  block(cidr: Cidr): StoredBlock | undefined {
    return this.#blocks.get(cidr);
  }

  /** Called by IPAM for every block that it read or wrote. Only blocks of this host are kept. */
  setBlock(stored: StoredBlock): void {
    const { cidr } = stored.key;
    if (stored.value.affinity === formatBlockOwner({ type: "host", name: this.host })) this.#blocks.set(cidr, stored);
    else this.#blocks.delete(cidr);
  }

  /** Called by IPAM for a block that was deleted, or whose write failed. */
  dropBlock(cidr: Cidr): void {
    this.#blocks.delete(cidr);
  }
}
