// Keeps the IP sets of one family in ipset. Differences are written to the existing set, deletions first. A set with the wrong
// size is created under a temporary name and swapped in, so that rules never use a partly filled set.
//
// The kernel does not swap sets of different types. If another program created a set of another type with a reserved name,
// and rules use that set, the desired set gets an alternate name, and all rules of calico-ts use this name. When the other set
// is no longer used, it is deleted, and the desired set gets its own name back. Rules of calico-ts never use the other set.
import type { IpsetChange, IpsetStore } from "../../kernel/index.ts";
import { hasErrno } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { delay, yieldToEventLoop } from "../../lib/retry.ts";
import { type ApplyOutcome, FatalDataplaneError, type SetReconciler } from "../loop/manager.ts";
import type { IpSets, MemberType } from "../rules/rule-table.ts";
import { MemberDelta } from "../rules/member-delta.ts";
import { setName } from "../rules/names.ts";
import type { RejectedItem } from "../rules/fallback/rejection-log.ts";
import type { SetId } from "../rules/rule.ts";
import { familyMember, familyMembers } from "../rules/set-members.ts";
import { capacityFor, recordListed, IPSET_TYPE, type DesiredSet } from "./desired-set.ts";
import { RejectedSets } from "./rejected-sets.ts";
import { SetNames } from "./set-names.ts";
import { SurplusSets } from "./surplus-sets.ts";

/** The changes of one write, and the set to which each name in them belongs. */
interface Written {
  readonly owners: Map<string, SetId>;
  readonly fills: IpsetChange[];
  readonly swaps: IpsetChange[];
}

export interface IpsetSetsOptions {
  readonly version: IpVersion;
  readonly store: IpsetStore;
  readonly maxElements: number;
  readonly logger: Logger;
  readonly onCall?: (ok: boolean, lines: number) => void;
  /** The kernel's name of the set changed: rules that use it must be rendered again. */
  readonly onRename?: (id: SetId) => void;
  /** The kernel rejected or accepted the set: the rules that use it must be replaced by fallbacks, or restored. */
  readonly onSetRejected?: (id: SetId, isRejected: boolean) => void;
  /** Delay before a rejected set is tried again. */
  readonly retryMs?: number;
  /** Returns the rules in the kernel that use the set, as text. */
  readonly findUsers?: (name: string, signal: AbortSignal) => Promise<readonly string[]>;
}

const ATTEMPTS = 10;
const ATTEMPTS_BEFORE_RESYNC = 5;
const RECHECK_BUDGET_MS = 100;
/** Takes about 20 ms to encode and program. */
const PART_MEMBERS = 10_000;

export class IpsetSets implements IpSets, SetReconciler {
  readonly name: string;
  readonly version: IpVersion;
  readonly #options: IpsetSetsOptions;
  readonly #log: Logger;
  readonly #desired = new Map<SetId, DesiredSet>();
  readonly #names: SetNames;
  readonly #dirty = new Set<SetId>();
  /** Sets in the kernel that are not desired any more. */
  readonly #surplus: SurplusSets;
  readonly #rejected: RejectedSets;
  /** Sets with an alternate name, by their own name. */
  readonly #renamedSets = new Map<string, SetId>();
  #hasRenamed = false;
  /** Sets that the current resync has not compared with the kernel yet. */
  #unchecked: SetId[] = [];
  #resync: "none" | "incremental" | "full" = "full";
  #lastWrite: Written | undefined;

