// Reads and writes the stored objects of IPAM. A missing object is `undefined`, not an error. Every write compares revisions.
// Blocks that were read or written are reported to the cache, if there is one.
import {
  AlreadyExists,
  type CallOptions,
  type Datastore,
  NotFound,
  type Revision,
  type Stored,
  type Write,
} from "../datastore/index.ts";
import type { Cidr, IpVersion } from "../lib/ip/ip.ts";
import type {
  Block,
  BlockAffinity,
  BlockAffinityKey,
  BlockKey,
  IpamConfig,
  IpamHandle,
  IpamHandleKey,
  KindName,
  Resource,
  StoredKey,
  ValueOf,
} from "../model/index.ts";
import type { BlockOwner } from "./blocks/block.ts";

export type StoredBlock = Stored<BlockKey>;
export type StoredAffinity = Stored<BlockAffinityKey>;
export type StoredHandle = Stored<IpamHandleKey>;

export type BlocksWritten =
  | { readonly done: true; readonly handleRevision: Revision; readonly extraRevisions: readonly Revision[] }
  /** Nothing was written; `refused` is the first write that conflicted. */
  | { readonly done: false; readonly refused: "block" | "handle" | "extraWrites" };

export interface BlockObserver {
  setBlock(stored: StoredBlock): void;
  dropBlock(cidr: Cidr): void;
}

export class Records {
  constructor(
    readonly store: Datastore,
    readonly call: CallOptions = {},
    readonly observer?: BlockObserver,
  ) {}

