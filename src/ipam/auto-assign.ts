// Giving a host addresses of one family: from blocks it owns, then from a block it claims, then from anybody's.
import { type Cidr, cidrContains, type IpVersion } from "../lib/ip.ts";
import type { Labels } from "../model/index.ts";
import { ownerOf, resolveAffinity } from "./affinities.ts";
import type { AllocationOwner, HostReserved } from "./block.ts";
import { type Context, isLost, untilWon } from "./context.ts";
import { BadRequest, BlockClaimed, BlockLimitReached, NoBlockAllowed } from "./errors.ts";
import { claimFreeBlock, hasRoom, orderOf, rested } from "./free-block.ts";
import type { IpamPool, PoolUse } from "./pools.ts";
import type { StoredAffinity, StoredBlock } from "./records.ts";
import { readSurroundings, type Surroundings, searchIn } from "./surroundings.ts";
import { type Taking, takeFromBlock } from "./take.ts";

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
}

export interface Assignments {
  readonly version: IpVersion;
  readonly requested: number;
  /** Each address with the length of its block. */
  readonly addresses: readonly Cidr[];
  /** Why there are fewer than requested. */
  readonly messages: readonly string[];
}

/** `Assigned 1 out of 2 requested IPv4 addresses; No IPs available in pools: [10.0.0.0/24]`. */
export function describeShortage({ addresses, requested, version, messages }: Assignments): string {
  return [`Assigned ${addresses.length} out of ${requested} requested IPv${version} addresses`, ...messages].join("; ");
}

export async function autoAssign(context: Context, request: AutoAssignRequest): Promise<Assignments> {
  if (!request.use) throw new BadRequest("must specify the intended use when assigning an IP");
  const around = await readSurroundings(context, request);
  return new Assignment(context, request, around).run();
}

/** Full blocks are common: a few are read at once instead of one after the other. */
const READ_AHEAD = 4;
/** When everything is claimed, so many blocks are tried one by one before all are listed. */
const BORROW_TRIES = 8;

/** One request on its way: what it has got so far, and which blocks it need not try again. */
class Assignment {
  readonly #addresses: Cidr[] = [];
  readonly #exhausted = new Set<Cidr>();
  readonly #cooldownSeconds: number;

  constructor(
    readonly context: Context,
    readonly request: AutoAssignRequest,
    readonly around: Surroundings,
  ) {
    this.#cooldownSeconds = around.config.ipCooldownSeconds ?? 0;
  }

  async run(): Promise<Assignments> {
    const { config, usable } = this.around;
    await this.#fromOwned();
    if (this.#missing > 0) await this.#fromClaimed();
    const messages: string[] = [];
    if (this.#missing > 0 && config.strictAffinity)
      messages.push("No more free affine blocks and strict affinity enabled");
    else if (this.#missing > 0) {
      for (const pool of usable) if (this.#missing > 0) await this.#borrow(pool);
      if (this.#missing > 0) messages.push(`No IPs available in pools: [${usable.map((pool) => pool.cidr).join(" ")}]`);
    }
    const { version, count } = this.request;
    return { version, requested: count, addresses: this.#addresses, messages };
  }

  get #missing(): number {
    return this.request.count - this.#addresses.length;
  }

  async #fromOwned(): Promise<void> {
    const { owned } = this.around;
    const worthwhile = owned.filter(({ key }) => !this.around.reservations.covers(key.cidr));
    for (const { key } of owned) this.#exhausted.add(key.cidr);
    for (let i = 0; i < worthwhile.length && this.#missing > 0; i += READ_AHEAD) {
      const ahead = worthwhile.slice(i, i + READ_AHEAD);
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
    const { config, limit } = this.around;
    for (let owned = this.around.owned.length; this.#missing > 0; owned++) {
      if (owned >= limit) throw new BlockLimitReached(this.request.host, limit, this.#addresses);
      if (!config.autoAllocateBlocks) throw new NoBlockAllowed(this.request.host, this.#addresses);
      const block = await claimFreeBlock(this.context, {
        ...searchIn(this.around, this.request),
        exhausted: this.#exhausted,
      });
      if (block === undefined) return;
      await this.#take(block);
      this.#exhausted.add(block.key.cidr);
    }
  }

  /** From whatever block of the pool has room, in this host's order. */
  async #borrow(pool: IpamPool): Promise<void> {
    const { context } = this;
    const order = orderOf(context, pool, this.around.owner);
    const tries = order.count < BORROW_TRIES ? Number(order.count) : BORROW_TRIES;
    for (let i = 0; i < tries && this.#missing > 0; i += READ_AHEAD) {
      const places = Array.from({ length: Math.min(READ_AHEAD, tries - i) }, (_, j) => BigInt(i + j));
      const blocks = await Promise.all(places.map((place) => context.records.block(order.at(place))));
      for (const block of blocks) if (block !== undefined && this.#missing > 0) await this.#take(block);
    }
    if (this.#missing === 0 || order.count <= BORROW_TRIES) return;
    const withRoom = (await context.records.blocks(this.request.version))
      .filter(({ key }) => cidrContains(pool.cidr, key.cidr))
      .map((block) => rested(context, block, this.#cooldownSeconds))
      .filter((block) => hasRoom(block, this.around.reservations))
      .map((block) => ({ block, place: order.placeOf(block.key.cidr) }))
      .sort((a, b) => (a.place < b.place ? -1 : 1));
    for (const { block } of withRoom) if (this.#missing > 0) await this.#take(block);
  }

  async #take(block: StoredBlock): Promise<void> {
    const { config, owner, reservations } = this.around;
    const { handleId, attributes } = this.request;
    const taking: Taking = {
      count: this.#missing,
      for: { ...(handleId === undefined ? {} : { handleId }), ...(attributes === undefined ? {} : { attributes }) },
      isReserved: (address) => reservations.has(address),
      cooldownSeconds: this.#cooldownSeconds,
      ...(config.strictAffinity ? { onlyOf: owner } : {}),
      ...(this.request.maxPerHandle === undefined ? {} : { maxPerHandle: this.request.maxPerHandle }),
    };
    this.#addresses.push(...(await takeFromBlock(this.context, block, taking)));
  }
}
