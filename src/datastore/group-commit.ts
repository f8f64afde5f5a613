// Writes of several requests in one. While a write is on its way, those that come after it gather; when it has arrived they
// leave together, as one. An entry that is about to be written is shown as it will be, so that requests that change the
// same block one after the other need not wait for each other's answers.
//
// What comes out is what would have come of them one after the other, in the order they came: a request that gathers with
// others is held against what those before it will have written, and all of it against the datastore when it is written.
// When that fails, each goes alone.
import { untilAborted } from "../lib/retry.ts";
import { keyMatches, keyPath, type StoredKey, type StoredQuery } from "../model/index.ts";
import type { CallOptions, Condition, Datastore, DeleteOptions, Entry, KeyOfQuery, ListOptions } from "./datastore.ts";
import type { ListResult, ReadOptions, Removed, Revision, Stored, Together, TogetherOptions } from "./datastore.ts";
import type { UpdateOptions, Watch, WatchOptions, Write } from "./datastore.ts";
import { pathOf } from "./codec.ts";
import { Conflict, Unavailable } from "./errors.ts";
import { nameOfKey } from "./key-name.ts";

/** So many comparisons are one write at most; etcd takes 128. */
const MOST = 100;
/** Written over before anybody could rely on it. */
const SUPERSEDED: Revision = "";
/** Of these so many are remembered after they have arrived; older ones are taken for outdated. */
const KEPT_TOKENS = 256;
const TOKEN = "gathering ";

interface Member {
  readonly writes: readonly Write[];
  /** Where each of them stands. */
  readonly paths: readonly string[];
  readonly conditions: readonly Condition[];
  /** What each write's entry is called until its revision is known. */
  readonly tokens: readonly Revision[];
  readonly resolve: (outcome: Together) => void;
  readonly reject: (error: unknown) => void;
}

/** What will be there, and what must be there before. */
interface Row {
  readonly key: StoredKey;
  readonly before: Revision | undefined;
  readonly write: Write;
  readonly token: Revision;
  readonly by: Member;
}

class Batch {
  readonly members: Member[] = [];
  readonly rows = new Map<string, Row>();
  readonly arrived = Promise.withResolvers<void>();
  /** Of the members so far, once there is more than one: mostly all have the same. */
  readonly #conditions = new Map<string, Condition>();
  #counted = 0;

