// Sets of addresses kept in ipset. Deltas go to the live set, removals first; a set that cannot be trusted is filled anew
// under another name and swapped in, so that rules never see it half full.
//
// A set of another type cannot be swapped in. While rules hold such a set of our name ("alien"), ours lives under a
// stand-in name, to which all our rules are moved; when nothing holds the alien any more it goes, and ours takes its
// name back. At no time does a rule of ours match by anything but the wanted members.
import type { IpsetChange, IpsetStore } from "../../kernel/index.ts";
import { hasErrno } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { delay, nextTurn } from "../../lib/retry.ts";
import { type ApplyOutcome, FatalDataplaneError, type SetReconciler } from "../manager.ts";
import type { IpSets, MemberType } from "../rules/layer-table.ts";
import { MemberDelta } from "../rules/member-delta.ts";
import { setName } from "../rules/names.ts";
import type { Refused } from "../rules/refused.ts";
import type { SetId } from "../rules/rule.ts";
import { familyMember, familyMembers } from "../rules/set-members.ts";
import { capacityFor, foundAs, IPSET_TYPE, type OurSet } from "./our-set.ts";
import { RefusedSets } from "./refused-sets.ts";
import { SetNames } from "./set-names.ts";
import { SurplusSets } from "./surplus-sets.ts";

/** What one write sends, and whose each name in it is. */
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
  /** The kernel's name of this set changed: rules that use it must be written anew. */
  readonly onRename?: (id: SetId) => void;
  /** The kernel does not take this set (any more, or again): rules that name it must be closed or wanted again. */
  readonly onAside?: (id: SetId, isAside: boolean) => void;
  /** When a set that was refused is tried again. */
  readonly retryMs?: number;
  /** Rules in the kernel that name the set, in words. */
  readonly whoUses?: (name: string, signal: AbortSignal) => Promise<readonly string[]>;
}

const ATTEMPTS = 10;
const ATTEMPTS_BEFORE_RESYNC = 5;
const RECHECK_BUDGET_MS = 100;
/** About 20 ms of encoding and of the kernel's work. */
const PART_MEMBERS = 10_000;

