// Implements an in-memory datastore for tests of IPAM, with revisions and compare-and-swap like the real drivers. A test can
// run code before and after every operation: to interleave tasks in a chosen order, to fail an operation, or to simulate a
// crash of the caller.
import {
  AlreadyExists,
  Conflict,
  type Datastore,
  type DeleteOptions,
  type Entry,
  type KeyOfQuery,
  type ListResult,
  NotFound,
  type Stored,
  type TransactionResult,
  Unsupported,
  type Watch,
  type Write,
} from "../../datastore/index.ts";
import { ipVersion } from "../../lib/ip/ip.ts";
import type { StoredKey, StoredQuery } from "../../model/index.ts";

export interface Operation {
  readonly name: "create" | "update" | "apply" | "delete" | "transact" | "get" | "list";
  readonly key?: StoredKey;
}

export class MemoryDatastore implements Datastore {
  readonly name = "sqlite";
  readonly #items = new Map<string, Stored>();
  #revision = 0;
  /** Runs before an operation takes effect. If it throws, the operation fails with that error. */
  before: (operation: Operation) => void | Promise<void> = () => {};
  /** Runs after an operation took effect and before it returns. If it throws, the write was done although the caller failed. */
  after: (operation: Operation) => void = () => {};

  readonly transact?: NonNullable<Datastore["transact"]>;

  /** @param stepwise a datastore without transactions */
  constructor(stepwise = false) {
    if (!stepwise) this.transact = (writes) => this.#transact(writes);
  }

  /** Returns another client of the same data, with its own `before` and `after`. */
  connect(stepwise = false): MemoryDatastore {
    const other = new MemoryDatastore(stepwise);
    Object.defineProperty(other, "shared", { value: this.shared });
    return other;
  }
  /** The instance that stores the data. */
  readonly shared: MemoryDatastore = this;

  create<K extends StoredKey>(entry: Entry<K>): Promise<Stored<K>> {
    return this.#run("create", entry.key, () => {
      const known = this.#data.get(pathOf(entry.key));
      if (known !== undefined) throw new AlreadyExists(pathOf(entry.key), known);
      return this.#put(entry);
    });
  }

  update<K extends StoredKey>(entry: Entry<K>): Promise<Stored<K>> {
    return this.#run("update", entry.key, () => {
      this.#expect(entry.key, entry.revision);
      return this.#put(entry);
    });
  }

  apply<K extends StoredKey>(entry: Entry<K>): Promise<Stored<K>> {
    return this.#run("apply", entry.key, () => this.#put(entry));
  }

  delete<K extends StoredKey>(key: K, options: DeleteOptions = {}): Promise<Stored<K>> {
    return this.#run("delete", key, () => {
      const known = this.#expect(key, options.revision);
      this.#data.delete(pathOf(key));
      return known;
    });
  }

  #transact(writes: readonly Write[]): Promise<TransactionResult> {
    return this.#run("transact", undefined, () => {
      const refused = writes.flatMap((write, i) => {
        const known = this.#data.get(pathOf(write.op === "delete" ? write.key : write.entry.key));
        const expected =
          write.op === "create" ? undefined : write.op === "delete" ? write.revision : write.entry.revision;
        return known?.revision === expected ? [] : [i];
      });
      if (refused.length > 0) return { done: false, refused };
      const revisions = writes.map((write) => {
        if (write.op !== "delete") return this.#put(write.entry).revision;
        this.#data.delete(pathOf(write.key));
        return String(++this.shared.#revision);
      });
      return { done: true, revisions };
    });
  }

  get<K extends StoredKey>(key: K): Promise<Stored<K>> {
    return this.#run("get", key, () => this.#expect(key, undefined));
  }

  list<Q extends StoredQuery>(query: Q): Promise<ListResult<KeyOfQuery<Q>>> {
    return this.#run("list", undefined, () => ({
      items: [...this.#data]
        .filter(([, item]) => matches(item.key, query))
        .sort(([a], [b]) => (a < b ? -1 : 1))
        .map(([, item]) => item as Stored<KeyOfQuery<Q>>),
      revision: String(this.shared.#revision),
    }));
  }

  watch<Q extends StoredQuery>(query: Q): Promise<Watch<KeyOfQuery<Q>>> {
    return Promise.reject(new Unsupported("watch", query.type));
  }

  close(): Promise<void> {
    return Promise.resolve();
  }

  /** Returns all entries, without running `before` and `after`. */
  snapshot(): readonly Stored[] {
    return [...this.#data.values()];
  }

  get #data(): Map<string, Stored> {
    return this.shared.#items;
  }

  async #run<T>(name: Operation["name"], key: StoredKey | undefined, effect: () => T): Promise<T> {
    const operation = key === undefined ? { name } : { name, key };
    await this.before(operation);
    const result = effect();
    this.after(operation);
    return result;
  }

  #expect<K extends StoredKey>(key: K, revision: string | undefined): Stored<K> {
    const known = this.#data.get(pathOf(key));
    if (known === undefined) throw new NotFound(pathOf(key));
    if (revision !== undefined && known.revision !== revision) throw new Conflict(pathOf(key), known);
    return known as Stored<K>;
  }

  #put<K extends StoredKey>({ key, value }: Entry<K>): Stored<K> {
    const stored = { key, value, revision: String(++this.shared.#revision) };
    this.#data.set(pathOf(key), stored as Stored);
    return stored;
  }
}

function pathOf(key: StoredKey): string {
  switch (key.type) {
    case "resource":
      return `${key.kind}/${key.namespace ?? ""}/${key.name}`;
    case "block":
      return `block/${key.cidr}`;
    case "blockAffinity":
      return `${key.affinityType}/${key.host}/${key.cidr}`;
    case "ipamHandle":
      return `handle/${key.handleId}`;
    case "ipamHost":
      return `ipamHost/${key.host}`;
    default:
      return key.type;
  }
}

function matches(key: StoredKey, query: StoredQuery): boolean {
  if (key.type !== query.type) return false;
  if (key.type === "resource" && query.type === "resource")
    return key.kind === query.kind && (query.name === undefined || key.name === query.name);
  if (key.type === "block" && query.type === "block")
    return query.version === undefined || ipVersion(key.cidr) === query.version;
  if (key.type === "blockAffinity" && query.type === "blockAffinity")
    return (
      (query.host === undefined || key.host === query.host) &&
      (query.affinityType === undefined || key.affinityType === query.affinityType) &&
      (query.version === undefined || ipVersion(key.cidr) === query.version)
    );
  return true;
}
