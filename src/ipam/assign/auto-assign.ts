// Assigns addresses of one family to a host: from blocks that it owns, then from a block that it claims, then from blocks of
// other hosts. The compare-and-swap of the block decides between concurrent assignments (take-from-block.ts). A new block belongs
// to the host that creates it (blocks/affinities.ts).
import type { Revision } from "../../datastore/index.ts";
import type { Cidr, IpVersion } from "../../lib/ip/ip.ts";
import type { IpPool, Labels } from "../../model/index.ts";
import { isConfirmed, blockOwnerOf, resolveAffinity } from "../blocks/affinities.ts";
import { type AssignmentInputs, cachedInputs, readInputs, searchIn } from "./assignment-inputs.ts";
import type { HandleAndAttributes, HostReserved, BlockOwner } from "../blocks/block.ts";
import { type Context, isConflict, retryOnConflict } from "../context.ts";
import { BadRequest, BlockClaimed, BlockLimitReached, NoBlockAllowed } from "../errors.ts";
import {
  type BlockSearch,
  claimFreeBlock,
  claimExistingBlock,
  hasFreeAddress,
  isBlockOf,
  orderOf,
  withExpiredCooldownsFreed,
  tryClaim,
} from "./find-free-block.ts";
import type { PoolUse } from "./pools.ts";
import type { StoredAffinity, StoredBlock, StoredHandle } from "../records.ts";
import { type ExtraWrites, type TakeRequest, takeFromBlock } from "./take-from-block.ts";

export interface AutoAssignRequest extends HandleAndAttributes {
  readonly version: IpVersion;
  readonly count: number;
  /** The node the addresses are for. */
  readonly host: string;
  readonly use: PoolUse;
  /** Assign only from these pools, in this order. */
  readonly pools?: readonly Cidr[];
  readonly namespaceLabels?: Labels;
  /** Maximum number of the host's blocks of this family. If the cluster's setting is smaller, the setting applies. */
  readonly maxBlocks?: number;
  readonly hostReserved?: HostReserved;
  /** Maximum number of the handle's addresses of this family; beyond it, `HandleLimitReached` is thrown. */
  readonly maxPerHandle?: number;
  /** The handle as this caller wrote it last. By default the handle is assumed not to exist; if it does, it is read. */
  readonly handle?: StoredHandle;
  /**
   * Written in the same transaction if the datastore has transactions and all addresses come from one block
   * (`Assignments.extraRevisions`). If one of these writes conflicts, nothing is assigned (`ExtraWritesConflict`).
   */
  readonly extraWrites?: ExtraWrites;
}

export interface Assignments {
  readonly version: IpVersion;
  readonly requested: number;
  /** Each address with the prefix length of its block. */
  readonly addresses: readonly Cidr[];
  /** Why there are fewer than requested. */
  readonly messages: readonly string[];
  /** The revisions of the extra writes, if they were done. */
  readonly extraRevisions?: readonly Revision[];
  /** The handle after the last write. It may count too many addresses after a crash, never too few. */
  readonly handle?: StoredHandle;
}

/** `Assigned 1 out of 2 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/24]`. */
export function describeShortage({ addresses, requested, version, messages }: Assignments): string {
  return [`Assigned ${addresses.length} out of ${requested} requested IPv${version} addresses`, ...messages].join("; ");
}

/**
 * Assigns addresses. With a cache, the first attempt decides by cached values and takes from blocks that the host owns. If
 * that does not give all addresses, the rest is assigned by reads from the datastore.
 */
export async function autoAssign(context: Context, request: AutoAssignRequest): Promise<Assignments> {
  if (!request.use) throw new BadRequest("must specify the intended use when assigning an IP");
  const assignment = new Assignment(context, request);
  const cached = await cachedInputs(context, request);
  if (cached !== undefined) await assignment.takeFromCachedBlocks(cached);
  if (assignment.isComplete) return assignment.result([]);
  const inputs = await readInputs(context, request);
  return assignment.result(await new AddressSearch(context, request, inputs, assignment).run());
}

/** The addresses assigned to a request so far. */
class Assignment {
  readonly #addresses: Cidr[] = [];
  #extraRevisions: readonly Revision[] | undefined;
  #handle: StoredHandle | undefined;

  constructor(
    readonly context: Context,
    readonly request: AutoAssignRequest,
  ) {
    this.#handle = request.handle;
  }

