// Giving a host addresses of one family: from blocks it owns, then from a block it claims, then from anybody's.
import type { Revision } from "../datastore/index.ts";
import type { Cidr, IpVersion } from "../lib/ip.ts";
import type { Labels } from "../model/index.ts";
import { ownerOf, resolveAffinity } from "./affinities.ts";
import { type AllocationOwner, type HostReserved, ownerText } from "./block.ts";
import { type Context, isLost, untilWon } from "./context.ts";
import { BadRequest, BlockClaimed, BlockLimitReached, NoBlockAllowed } from "./errors.ts";
import {
  type BlockSearch,
  claimFreeBlock,
  claimUsedBlock,
  hasRoom,
  isBlockOf,
  orderOf,
  rested,
  tryClaim,
} from "./free-block.ts";
import type { IpamPool, PoolUse } from "./pools.ts";
import type { StoredAffinity, StoredBlock } from "./records.ts";
import { ownerFor, readSurroundings, type Surroundings, searchIn } from "./surroundings.ts";
import { type Also, type Taking, takeFromBlock } from "./take.ts";

export interface AutoAssignRequest extends AllocationOwner {
  readonly version: IpVersion;
  readonly count: number;
  /** The node the addresses are for. */
  readonly host: string;
  readonly use: PoolUse;
  /** Draw from these pools only, in this order. */
  readonly pools?: readonly Cidr[];
  readonly namespaceLabels?: Labels;
  /** At most so many blocks of this family for the host; the smaller of this and the cluster's setting counts. */
  readonly maxBlocks?: number;
  readonly hostReserved?: HostReserved;
  /** At most so many addresses of this family under the handle, or `HandleLimitReached`. */
  readonly maxPerHandle?: number;
  /**
   * What to write in the same moment, when the datastore can and all addresses come from one block; `Assignments.also`
   * tells whether it was.
   */
  readonly also?: Also;
}

export interface Assignments {
  readonly version: IpVersion;
  readonly requested: number;
  /** Each address with the length of its block. */
  readonly addresses: readonly Cidr[];
  /** Why there are fewer than requested. */
  readonly messages: readonly string[];
  /** The revisions of what the request wanted written with them, if it was. */
  readonly also?: readonly Revision[];
  /** How many addresses the handle counts now, these included. It may count too many after a crash, never too few. */
  readonly handleCount?: number;
}

/** `Assigned 1 out of 2 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/24]`. */
export function describeShortage({ addresses, requested, version, messages }: Assignments): string {
  return [`Assigned ${addresses.length} out of ${requested} requested IPv${version} addresses`, ...messages].join("; ");
}

export async function autoAssign(context: Context, request: AutoAssignRequest): Promise<Assignments> {
  if (!request.use) throw new BadRequest("must specify the intended use when assigning an IP");
  const who = `${ownerText(ownerFor(request.host, request.use))} IPv${request.version}`;
  return context.memory.inTurn(who, context.signal, () =>
    context.attempt(async (here) => new Assignment(here, request, await readSurroundings(here, request)).run()),
  );
}

/** Full blocks are common: a few are read at once instead of one after the other. */
const READ_AHEAD = 4;
/** When everything is claimed, so many blocks are looked at before all are listed. */
const NEAR = 16;

/** One request on its way: what it has got so far, and which blocks it need not try again. */
class Assignment {
  readonly #addresses: Cidr[] = [];
  readonly #exhausted = new Set<Cidr>();
  readonly #cooldownSeconds: number;
  #owned: number;
  #also: readonly Revision[] | undefined;
  #handleCount: number | undefined;

  constructor(
    readonly context: Context,
    readonly request: AutoAssignRequest,
    readonly around: Surroundings,
  ) {
    this.#cooldownSeconds = around.config.ipCooldownSeconds ?? 0;
    this.#owned = around.owned.length;
  }