export class IpsetSets implements IpSets, SetReconciler {
  readonly name: string;
  readonly version: IpVersion;
  readonly #options: IpsetSetsOptions;
  readonly #log: Logger;
  readonly #wanted = new Map<SetId, OurSet>();
  readonly #names: SetNames;
  readonly #dirty = new Set<SetId>();
  /** Names of ours that nobody wants any more. */
  readonly #surplus: SurplusSets;
  readonly #refused: RefusedSets;
  /** Sets under a stand-in name, by the name of their own that something else has. */
  readonly #standIns = new Map<string, SetId>();
  #hasRenamed = false;
  /** Sets to compare with the kernel bit by bit, when a periodic check runs. */
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
      onGone: (name) => {
        this.#names.present.delete(name);
        this.#takeBackName(name);
      },
      meanwhile: (name) =>
        this.#standIns.has(name) ? "our rules use a stand-in with the right members" : "no rule of ours uses it",
    });
    this.#refused = new RefusedSets({ ...options, logger: this.#log, kernelName: (id) => this.kernelName(id) });
  }

  /** Ours in the kernel. */
  get count(): number {
    return this.#names.present.size;
  }

  /** What the kernel does not take. */
  refused(): readonly Refused[] {
    return this.#refused.list();
  }

  /** The name rules must use. */
  kernelName(id: SetId): string {
    return this.#wanted.get(id)?.name ?? setName(this.version, id);
  }

  replace(id: SetId, memberType: MemberType, members: Iterable<string>): void {
    let set = this.#wanted.get(id);
    if (set === undefined || set.memberType !== memberType) {
      const isRenamed = set !== undefined && this.#leaveStandIn(set);
      const name = setName(this.version, id);
      const state = this.#names.present.has(name) ? "unread" : "absent";
      set = { name, ownName: name, memberType, members: new MemberDelta(), state, capacity: 0 };
      this.#wanted.set(id, set);
      if (isRenamed) this.#rename(id);
    }
    set.members.replace(familyMembers(memberType, this.version, members));
    this.#dirty.add(id);
    this.#surplus.keep(set.name);
  }

  change(id: SetId, added: Iterable<string>, removed: Iterable<string>): void {
    const set = this.#wanted.get(id);
    if (set === undefined) return;
    const one = (member: string) => familyMember(set.memberType, this.version, member);
    for (const member of removed) for (const m of one(member)) set.members.delete(m);
    for (const member of added) for (const m of one(member)) set.members.add(m);
    this.#dirty.add(id);
  }

  remove(id: SetId): void {
    const set = this.#wanted.get(id);
    if (set === undefined) return;
    this.#wanted.delete(id);
    this.#dirty.delete(id);
    this.#refused.delete(id);
    this.#standIns.delete(set.ownName);
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
        await this.#write(this.#refused.without(this.#dirty));
        await this.#retryRefused();
        return this.#outcome();
      } catch (error) {
        // After the first failure they were read again: what is refused now is not for the moment.
        if (attempt > 0 && this.#setAside(error)) {
          attempt = 0;
          continue;
        }
        if (attempt + 1 >= ATTEMPTS)
          throw new FatalDataplaneError(`${this.name} cannot be programmed`, { cause: error });
        this.#log.warn("IP sets could not be written; trying again", { error: describeError(error), attempt });
        await delay(2 ** attempt, signal);
      }
    }
  }

  #outcome(): ApplyOutcome {
    if (this.#unchecked.length > 0) return { againInMs: 0 };
    const retryInMs = this.#refused.retryInMs();
    return retryInMs === Number.POSITIVE_INFINITY ? {} : { againInMs: retryInMs };
  }

  async applyDeletions(signal: AbortSignal): Promise<ApplyOutcome> {
    const outcome = await this.#surplus.apply(signal);
    if (!this.#hasRenamed) return outcome;
    this.#hasRenamed = false;
    return { againInMs: 0 };
  }

  // --- a set of another kind that has a name of ours ----------------------------------------------------------------

  /** Takes the alien away, or, while something holds it, gives our set a stand-in name. */
  #makeRoom(id: SetId, set: OurSet): void {
    const { name } = set;
    try {
      this.#options.store.apply([{ op: "destroy", name }]);
      this.#log.warn("an IP set with a name of ours is of another kind; replaced", { set: name });
      set.state = "absent";
      return;
    } catch (error) {
      if (hasErrno(error, "ENOENT")) {
        set.state = "absent";
        return;
      }
      if (!isHeld(error)) throw error;
    }
    this.#surplus.add(name);
    if (name === set.ownName) this.#standIns.set(name, id);
    set.name = this.#names.standIn(set);
    this.#surplus.keep(set.name);
    set.state = this.#names.present.has(set.name) ? "unread" : "absent";
    this.#log.warn(
      "an IP set with a name of ours is of another kind and in use by rules; ours has a stand-in name until it is free",
      { set: set.ownName, standIn: set.name },
    );
    this.#rename(id);
  }

  /** The alien is gone: the set is made again under its own name, the rules follow, and then the stand-in goes. */
  #takeBackName(name: string): void {
    const id = this.#standIns.get(name);
    const set = id === undefined ? undefined : this.#wanted.get(id);
    if (id === undefined || set === undefined) return;
    this.#log.info("an IP set takes its own name back", { set: name, standIn: set.name });
    this.#leaveStandIn(set);
    set.state = "absent";
    this.#dirty.add(id);
    this.#rename(id);
  }

  /** Whether it was under another name than its own. */
  #leaveStandIn(set: OurSet): boolean {
    if (!this.#standIns.delete(set.ownName)) return false;
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
      const wantedNames = new Set<string>();
      for (const [id, set] of this.#wanted) {
        wantedNames.add(set.name);
        if (set.state === "trusted" && !this.#names.present.has(set.name))
          this.#log.warn("somebody deleted an IP set of ours; repairing", { set: set.name });
        if (!this.#names.present.has(set.name)) set.state = "absent";
        else if (isFull || set.state === "absent") set.state = "unread";
        if (set.state !== "trusted") this.#dirty.add(id);
      }
      for (const name of this.#names.present)
        if (!wantedNames.has(name)) {
          if (!isFull && !this.#surplus.has(name) && !this.#standIns.has(name))
            this.#log.warn("somebody left an IP set with a name of ours; removing it", { set: name });
          this.#surplus.add(name);
        }
      this.#unchecked = isFull ? [] : [...this.#wanted.keys()];
      this.#resync = "none";
    }
    const end = performance.now() + RECHECK_BUDGET_MS;
    while (this.#unchecked.length > 0 && performance.now() < end) {
      const id = this.#unchecked.pop();
      const set = id === undefined ? undefined : this.#wanted.get(id);
      if (id === undefined || set === undefined || set.state !== "trusted") continue;
      const hadChanges = this.#dirty.has(id);
      this.#read(set);
      if (set.state === "trusted" && set.members.isEmpty) continue;
      if (!hadChanges) this.#log.warn("somebody changed an IP set of ours; repairing", { set: set.name });
      this.#dirty.add(id);
    }
  }

  #read(set: OurSet): void {
    const listed = this.#options.store.list(set.name);
    if (listed === undefined) this.#names.present.delete(set.name);
    foundAs(set, listed, { version: this.version, maxElements: this.#options.maxElements });
  }

  async #write(ids: readonly SetId[]): Promise<void> {
    const written: Written = { owners: new Map(), fills: [], swaps: [] };
    this.#lastWrite = written;
    for (const id of ids) {
      const set = this.#wanted.get(id);
      if (set === undefined) continue;
      written.owners.set(set.name, id);
      while (set.state === "unread" || set.state === "alien") {
        if (set.state === "unread") this.#read(set);
        else this.#makeRoom(id, set);
      }
      written.owners.set(set.name, id);
      this.#difference(id, set, written);
    }
    const touched = [...new Set(written.owners.values())].flatMap((id) => this.#wanted.get(id) ?? []);
    try {
      await this.#send(written.fills);
      await this.#send(written.swaps);
    } catch (error) {
      // Some of it may have been done: those sets are read again before the next write.
      for (const set of touched) {
        this.#names.present.add(set.name);
        set.state = "unread";
      }
      throw error;
    }
    for (const set of touched) {
      this.#names.present.add(set.name);
      set.state = "trusted";
      set.members.written();
    }
    for (const id of ids) this.#dirty.delete(id);
  }

  /** In parts of at most some thousand members, between which other tasks of the event loop run. */
  async #send(changes: readonly IpsetChange[]): Promise<void> {
    if (changes.length === 0) return;
    let isTaken = false;
    try {
      const [first = [], ...others] = partsOf(changes);
      this.#options.store.apply(first);
      for (const part of others) {
        await nextTurn();
        this.#options.store.apply(part);
      }
      isTaken = true;
    } finally {
      this.#options.onCall?.(isTaken, changes.length);
    }
  }

  // --- sets the kernel refuses ----------------------------------------------------------------------------------------

  /** The others are written without the sets that were refused. False when it was none. */
  #setAside(error: unknown): boolean {
    const refused = this.#refused.addAll(error, (name) => this.#lastWrite?.owners.get(name));
    for (const id of refused) this.#dirty.delete(id);
    return refused.length > 0;
  }

  /** Each by itself: one that is taken waits for no other. */
  async #retryRefused(): Promise<void> {
    for (const id of this.#refused.due(this.#dirty))
      try {
        await this.#write([id]);
        this.#refused.delete(id);
      } catch (error) {
        if (!this.#setAside(error)) throw error;
      }
  }

  #difference(id: SetId, set: OurSet, { owners, fills, swaps }: Written): void {
    const { name, memberType, members } = set;
    const type = IPSET_TYPE[memberType];
    const fill = (target: string) => {
      const maxElements = capacityFor(set, this.#options.maxElements);
      set.capacity = maxElements;
      if (maxElements > this.#options.maxElements)
        this.#log.warn("an IP set has more members than MaxIpsetSize; it is made larger", {
          ...{ set: set.ownName, members: members.wanted.size, size: maxElements },
        });
      fills.push({ op: "create", set: { type, family: this.version, maxElements, name: target } });
      if (members.wanted.size > 0) fills.push({ op: "add", name: target, type, members: [...members.wanted] });
    };
    if (set.state === "absent") return fill(name);
    if (set.state === "unfit" || members.wanted.size > set.capacity) {
      const temporary = this.#names.temporary();
      fill(temporary);
      owners.set(temporary, id);
      swaps.push({ op: "swap", name, with: temporary }); // by itself: what cannot be filled is not swapped in
      this.#names.present.add(temporary);
      this.#surplus.add(temporary); // it now holds the old members
      return;
    }
    if (members.surplus.size > 0) fills.push({ op: "delete", name, type, members: [...members.surplus] });
    if (members.missing.size > 0) fills.push({ op: "add", name, type, members: [...members.missing] });
  }
}

/** The changes in order; a part holds at most PART_MEMBERS members. */
function partsOf(changes: readonly IpsetChange[]): IpsetChange[][] {
  const parts: IpsetChange[][] = [[]];
  let room = PART_MEMBERS;
  for (const change of changes) {
    if (change.op !== "add" && change.op !== "delete") {
      parts.at(-1)?.push(change);
      continue;
    }
    for (let done = 0; done < change.members.length; ) {
      if (room === 0) {
        parts.push([]);
        room = PART_MEMBERS;
      }
      const members = change.members.slice(done, done + room);
      parts.at(-1)?.push({ ...change, members });
      done += members.length;
      room -= members.length;
    }
  }
  return parts;
}

/** Some rule matches by it. */
const isHeld = (error: unknown): boolean => hasErrno(error, "EBUSY", "E4100");