  get addresses(): readonly Cidr[] {
    return this.#addresses;
  }
  get missing(): number {
    return this.request.count - this.#addresses.length;
  }
  get isComplete(): boolean {
    return this.missing === 0;
  }

  /** @param messages why addresses are missing */
  result(messages: readonly string[]): Assignments {
    return {
      version: this.request.version,
      requested: this.request.count,
      addresses: this.#addresses,
      messages: this.isComplete ? [] : messages,
      extraRevisions: this.#extraRevisions,
      handle: this.#handle,
    };
  }

  async takeFromCachedBlocks(inputs: AssignmentInputs): Promise<void> {
    for (const affinity of inputs.ownAffinities) {
      const { cidr } = affinity.key;
      if (this.isComplete) return;
      if (!isConfirmed(affinity) || inputs.reservations.covers(cidr)) continue;
      const block = await this.context.ownBlock(cidr);
      if (block !== undefined) await this.take(inputs, block, inputs.owner);
    }
  }

  /** @param requiredOwner take addresses only if the block has this owner; checked again whenever the block is read again */
  async take(inputs: AssignmentInputs, block: StoredBlock, requiredOwner?: BlockOwner): Promise<void> {
    const { config, owner, reservations } = inputs;
    const { handleId, attributes, extraWrites, count, maxPerHandle } = this.request;
    const taking: TakeRequest = {
      count: this.missing,
      allocation: { handleId, attributes },
      isReserved: (address) => reservations.has(address),
      cooldownSeconds: config.ipCooldownSeconds ?? 0,
      requiredOwner: requiredOwner ?? (config.strictAffinity ? owner : undefined),
      maxPerHandle,
      handle: this.#handle,
      extraWrites: this.missing < count ? undefined : extraWrites,
    };
    const taken = await takeFromBlock(this.context, block, taking);
    this.#addresses.push(...taken.addresses);
    this.#extraRevisions ??= taken.extraRevisions;
    this.#handle = taken.handle ?? this.#handle;
  }
}

/** Full blocks are common, so this many are read concurrently. */
const READ_AHEAD = 4;
/** If every block is claimed: the number of blocks that are tried before all blocks are listed. */
const NEARBY_BLOCKS = 16;

/** Searches for addresses by reads from the datastore: own blocks, then a new block, then blocks of other hosts. */
class AddressSearch {
  /** Blocks that need not be tried again. */
  readonly #exhausted = new Set<Cidr>();
  readonly #cooldownSeconds: number;
  #ownedBlocks: number;

  constructor(
    readonly context: Context,
    readonly request: AutoAssignRequest,
    readonly inputs: AssignmentInputs,
    readonly assignment: Assignment,
  ) {
    this.#cooldownSeconds = inputs.config.ipCooldownSeconds ?? 0;
    this.#ownedBlocks = inputs.ownAffinities.length;
  }

  /** @returns why addresses may be missing */
  async run(): Promise<readonly string[]> {
    await this.#fromOwned();
    if (this.#missing > 0) await this.#fromClaimed();
    if (this.#missing > 0) await this.#fromOthers();
    const { config, usablePools } = this.inputs;
    if (config.strictAffinity) return ["No more free affine blocks and strict affinity enabled"];
    return [`No IPs available in pools: [${usablePools.map((pool) => pool.cidr).join(" ")}]`];
  }

  get #missing(): number {
    return this.assignment.missing;
  }

  async #fromOwned(): Promise<void> {
    const { ownAffinities } = this.inputs;
    const notReserved = ownAffinities.filter(({ key }) => !this.inputs.reservations.covers(key.cidr));
    for (const { key } of ownAffinities) this.#exhausted.add(key.cidr);
    // The first block usually has a free address, so it is read alone.
    for (let i = 0, width = 1; i < notReserved.length && this.#missing > 0; i += width, width = READ_AHEAD) {
      const ahead = notReserved.slice(i, i + width);
      const blocks = await Promise.all(ahead.map(({ key }) => this.context.records.block(key.cidr)));
      for (const [j, affinity] of ahead.entries()) if (this.#missing > 0) await this.#takeResolved(affinity, blocks[j]);
    }
  }

  async #takeResolved(first: StoredAffinity, known: StoredBlock | undefined): Promise<void> {
    const { cidr } = first.key;
    await retryOnConflict(this.context, `affinity for ${cidr}`, async (attempt) => {
      const affinity = attempt === 0 ? first : await this.context.records.affinity(blockOwnerOf(first), cidr);
      if (affinity === undefined) return true;
      try {
        const before = attempt === 0 ? known : undefined;
        await this.#take(await resolveAffinity(this.context, affinity, this.request.hostReserved, before));
        return true;
      } catch (error) {
        if (error instanceof BlockClaimed) return true; // another host owns it now
        if (isConflict(error)) return undefined; // another process of this host wrote it
        throw error;
      }
    });
  }