  async run(): Promise<Assignments> {
    const { config, usable } = this.around;
    await this.#fromOwned();
    if (this.#missing > 0) await this.#fromClaimed();
    if (this.#missing > 0) await this.#fromOthers();
    const why = config.strictAffinity
      ? "No more free affine blocks and strict affinity enabled"
      : `No IPs available in pools: [${usable.map((pool) => pool.cidr).join(" ")}]`;
    const { version, count } = this.request;
    return {
      version,
      requested: count,
      addresses: this.#addresses,
      messages: this.#missing > 0 ? [why] : [],
      ...(this.#also === undefined ? {} : { also: this.#also }),
      ...(this.#handleCount === undefined ? {} : { handleCount: this.#handleCount }),
    };
  }

  get #missing(): number {
    return this.request.count - this.#addresses.length;
  }

  async #fromOwned(): Promise<void> {
    const { owned } = this.around;
    const worthwhile = owned.filter(({ key }) => !this.around.reservations.covers(key.cidr));
    for (const { key } of owned) this.#exhausted.add(key.cidr);
    // Mostly the first one will do.
    for (let i = 0, width = 1; i < worthwhile.length && this.#missing > 0; i += width, width = READ_AHEAD) {
      const ahead = worthwhile.slice(i, i + width);
      const blocks = await Promise.all(ahead.map(({ key }) => this.context.records.block(key.cidr)));
      for (const [j, affinity] of ahead.entries()) if (this.#missing > 0) await this.#takeResolved(affinity, blocks[j]);
    }
  }

  async #takeResolved(first: StoredAffinity, known: StoredBlock | undefined): Promise<void> {
    const { cidr } = first.key;
    await untilWon(this.context, `affinity for ${cidr}`, async (attempt) => {
      const affinity = attempt === 0 ? first : await this.context.records.affinity(ownerOf(first), cidr);
      if (affinity === undefined) return true;
      try {
        const before = attempt === 0 ? known : undefined;
        await this.#take(await resolveAffinity(this.context, affinity, this.request.hostReserved, before));
        return true;
      } catch (error) {
        if (error instanceof BlockClaimed) return true; // another host has it by now
        if (isLost(error)) return undefined; // another process of this host was at it
        throw error;
      }
    });
  }

  async #fromClaimed(): Promise<void> {
    await this.context.settle(); // a claim is several writes, and a look at many affinities before them
    while (this.#missing > 0) {
      this.#mayClaim();
      const block = await claimFreeBlock(this.context, this.#search);
      if (block === undefined) return;
      await this.#takeClaimed(block);
    }
  }

  #mayClaim(): void {
    const { config, limit } = this.around;
    if (this.#owned >= limit) throw new BlockLimitReached(this.request.host, limit, this.#addresses);
    if (!config.autoAllocateBlocks) throw new NoBlockAllowed(this.request.host, this.#addresses);
  }

  get #search(): BlockSearch {
    return { ...searchIn(this.around, this.request), exhausted: this.#exhausted };
  }

  async #takeClaimed(block: StoredBlock): Promise<void> {
    await this.#take(block);
    this.#exhausted.add(block.key.cidr);
    this.#owned++;
  }

  /** Every block is claimed: look at a few in this host's order, then at all, for an idle one or one with room. */
  async #fromOthers(): Promise<void> {
    const { usable, config } = this.around;
    if (!config.strictAffinity)
      for (const pool of usable) if (this.#missing > 0) await this.#fromBlocks(await this.#nearStart(pool));
    if (this.#missing > 0) await this.#fromBlocks(await this.#allBlocks());
  }

  async #nearStart(pool: IpamPool): Promise<readonly StoredBlock[]> {
    const order = orderOf(this.context, pool, this.around.owner);
    const count = order.count < NEAR ? Number(order.count) : NEAR;
    const near = Array.from({ length: count }, (_, i) => order.at(BigInt(i)));
    return (await Promise.all(near.map((cidr) => this.context.records.block(cidr)))).flatMap((block) => block ?? []);
  }

  /** In this host's order. On the way, blocks that somebody wanted but never made are claimed. */
  async #allBlocks(): Promise<readonly StoredBlock[]> {
    const { version } = this.request;
    const [blocks, affinities] = await Promise.all([
      this.context.records.blocks(version),
      this.context.records.affinities(version),
    ]);
    const made = new Map(blocks.map((block) => [block.key.cidr, block]));
    const names = new Set([...made.keys(), ...affinities.map(({ key }) => key.cidr)]);
    const sorted = this.around.usable.flatMap((pool) => {
      const order = orderOf(this.context, pool, this.around.owner);
      return [...names]
        .filter((cidr) => isBlockOf(cidr, pool) && !this.#exhausted.has(cidr))
        .map((cidr) => ({ cidr, place: order.placeOf(cidr) }))
        .sort((a, b) => (a.place < b.place ? -1 : 1))
        .map(({ cidr }) => cidr);
    });
    for (const cidr of sorted) {
      if (this.#missing === 0) break;
      if (made.has(cidr) || this.around.reservations.covers(cidr)) continue;
      this.#mayClaim();
      const block = await tryClaim(this.context, this.#search, cidr);
      if (block !== undefined) await this.#takeClaimed(block);
    }
    return sorted.flatMap((cidr) => made.get(cidr) ?? []);
  }

  /** @param found in order */
  async #fromBlocks(found: readonly StoredBlock[]): Promise<void> {
    const blocks = found.map((block) => rested(this.context, block, this.#cooldownSeconds));
    while (this.#missing > 0) {
      this.#mayClaim();
      const block = await claimUsedBlock(this.context, this.#search, blocks);
      if (block === undefined) break;
      await this.#takeClaimed(block);
    }
    if (this.around.config.strictAffinity) return;
    for (const block of blocks)
      if (this.#missing > 0 && hasRoom(block, this.around.reservations)) await this.#take(block);
  }

  async #take(block: StoredBlock): Promise<void> {
    const { config, owner, reservations } = this.around;
    const { handleId, attributes, also, count } = this.request;
    const taking: Taking = {
      count: this.#missing,
      for: { ...(handleId === undefined ? {} : { handleId }), ...(attributes === undefined ? {} : { attributes }) },
      isReserved: (address) => reservations.has(address),
      cooldownSeconds: this.#cooldownSeconds,
      ...(config.strictAffinity ? { onlyOf: owner } : {}),
      ...(this.request.maxPerHandle === undefined ? {} : { maxPerHandle: this.request.maxPerHandle }),
      ...(also === undefined || this.#missing < count ? {} : { also }),
    };
    const taken = await takeFromBlock(this.context, block, taking);
    this.#addresses.push(...taken.addresses);
    this.#also ??= taken.also;
    this.#handleCount = taken.handleCount ?? this.#handleCount;
  }
}