  async config(): Promise<IpamConfig | undefined> {
    return (await this.#get({ type: "ipamConfig" }))?.value;
  }

  async block(cidr: Cidr): Promise<StoredBlock | undefined> {
    const stored = await this.#get({ type: "block", cidr });
    if (stored === undefined) this.observer?.dropBlock(cidr);
    else this.observer?.setBlock(stored);
    return stored;
  }

  async blocks(version?: IpVersion): Promise<readonly StoredBlock[]> {
    return (await this.store.list({ type: "block", version }, this.call)).items;
  }

  /** Undefined if a block of that CIDR exists already. */
  async createBlock(value: Block): Promise<StoredBlock | undefined> {
    const created = await this.#create({ type: "block", cidr: value.cidr }, value);
    if (created !== undefined) this.observer?.setBlock(created);
    return created;
  }

  /** Every write of a block increments its sequence number. */
  async updateBlock(stored: StoredBlock, value: Block): Promise<StoredBlock> {
    this.observer?.dropBlock(stored.key.cidr); // unknown until the write is confirmed
    const written = await this.#update(stored, next(stored, value));
    this.observer?.setBlock(written);
    return written;
  }

  async deleteBlock(stored: StoredBlock): Promise<StoredBlock> {
    this.observer?.dropBlock(stored.key.cidr);
    return this.#delete(stored);
  }

  affinity(owner: BlockOwner, cidr: Cidr): Promise<StoredAffinity | undefined> {
    return this.#get(affinityKey(owner, cidr));
  }

  async affinitiesOf(owner: BlockOwner, version?: IpVersion): Promise<readonly StoredAffinity[]> {
    const query = { type: "blockAffinity", host: owner.name, affinityType: owner.type } as const;
    return (await this.store.list(version === undefined ? query : { ...query, version }, this.call)).items;
  }

  /** On etcd and SQLite each affinity type is listed separately: their common prefix also contains all blocks and handles. */
  async affinities(version?: IpVersion): Promise<readonly StoredAffinity[]> {
    const ofVersion = version === undefined ? {} : { version };
    const kinds =
      this.store.name === "kubernetes" ? [{}] : ([{ affinityType: "host" }, { affinityType: "virtual" }] as const);
    const lists = kinds.map((kind) => this.store.list({ type: "blockAffinity", ...kind, ...ofVersion }, this.call));
    return (await Promise.all(lists)).flatMap(({ items }) => items);
  }

  createAffinity(owner: BlockOwner, cidr: Cidr, state: BlockAffinity["state"]): Promise<StoredAffinity | undefined> {
    return this.#create(affinityKey(owner, cidr), { state, deleted: false });
  }

  updateAffinity(stored: StoredAffinity, state: BlockAffinity["state"]): Promise<StoredAffinity> {
    return this.#update(stored, { ...stored.value, state });
  }

  deleteAffinity(stored: StoredAffinity): Promise<StoredAffinity> {
    return this.#delete(stored);
  }

  handle(handleId: string): Promise<StoredHandle | undefined> {
    return this.#get({ type: "ipamHandle", handleId });
  }

  async handles(): Promise<readonly StoredHandle[]> {
    return (await this.store.list({ type: "ipamHandle" }, this.call)).items;
  }

  /**
   * Writes blocks (without a value: deletes them), the handle of the addresses that changed, and the caller's own writes
   * in one transaction. Undefined if the datastore has no transactions.
   */
  async transactBlocks(
    blocks: readonly { readonly stored: StoredBlock; readonly value: Block | undefined }[],
    handle: Write | undefined,
    extraWrites: readonly Write[],
  ): Promise<BlocksWritten | undefined> {
    const { store } = this;
    if (store.transact === undefined) return undefined;
    const written = blocks.map(({ stored, value }) => (value === undefined ? undefined : next(stored, value)));
    const writes = blocks.map(({ stored }, i): Write => {
      const value = written[i];
      return value === undefined
        ? { op: "delete", key: stored.key, revision: stored.revision }
        : { op: "update", entry: { ...stored, value } };
    });
    if (handle !== undefined) writes.push(handle);
    for (const { stored } of blocks) this.observer?.dropBlock(stored.key.cidr); // unknown until the write is confirmed
    const outcome = await store.transact([...writes, ...extraWrites], this.call);
    if (!outcome.done) {
      const [refused = 0] = outcome.refused;
      return {
        done: false,
        refused: refused < blocks.length ? "block" : refused < writes.length ? "handle" : "extraWrites",
      };
    }
    for (const [i, { stored }] of blocks.entries()) {
      const [value, revision = ""] = [written[i], outcome.revisions[i]];
      if (value !== undefined) this.observer?.setBlock({ key: stored.key, value, revision });
    }
    return {
      done: true,
      handleRevision: outcome.revisions[blocks.length] ?? "",
      extraRevisions: outcome.revisions.slice(writes.length),
    };
  }

  createHandle(value: IpamHandle): Promise<StoredHandle | undefined> {
    return this.#create({ type: "ipamHandle", handleId: value.handleId }, value);
  }

  updateHandle(stored: StoredHandle, value: IpamHandle): Promise<StoredHandle> {
    return this.#update(stored, value);
  }

  deleteHandle(stored: StoredHandle): Promise<StoredHandle> {
    return this.#delete(stored);
  }

  async resource(kind: KindName, name: string): Promise<Resource | undefined> {
    return (await this.#get({ type: "resource", kind, name }))?.value;
  }

  async resources(kind: KindName): Promise<readonly Resource[]> {
    return (await this.store.list({ type: "resource", kind }, this.call)).items.map((item) => item.value);
  }

  async #get<K extends StoredKey>(key: K): Promise<Stored<K> | undefined> {
    try {
      return await this.store.get(key, this.call);
    } catch (error) {
      if (error instanceof NotFound) return undefined;
      throw error;
    }
  }

  async #create<K extends StoredKey>(key: K, value: ValueOf<K>): Promise<Stored<K> | undefined> {
    try {
      return await this.store.create({ key, value }, this.call);
    } catch (error) {
      if (error instanceof AlreadyExists) return undefined;
      throw error;
    }
  }

  #update<K extends StoredKey>(stored: Stored<K>, value: ValueOf<K>): Promise<Stored<K>> {
    const { key, revision, uid } = stored;
    return this.store.update({ key, value, revision, uid }, this.call);
  }

  async #delete<K extends StoredKey>(stored: Stored<K>): Promise<Stored<K>> {
    const { key, revision, uid } = stored;
    await this.store.delete(key, { ...this.call, revision, uid });
    return stored;
  }
}

function affinityKey(owner: BlockOwner, cidr: Cidr): BlockAffinityKey {
  return { type: "blockAffinity", affinityType: owner.type, host: owner.name, cidr };
}

const next = (stored: StoredBlock, value: Block): Block => ({
  ...value,
  sequenceNumber: stored.value.sequenceNumber + 1n,
});
