// Typed access to the stored objects of IPAM. Absent is `undefined`, not an error; every write compares revisions.
import {
  AlreadyExists,
  type CallOptions,
  type Datastore,
  NotFound,
  type Revision,
  type Stored,
  type Write,
} from "../datastore/index.ts";
import type { Cidr, IpVersion } from "../lib/ip.ts";
import type {
  Block,
  BlockAffinity,
  BlockAffinityKey,
  BlockKey,
  IpamHandle,
  IpamHandleKey,
  KindName,
  Resource,
  StoredKey,
  ValueOf,
} from "../model/index.ts";
import type { Owner } from "./block.ts";

export type StoredBlock = Stored<BlockKey>;
export type StoredAffinity = Stored<BlockAffinityKey>;
export type StoredHandle = Stored<IpamHandleKey>;

export type BlocksWritten =
  /** The revisions of what was written with it. */
  | { readonly done: true; readonly also: readonly Revision[] }
  /** The first that was. */
  | { readonly done: false; readonly inTheWay: "block" | "handle" | "others" };

export class Records {
  constructor(
    readonly store: Datastore,
    readonly call: CallOptions = {},
  ) {}

  block(cidr: Cidr): Promise<StoredBlock | undefined> {
    return this.#get({ type: "block", cidr });
  }

  async blocks(version?: IpVersion): Promise<readonly StoredBlock[]> {
    return (await this.store.list({ type: "block", ...(version === undefined ? {} : { version }) }, this.call)).items;
  }

  /** Undefined when a block of that CIDR exists already. */
  createBlock(value: Block): Promise<StoredBlock | undefined> {
    return this.#create({ type: "block", cidr: value.cidr }, value);
  }

  /** Every write of a block moves its sequence number on. */
  updateBlock(stored: StoredBlock, value: Block): Promise<StoredBlock> {
    return this.#update(stored, next(stored, value));
  }

  deleteBlock(stored: StoredBlock): Promise<StoredBlock> {
    return this.#delete(stored);
  }

  affinity(owner: Owner, cidr: Cidr): Promise<StoredAffinity | undefined> {
    return this.#get(affinityKey(owner, cidr));
  }

  async affinitiesOf(owner: Owner, version?: IpVersion): Promise<readonly StoredAffinity[]> {
    const query = { type: "blockAffinity", host: owner.name, affinityType: owner.type } as const;
    return (await this.store.list(version === undefined ? query : { ...query, version }, this.call)).items;
  }

  /** In two lists where keys are paths: what the two kinds have in common there holds every block and handle too. */
  async affinities(version?: IpVersion): Promise<readonly StoredAffinity[]> {
    const ofVersion = version === undefined ? {} : { version };
    const kinds =
      this.store.name === "kubernetes" ? [{}] : ([{ affinityType: "host" }, { affinityType: "virtual" }] as const);
    const lists = kinds.map((kind) => this.store.list({ type: "blockAffinity", ...kind, ...ofVersion }, this.call));
    return (await Promise.all(lists)).flatMap(({ items }) => items);
  }

  createAffinity(owner: Owner, cidr: Cidr, state: BlockAffinity["state"]): Promise<StoredAffinity | undefined> {
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
   * Blocks (without a value: they go), the handle of the addresses that changed, and what the caller wants written with
   * them, in one write. Undefined where the datastore cannot: then it goes step by step.
   */
  async writeBlocks(
    blocks: readonly { readonly stored: StoredBlock; readonly value: Block | undefined }[],
    handle: Write | undefined,
    also: readonly Write[],
  ): Promise<BlocksWritten | undefined> {
    const first = blocks.map(
      ({ stored, value }): Write =>
        value === undefined
          ? { op: "delete", key: stored.key, revision: stored.revision }
          : { op: "update", entry: { ...stored, value: next(stored, value) } },
    );
    if (handle !== undefined) first.push(handle);
    const outcome = await this.store.together?.([...first, ...also], this.call);
    if (outcome === undefined) return undefined;
    if (outcome.done) return { done: true, also: outcome.revisions.slice(first.length) };
    const [refused = 0] = outcome.refused;
    return {
      done: false,
      inTheWay: refused < blocks.length ? "block" : refused < first.length ? "handle" : "others",
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
    return this.store.update({ key, value, revision, ...(uid === undefined ? {} : { uid }) }, this.call);
  }

  async #delete<K extends StoredKey>(stored: Stored<K>): Promise<Stored<K>> {
    const { key, revision, uid } = stored;
    await this.store.delete(key, { ...this.call, revision, ...(uid === undefined ? {} : { uid }) });
    return stored;
  }
}

function affinityKey(owner: Owner, cidr: Cidr): BlockAffinityKey {
  return { type: "blockAffinity", affinityType: owner.type, host: owner.name, cidr };
}

const next = (stored: StoredBlock, value: Block): Block => ({
  ...value,
  sequenceNumber: stored.value.sequenceNumber + 1n,
});