  get conditions(): ReadonlyMap<string, Condition> {
    for (const { conditions } of this.members.slice(this.#counted))
      for (const condition of conditions) this.#conditions.set(JSON.stringify(condition), condition);
    this.#counted = this.members.length;
    return this.#conditions;
  }

  hasRoomFor(writes: readonly Write[], conditions: readonly Condition[]): boolean {
    if (this.members.length === 0) return true;
    return this.rows.size + this.conditions.size + writes.length + conditions.length <= MOST;
  }
}

type WriteTogether = NonNullable<Datastore["together"]>;

export class GroupCommit implements Datastore {
  readonly name: Datastore["name"];
  readonly #store: Datastore;
  readonly #writeTogether: WriteTogether;
  readonly #onTaken: () => void;
  readonly #tokens = new Map<Revision, Revision | "outdated">();
  #gathering: Batch | undefined;
  #sending: Batch | undefined;
  #count = 0;

  /**
   * The datastore itself when it cannot write several things at once.
   * @param onTaken a write was taken: what is decided next may build on it
   */
  static on(store: Datastore, onTaken: () => void = () => {}): Datastore {
    const together = store.together?.bind(store);
    return together === undefined ? store : new GroupCommit(store, together, onTaken);
  }

  private constructor(store: Datastore, together: WriteTogether, onTaken: () => void) {
    this.name = store.name;
    this.#store = store;
    this.#writeTogether = together;
    this.#onTaken = onTaken;
  }

  async together(writes: readonly Write[], options: TogetherOptions = {}): Promise<Together> {
    const { conditions = [], signal } = options;
    signal?.throwIfAborted();
    const paths = writes.map((write) => pathOf(keyOf(write))); // what has no place is refused before it touches others
    let batch = (this.#gathering ??= new Batch());
    while (!batch.hasRoomFor(writes, conditions)) {
      await batch.arrived.promise;
      batch = this.#gathering ??= new Batch();
    }
    const refused = [...writes.keys()].filter((i) => !this.#mayFollow(keyOf(writes[i]), expectedBy(writes[i])));
    if (refused.length > 0 || !conditions.every((condition) => this.#mayHold(condition))) {
      if (batch.members.length === 0) this.#gathering = undefined;
      return { done: false, refused };
    }
    const { promise, resolve, reject } = Promise.withResolvers<Together>();
    const tokens = writes.map(() => `${TOKEN}${++this.#count}`);
    const member: Member = { writes, paths, conditions, tokens, resolve, reject };
    add(batch, member);
    if (writes.length > 0) this.#onTaken(); // else it only asked whether something still holds, and goes on
    if (this.#sending === undefined) this.#send(batch);
    return untilAborted(promise, signal);
  }

  async get<K extends StoredKey>(key: K, options: ReadOptions = {}): Promise<Stored<K>> {
    const coming = options.revision === undefined ? this.#coming(key) : undefined;
    if (coming === undefined) return this.#store.get(key, options);
    const { row, batch } = coming;
    // Only a block's next owner decides by what is to come, and is bound to it by writing the block.
    if (key.type === "block" && row.write.op !== "delete")
      return { ...(row.write.entry as Entry<K>), revision: row.token };
    await batch.arrived.promise;
    return this.get(key, options);
  }

  list<Q extends StoredQuery>(query: Q, options?: ListOptions): Promise<ListResult<KeyOfQuery<Q>>> {
    return this.#store.list(query, options);
  }
  watch<Q extends StoredQuery>(query: Q, options: WatchOptions): Promise<Watch<KeyOfQuery<Q>>> {
    return this.#store.watch(query, options);
  }
  create<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>> {
    return this.#store.create(entry, options);
  }
  apply<K extends StoredKey>(entry: Entry<K>, options?: CallOptions): Promise<Stored<K>> {
    return this.#store.apply(entry, options);
  }
  async update<K extends StoredKey>(entry: Entry<K>, options?: UpdateOptions): Promise<Stored<K>> {
    if (entry.revision === undefined) return this.#store.update(entry, options);
    return this.#store.update({ ...entry, revision: await this.#arrived(entry.key, entry.revision) }, options);
  }
  async delete<K extends StoredKey>(key: K, options: DeleteOptions = {}): Promise<Removed<K>> {
    if (options.revision === undefined) return this.#store.delete(key, options);
    return this.#store.delete(key, { ...options, revision: await this.#arrived(key, options.revision) });
  }
  close(): Promise<void> {
    return this.#store.close();
  }

  /** The last write of an entry that has not arrived yet. */
  #coming(key: StoredKey): { readonly row: Row; readonly batch: Batch } | undefined {
    for (const batch of [this.#gathering, this.#sending]) {
      const row = batch === undefined || batch.rows.size === 0 ? undefined : batch.rows.get(keyPath(key));
      if (batch !== undefined && row !== undefined) return { row, batch };
    }
    return undefined;
  }

  /** Whether an entry may still be as it was seen, when all that was taken has been written. */
  #mayFollow(key: StoredKey, seen: Revision | undefined): boolean {
    const coming = this.#coming(key);
    if (coming !== undefined) return seen === coming.row.token;
    return seen === undefined || !isUnknown(this.#known(seen));
  }

  #mayHold(condition: Condition): boolean {
    if (condition.is === "unchanged") return this.#mayFollow(condition.key, condition.revision);
    return [this.#gathering, this.#sending].every(
      (batch) => batch === undefined || [...batch.rows.values()].every(({ key }) => !keyMatches(condition.query, key)),
    );
  }

  #send(batch: Batch): void {
    this.#gathering = undefined;
    this.#sending = batch;
    void this.#write(batch)
      .catch((error: unknown) => this.#failAll(batch.members, error)) // whatever it was, nobody waits for ever
      .finally(() => {
        this.#sending = undefined;
        batch.arrived.resolve();
        const next = this.#gathering;
        if (next !== undefined) this.#send(next);
      });
  }

  /** The members are told what became of it. */
  async #write(batch: Batch): Promise<void> {
    const [first] = batch.members;
    if (first !== undefined && batch.members.length === 1) return this.#writeAlone(batch, first).catch(() => {});
    const rows = [...batch.rows.values()];
    const writes = rows.map(({ write, before }) => rewritten(write, before && this.#known(before)));
    // What the batch itself writes is compared where it is written.
    const conditions = [...batch.conditions.values()]
      .filter((condition) => condition.is !== "unchanged" || !batch.rows.has(keyPath(condition.key)))
      .map((condition) => this.#translated(condition));
    let outcome: Together = { done: false, refused: [] };
    try {
      if (!writes.some((write) => isUnknown(expectedBy(write))) && !conditions.some(isOutdated))
        outcome = await this.#writeTogether(writes, { conditions });
    } catch (error) {
      return this.#failAll(batch.members, error);
    }
    if (!outcome.done) {
      for (const [i, member] of batch.members.entries())
        try {
          await this.#writeAlone(batch, member);
        } catch (error) {
          return this.#failAll(batch.members.slice(i + 1), error);
        }
      return;
    }
    for (const [i, { token }] of rows.entries()) this.#remember(token, outcome.revisions[i] ?? "outdated");
    for (const member of batch.members) this.#succeed(batch, member);
  }

  /** @throws what the member was told, when the datastore failed */
  async #writeAlone(batch: Batch, member: Member): Promise<void> {
    const writes = member.writes.map((write) => {
      const expected = expectedBy(write);
      return rewritten(write, expected && this.#known(expected));
    });
    const conditions = member.conditions.map((condition) => this.#translated(condition));
    const refused = [...writes.keys()].filter((i) => isUnknown(expectedBy(writes[i])));
    try {
      const outcome: Together =
        refused.length > 0 || conditions.some(isOutdated)
          ? { done: false, refused }
          : await this.#writeTogether(writes, { conditions });
      if (!outcome.done) return this.#refuse(member, outcome);
      for (const [i, token] of member.tokens.entries()) this.#remember(token, outcome.revisions[i] ?? "outdated");
      this.#succeed(batch, member);
    } catch (error) {
      this.#failAll([member], error);
      throw error;
    }
  }

  #succeed(batch: Batch, member: Member): void {
    const revisions = member.paths.map((path, i) => {
      const isLast = batch.rows.get(path)?.by === member && this.#gathering?.rows.has(path) !== true;
      const revision = this.#known(member.tokens[i] ?? "");
      return isLast && !isUnknown(revision) ? revision : SUPERSEDED;
    });
    for (const token of member.tokens) if (isUnknown(this.#known(token))) this.#remember(token, "outdated");
    member.resolve({ done: true, revisions });
  }

  #refuse(member: Member, outcome: Together): void {
    for (const token of member.tokens) this.#remember(token, "outdated");
    member.resolve(outcome);
  }

  /** Who gathered while a datastore did not answer has waited as long: it is not asked once more for each of them. */
  #failAll(members: readonly Member[], error: unknown): void {
    const waiting = error instanceof Unavailable ? (this.#gathering?.members ?? []) : [];
    if (waiting.length > 0) {
      this.#gathering?.arrived.resolve();
      this.#gathering = undefined;
    }
    for (const member of [...members, ...waiting]) {
      for (const token of member.tokens) this.#remember(token, "outdated");
      member.reject(error);
    }
  }

  /** A revision of the datastore's; still a token's name when it has none (yet). */
  #known(revision: Revision): Revision {
    const real = revision.startsWith(TOKEN) ? this.#tokens.get(revision) : revision;
    return real === undefined || real === "outdated" || real === SUPERSEDED ? `${TOKEN}?` : real;
  }

  #translated(condition: Condition): Condition {
    if (condition.is !== "unchanged" || condition.revision === undefined) return condition;
    return { ...condition, revision: this.#known(condition.revision) };
  }

  #remember(token: Revision, revision: Revision | "outdated"): void {
    this.#tokens.set(token, revision);
    const oldest = this.#tokens.keys().next();
    if (this.#tokens.size > KEPT_TOKENS && oldest.done !== true) this.#tokens.delete(oldest.value);
  }

  /** The revision once it is known. */
  async #arrived(key: StoredKey, revision: Revision): Promise<Revision> {
    for (let coming = this.#coming(key); coming?.row.token === revision; coming = this.#coming(key))
      await coming.batch.arrived.promise;
    const known = this.#known(revision);
    if (isUnknown(known)) throw new Conflict(nameOfKey(key));
    return known;
  }
}

function add(batch: Batch, member: Member): void {
  batch.members.push(member);
  for (const [i, write] of member.writes.entries()) {
    const key = keyOf(write);
    const path = member.paths[i] ?? "";
    const earlier = batch.rows.get(path);
    const before = earlier === undefined ? expectedBy(write) : earlier.before;
    batch.rows.set(path, { key, before, write, token: member.tokens[i] ?? "", by: member });
  }
}

const isUnknown = (revision: Revision | undefined): boolean => revision?.startsWith(TOKEN) === true;

const isOutdated = (condition: Condition): boolean => condition.is === "unchanged" && isUnknown(condition.revision);

const keyOf = (write: Write | undefined): StoredKey => {
  if (write === undefined) throw new RangeError("no such write");
  return write.op === "delete" ? write.key : write.entry.key;
};

/** What it wants to be there; undefined: nothing. */
function expectedBy(write: Write | undefined): Revision | undefined {
  if (write === undefined || write.op === "create") return undefined;
  return write.op === "delete" ? write.revision : write.entry.revision;
}

/** The same write on what is there before. */
function rewritten(write: Write, before: Revision | undefined): Write {
  if (write.op === "delete") return before === undefined ? write : { ...write, revision: before };
  const { revision: _, ...entry } = write.entry;
  return before === undefined ? { op: "create", entry } : { op: "update", entry: { ...entry, revision: before } };
}