  constructor(options: IpsetSetsOptions) {
    this.#options = options;
    this.version = options.version;
    this.name = `IP sets IPv${options.version}`;
    this.#names = new SetNames(options.version);
    this.#log = options.logger.with({ ipVersion: options.version });
    this.#surplus = new SurplusSets({
      ...options,
      logger: this.#log,
      onDeleted: (name) => {
        this.#names.present.delete(name);
        this.#restoreOwnName(name);
      },
      meanwhile: (name) =>
        this.#renamedSets.has(name) ? "rules of calico-ts use a set with another name" : "no rule of calico-ts uses it",
    });
    this.#rejected = new RejectedSets({ ...options, logger: this.#log, kernelName: (id) => this.kernelName(id) });
  }

  /** Number of sets in the kernel. */
  get count(): number {
    return this.#names.present.size;
  }

  /** The sets that the kernel rejects. */
  rejected(): readonly RejectedItem[] {
    return this.#rejected.list();
  }

  /** Returns the name that rules must use. */
  kernelName(id: SetId): string {
    return this.#desired.get(id)?.name ?? setName(this.version, id);
  }

  replace(id: SetId, memberType: MemberType, members: Iterable<string>): void {
    let set = this.#desired.get(id);
    if (set === undefined || set.memberType !== memberType) {
      const isRenamed = set !== undefined && this.#useOwnName(set);
      const name = setName(this.version, id);
      const state = this.#names.present.has(name) ? "unread" : "absent";
      set = { name, ownName: name, memberType, members: new MemberDelta(), state, capacity: 0 };
      this.#desired.set(id, set);
      if (isRenamed) this.#rename(id);
    }
    set.members.replace(familyMembers(memberType, this.version, members));
    this.#dirty.add(id);
    this.#surplus.keep(set.name);
  }

  change(id: SetId, added: Iterable<string>, removed: Iterable<string>): void {
    const set = this.#desired.get(id);
    if (set === undefined) return;
    const one = (member: string) => familyMember(set.memberType, this.version, member);
    for (const member of removed) for (const m of one(member)) set.members.delete(m);
    for (const member of added) for (const m of one(member)) set.members.add(m);
    this.#dirty.add(id);
  }

  remove(id: SetId): void {
    const set = this.#desired.get(id);
    if (set === undefined) return;
    this.#desired.delete(id);
    this.#dirty.delete(id);
    this.#rejected.delete(id);
    this.#renamedSets.delete(set.ownName);
    if (this.#names.present.has(set.name)) this.#surplus.add(set.name);
  }

  queueResync(): void {
    if (this.#resync === "none") this.#resync = "incremental";
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    for (let attempt = 0; ; attempt++) {
      try {
        if (attempt === ATTEMPTS_BEFORE_RESYNC) this.#resync = "full";
        this.#readBack();
        await this.#write(this.#rejected.without(this.#dirty));
        await this.#retryRejected();
        return this.#outcome();
      } catch (error) {
        // The sets were read again after the first failure, so outdated knowledge is not the cause.
        if (attempt > 0 && this.#markRejected(error)) {
          attempt = 0;
          continue;
        }
        if (attempt + 1 >= ATTEMPTS)
          throw new FatalDataplaneError(`${this.name} cannot be programmed`, { cause: error });
        this.#log.warn("writing IP sets failed; retrying", { error: describeError(error), attempt });
        await delay(2 ** attempt, signal);
      }
    }
  }

  #outcome(): ApplyOutcome {
    if (this.#unchecked.length > 0) return { againInMs: 0 };
    const retryInMs = this.#rejected.retryInMs();
    return retryInMs === Number.POSITIVE_INFINITY ? {} : { againInMs: retryInMs };
  }

  async applyDeletions(signal: AbortSignal): Promise<ApplyOutcome> {
    const outcome = await this.#surplus.apply(signal);
    if (!this.#hasRenamed) return outcome;
    this.#hasRenamed = false;
    return { againInMs: 0 };
  }

  // --- sets of another type with a reserved name --------------------------------------------------------------------

  /** Deletes the set of another type. If rules use it, the desired set gets an alternate name. */
  #replaceWrongType(id: SetId, set: DesiredSet): void {
    const { name } = set;
    try {
      this.#options.store.apply([{ op: "destroy", name }]);
      this.#log.warn("replaced an IP set of another type with a reserved name", { set: name });
      set.state = "absent";
      return;
    } catch (error) {
      if (hasErrno(error, "ENOENT")) {
        set.state = "absent";
        return;
      }
      if (!isInUse(error)) throw error;
    }
    this.#surplus.add(name);
    if (name === set.ownName) this.#renamedSets.set(name, id);
    set.name = this.#names.alternateName(set);
    this.#surplus.keep(set.name);
    set.state = this.#names.present.has(set.name) ? "unread" : "absent";
    this.#log.warn(
      "rules use an IP set of another type with a reserved name; using an alternate name until it is free",
      { set: set.ownName, alternateName: set.name },
    );
    this.#rename(id);
  }

  /** The other set was deleted: creates the set under its own name. When the rules use it, the alternate set is deleted. */
  #restoreOwnName(name: string): void {
    const id = this.#renamedSets.get(name);
    const set = id === undefined ? undefined : this.#desired.get(id);
    if (id === undefined || set === undefined) return;
    this.#log.info("IP set has its own name again", { set: name, alternateName: set.name });
    this.#useOwnName(set);
    set.state = "absent";
    this.#dirty.add(id);
    this.#rename(id);
  }

  /** @returns true if the set had an alternate name */
  #useOwnName(set: DesiredSet): boolean {
    if (!this.#renamedSets.delete(set.ownName)) return false;
    this.#surplus.add(set.name);
    set.name = set.ownName;
    return true;
  }

  #rename(id: SetId): void {
    this.#hasRenamed = true;
    this.#options.onRename?.(id);
  }

  #readBack(): void {
    if (this.#resync !== "none") {
      const isFull = this.#resync === "full";
      this.#names.found(this.#options.store.names());
      const desiredNames = new Set<string>();
      for (const [id, set] of this.#desired) {
        desiredNames.add(set.name);
        if (set.state === "known" && !this.#names.present.has(set.name))
          this.#log.warn("another program deleted an IP set; restoring it", { set: set.name });
        if (!this.#names.present.has(set.name)) set.state = "absent";
        else if (isFull || set.state === "absent") set.state = "unread";
        if (set.state !== "known") this.#dirty.add(id);
      }
      for (const name of this.#names.present)
        if (!desiredNames.has(name)) {
          if (!isFull && !this.#surplus.has(name) && !this.#renamedSets.has(name))
            this.#log.warn("another program created an IP set with a reserved name; deleting it", { set: name });
          this.#surplus.add(name);
        }
      this.#unchecked = isFull ? [] : [...this.#desired.keys()];
      this.#resync = "none";
    }
    const end = performance.now() + RECHECK_BUDGET_MS;
    while (this.#unchecked.length > 0 && performance.now() < end) {
      const id = this.#unchecked.pop();
      const set = id === undefined ? undefined : this.#desired.get(id);
      if (id === undefined || set === undefined || set.state !== "known") continue;
      const hadChanges = this.#dirty.has(id);
      this.#read(set);
      if (set.state === "known" && set.members.isEmpty) continue;
      if (!hadChanges) this.#log.warn("another program changed an IP set; restoring it", { set: set.name });
      this.#dirty.add(id);
    }
  }

  #read(set: DesiredSet): void {
    const listed = this.#options.store.list(set.name);
    if (listed === undefined) this.#names.present.delete(set.name);
    recordListed(set, listed, { version: this.version, maxElements: this.#options.maxElements });
  }

  async #write(ids: readonly SetId[]): Promise<void> {
    const written: Written = { owners: new Map(), fills: [], swaps: [] };
    this.#lastWrite = written;
    for (const id of ids) {
      const set = this.#desired.get(id);
      if (set === undefined) continue;
      written.owners.set(set.name, id);
      while (set.state === "unread" || set.state === "wrongType") {
        if (set.state === "unread") this.#read(set);
        else this.#replaceWrongType(id, set);
      }
      written.owners.set(set.name, id);
      this.#difference(id, set, written);
    }
    const touched = [...new Set(written.owners.values())].flatMap((id) => this.#desired.get(id) ?? []);
    try {
      await this.#send(written.fills);
      await this.#send(written.swaps);
    } catch (error) {
      // Some changes may have been made: the sets are read again before the next write.
      for (const set of touched) {
        this.#names.present.add(set.name);
        set.state = "unread";
      }
      throw error;
    }
    for (const set of touched) {
      this.#names.present.add(set.name);
      set.state = "known";
      set.members.written();
    }
    for (const id of ids) this.#dirty.delete(id);
  }

  /** Sends the changes in parts, with other tasks of the event loop in between. */
  async #send(changes: readonly IpsetChange[]): Promise<void> {
    if (changes.length === 0) return;
    let isAccepted = false;
    try {
      const [first = [], ...others] = partsOf(changes);
      this.#options.store.apply(first);
      for (const part of others) {
        await yieldToEventLoop();
        this.#options.store.apply(part);
      }
      isAccepted = true;
    } finally {
      this.#options.onCall?.(isAccepted, changes.length);
    }
  }

  // --- sets that the kernel rejects -----------------------------------------------------------------------------------

  /** Excludes the sets that the error is about from further writes. Returns false if it is not about sets. */
  #markRejected(error: unknown): boolean {
    const rejected = this.#rejected.addAll(error, (name) => this.#lastWrite?.owners.get(name));
    for (const id of rejected) this.#dirty.delete(id);
    return rejected.length > 0;
  }

  /** Writes each set alone, so that one rejected set does not affect the others. */
  async #retryRejected(): Promise<void> {
    for (const id of this.#rejected.due(this.#dirty))
      try {
        await this.#write([id]);
        this.#rejected.delete(id);
      } catch (error) {
        if (!this.#markRejected(error)) throw error;
      }
  }

  #difference(id: SetId, set: DesiredSet, { owners, fills, swaps }: Written): void {
    const { name, memberType, members } = set;
    const type = IPSET_TYPE[memberType];
    const fill = (target: string) => {
      const maxElements = capacityFor(set, this.#options.maxElements);
      set.capacity = maxElements;
      if (maxElements > this.#options.maxElements)
        this.#log.warn("IP set has more members than MaxIpsetSize; increasing its size", {
          ...{ set: set.ownName, members: members.desired.size, size: maxElements },
        });
      fills.push({ op: "create", set: { type, family: this.version, maxElements, name: target } });
      if (members.desired.size > 0) fills.push({ op: "add", name: target, type, members: [...members.desired] });
    };
    if (set.state === "absent") return fill(name);
    if (set.state === "wrongSize" || members.desired.size > set.capacity) {
      const temporary = this.#names.temporary();
      fill(temporary);
      owners.set(temporary, id);
      swaps.push({ op: "swap", name, with: temporary }); // separate, so that a set is only swapped in after it was filled
      this.#names.present.add(temporary);
      this.#surplus.add(temporary); // after the swap it contains the old members
      return;
    }
    if (members.surplus.size > 0) fills.push({ op: "delete", name, type, members: [...members.surplus] });
    if (members.missing.size > 0) fills.push({ op: "add", name, type, members: [...members.missing] });
  }
}

/** Splits the changes, in order, into parts with at most PART_MEMBERS members. */
function partsOf(changes: readonly IpsetChange[]): IpsetChange[][] {
  const parts: IpsetChange[][] = [[]];
  let remaining = PART_MEMBERS;
  for (const change of changes) {
    if (change.op !== "add" && change.op !== "delete") {
      parts.at(-1)?.push(change);
      continue;
    }
    for (let done = 0; done < change.members.length; ) {
      if (remaining === 0) {
        parts.push([]);
        remaining = PART_MEMBERS;
      }
      const members = change.members.slice(done, done + remaining);
      parts.at(-1)?.push({ ...change, members });
      done += members.length;
      remaining -= members.length;
    }
  }
  return parts;
}

/** True if a rule uses the set. */
const isInUse = (error: unknown): boolean => hasErrno(error, "EBUSY", "E4100");