  async #fromClaimed(): Promise<void> {
    while (this.#missing > 0) {
      this.#requireMayClaim();
      const block = await claimFreeBlock(this.context, this.#search);
      if (block === undefined) return;
      await this.#takeClaimed(block);
    }
  }

  /** @throws BlockLimitReached, NoBlockAllowed */
  #requireMayClaim(): void {
    const { config, maxBlocks } = this.inputs;
    if (this.#ownedBlocks >= maxBlocks)
      throw new BlockLimitReached(this.request.host, maxBlocks, this.assignment.addresses);
    if (!config.autoAllocateBlocks) throw new NoBlockAllowed(this.request.host, this.assignment.addresses);
  }

  get #search(): BlockSearch {
    return { ...searchIn(this.inputs, this.request), exhausted: this.#exhausted };
  }

  async #takeClaimed(block: StoredBlock): Promise<void> {
    await this.#take(block);
    this.#exhausted.add(block.key.cidr);
    this.#ownedBlocks++;
  }

  /** Every block is claimed. Tries a few in this host's order, then all: an empty one is taken over, others lend addresses. */
  async #fromOthers(): Promise<void> {
    const { usablePools, config } = this.inputs;
    if (!config.strictAffinity)
      for (const pool of usablePools) if (this.#missing > 0) await this.#fromBlocks(await this.#blocksNearStart(pool));
    if (this.#missing > 0) await this.#fromBlocks(await this.#allBlocks());
  }

  async #blocksNearStart(pool: IpPool): Promise<readonly StoredBlock[]> {
    const order = orderOf(this.context, pool, this.inputs.owner);
    const count = order.count < NEARBY_BLOCKS ? Number(order.count) : NEARBY_BLOCKS;
    const near = Array.from({ length: count }, (_, i) => order.at(BigInt(i)));
    return (await Promise.all(near.map((cidr) => this.context.records.block(cidr)))).flatMap((block) => block ?? []);
  }

  /** Returns all blocks in this host's order. Claims blocks that have an affinity but were never created. */
  async #allBlocks(): Promise<readonly StoredBlock[]> {
    const { version } = this.request;
    const [blocks, affinities] = await Promise.all([
      this.context.records.blocks(version),
      this.context.records.affinities(version),
    ]);
    const existing = new Map(blocks.map((block) => [block.key.cidr, block]));
    const cidrs = new Set([...existing.keys(), ...affinities.map(({ key }) => key.cidr)]);
    const sorted = this.inputs.usablePools.flatMap((pool) => {
      const order = orderOf(this.context, pool, this.inputs.owner);
      return [...cidrs]
        .filter((cidr) => isBlockOf(cidr, pool) && !this.#exhausted.has(cidr))
        .map((cidr) => ({ cidr, position: order.positionOf(cidr) }))
        .sort((a, b) => (a.position < b.position ? -1 : 1))
        .map(({ cidr }) => cidr);
    });
    for (const cidr of sorted) {
      if (this.#missing === 0) break;
      if (existing.has(cidr) || this.inputs.reservations.covers(cidr)) continue;
      this.#requireMayClaim();
      const block = await tryClaim(this.context, this.#search, cidr);
      if (block !== undefined) await this.#takeClaimed(block);
    }
    return sorted.flatMap((cidr) => existing.get(cidr) ?? []);
  }

  /** @param stored in the order in which they are tried */
  async #fromBlocks(stored: readonly StoredBlock[]): Promise<void> {
    const blocks = stored.map((block) => withExpiredCooldownsFreed(this.context, block, this.#cooldownSeconds));
    while (this.#missing > 0) {
      this.#requireMayClaim();
      const block = await claimExistingBlock(this.context, this.#search, blocks);
      if (block === undefined) break;
      await this.#takeClaimed(block);
    }
    if (this.inputs.config.strictAffinity) return;
    for (const block of blocks)
      if (this.#missing > 0 && hasFreeAddress(block, this.inputs.reservations)) await this.#take(block);
  }

  #take(block: StoredBlock): Promise<void> {
    return this.assignment.take(this.inputs, block);
  }
}
