// Sets of addresses kept in ipset. Deltas go to the live set, removals first; a set that cannot be trusted is filled anew
// under another name and swapped in, so that rules never see it half full.
//
// A set of another type cannot be swapped in. While rules hold such a set of our name ("alien"), ours lives under a
// stand-in name, to which all our rules are moved; when nothing holds the alien any more it goes, and ours takes its
// name back. At no time does a rule of ours match by anything but the wanted members.
import type { IpsetChange, IpsetStore, IpsetType } from "../../kernel/index.ts";
import { hasErrno } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { delay } from "../../lib/retry.ts";
import { type ApplyOutcome, FatalDataplaneError, type SetReconciler } from "../manager.ts";
import type { IpSets, MemberType } from "../rules/layer-table.ts";
import { MemberDelta } from "../rules/member-delta.ts";
import { setName } from "../rules/names.ts";
import type { SetId } from "../rules/rule.ts";
import { familyMember, familyMembers } from "../rules/set-members.ts";

interface OurSet {
  /** The kernel's name for it now: its own, or a stand-in while something else has that. */
  name: string;
  readonly ownName: string;
  readonly memberType: MemberType;
  readonly members: MemberDelta;
  /**
   * `trusted`: the delta says what the kernel's set lacks; `unread`: look first; `unfit`: of another size, or its members
   * expire; `alien`: of another type or family, which the kernel swaps with none of ours.
   */
  state: "absent" | "unread" | "unfit" | "alien" | "trusted";
  /** How many members the kernel's set takes, as we made or found it; 0 before. */
  capacity: number;
}

export interface IpsetSetsOptions {
  readonly version: IpVersion;
  readonly store: IpsetStore;
  readonly maxElements: number;
  readonly logger: Logger;
  readonly onCall?: (ok: boolean, lines: number) => void;
  /** The kernel's name of this set changed: rules that use it must be written anew. */
  readonly onRename?: (id: SetId) => void;
  /** Rules in the kernel that name the set, in words. */
  readonly whoUses?: (name: string, signal: AbortSignal) => Promise<readonly string[]>;
}

const IPSET_TYPE: Readonly<Record<MemberType, IpsetType>> = {
  ip: "hash:ip",
  net: "hash:net",
  ipAndPort: "hash:ip,port",
};
const ATTEMPTS = 10;
const ATTEMPTS_BEFORE_RESYNC = 5;
const RECHECK_BUDGET_MS = 100;
const DELETIONS_PER_ROUND = 10;
const MORE_DELETIONS_MS = 100;
/** The kernel lets go of what deleted rules used a moment after them; a foreign rule may hold a set for ever. */
const IN_USE_MS = { first: 100, last: 180_000 };
/** So often a set that is still held is nobody's but the kernel's own slowness. */
const PATIENT_TRIES = 4;

export class IpsetSets implements IpSets, SetReconciler {
  readonly name: string;
  readonly version: IpVersion;
  readonly #options: IpsetSetsOptions;
  readonly #log: Logger;
  readonly #wanted = new Map<SetId, OurSet>();
  /** Names of ours in the kernel. */
  readonly #present = new Set<string>();
  readonly #dirty = new Set<SetId>();
  /** Names of ours that nobody wants any more. */
  readonly #surplus = new Set<string>();
  /** Of those, the ones some rule still matches by, and how often that was found. */
  readonly #inUse = new Map<string, number>();
  /** Sets under a stand-in name, by the name of their own that something else has. */
  readonly #standIns = new Map<string, SetId>();
  #hasRenamed = false;
  #inUseMs = IN_USE_MS.first;
  /** Sets to compare with the kernel bit by bit, when a periodic check runs. */
  #unchecked: SetId[] = [];
  #resync: "none" | "incremental" | "full" = "full";
  #temporary = 0;

  constructor(options: IpsetSetsOptions) {
    this.#options = options;
    this.version = options.version;
    this.name = `IP sets IPv${options.version}`;
    this.#log = options.logger.with({ ipVersion: options.version });
  }

  /** Ours in the kernel. */
  get count(): number {
    return this.#present.size;
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
      const state = this.#present.has(name) ? "unread" : "absent";
      set = { name, ownName: name, memberType, members: new MemberDelta(), state, capacity: 0 };
      this.#wanted.set(id, set);
      if (isRenamed) this.#rename(id);
    }
    set.members.replace(familyMembers(memberType, this.version, members));
    this.#dirty.add(id);
    this.#surplus.delete(set.name);
    this.#inUse.delete(set.name);
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
    this.#standIns.delete(set.ownName);
    if (this.#present.has(set.name)) this.#surplus.add(set.name);
  }

  queueResync(): void {
    if (this.#resync === "none") this.#resync = "incremental";
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    for (let attempt = 0; ; attempt++) {
      try {
        if (attempt === ATTEMPTS_BEFORE_RESYNC) this.#resync = "full";
        this.#readBack();
        this.#write();
        return this.#unchecked.length > 0 ? { againInMs: 0 } : {};
      } catch (error) {
        if (attempt + 1 >= ATTEMPTS)
          throw new FatalDataplaneError(`${this.name} cannot be programmed`, { cause: error });
        this.#log.warn("IP sets could not be written; trying again", { error: describeError(error), attempt });
        await delay(2 ** attempt, signal);
      }
    }
  }

  async applyDeletions(signal: AbortSignal): Promise<ApplyOutcome> {
    let refused = 0;
    for (const name of [...this.#surplus].slice(0, DELETIONS_PER_ROUND)) {
      this.#surplus.delete(name);
      if (this.#destroy(name)) {
        this.#takeBackName(name);
        continue;
      }
      this.#surplus.add(name); // behind the others
      refused++;
      if (this.#inUse.get(name) === PATIENT_TRIES) await this.#tellWhoUses(name, signal);
    }
    if (this.#hasRenamed) {
      this.#hasRenamed = false;
      return { againInMs: 0 };
    }
    if (this.#surplus.size > this.#inUse.size) return { againInMs: MORE_DELETIONS_MS };
    if (refused === 0) {
      this.#inUseMs = IN_USE_MS.first;
      return {};
    }
    const againInMs = this.#inUseMs;
    this.#inUseMs = Math.min(IN_USE_MS.last, againInMs * 2);
    return { againInMs };
  }

  #destroy(name: string): boolean {
    try {
      this.#options.store.apply([{ op: "destroy", name }]);
      this.#options.onCall?.(true, 1);
    } catch (error) {
      if (!hasErrno(error, "ENOENT")) {
        const tries = (this.#inUse.get(name) ?? 0) + 1;
        this.#inUse.set(name, tries);
        this.#log[tries === 1 ? "warn" : "debug"]("an unused IP set could not be deleted; trying again", {
          set: name,
          error: describeError(error),
        });
        return false;
      }
    }
    this.#inUse.delete(name);
    this.#present.delete(name);
    return true;
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
    set.name = this.#standInName(set);
    this.#surplus.delete(set.name);
    this.#inUse.delete(set.name);
    set.state = this.#present.has(set.name) ? "unread" : "absent";
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

  /** The same after every restart, so that nothing is written again; a numbered one where that too is an alien. */
  #standInName(set: OurSet): string {
    const likeOwn = `cali${this.version}t${set.ownName.slice("cali40".length)}`;
    return set.name === set.ownName ? likeOwn : this.#temporaryName();
  }

  async #tellWhoUses(name: string, signal: AbortSignal): Promise<void> {
    const rules = await this.#options.whoUses?.(name, signal).catch(() => undefined);
    if (rules === undefined) return;
    this.#log.warn("rules that are not ours hold an IP set of ours; delete them", {
      set: name,
      rules: rules.length > 0 ? rules.join("; ") : "none that iptables shows: look for a set of sets or a tc filter",
      meanwhile: this.#standIns.has(name)
        ? "our rules use a stand-in with the right members"
        : "no rule of ours uses it",
    });
  }

  #readBack(): void {
    if (this.#resync !== "none") {
      const isFull = this.#resync === "full";
      this.#present.clear();
      for (const name of this.#options.store.names()) if (this.#isOurs(name)) this.#present.add(name);
      const wantedNames = new Set<string>();
      for (const [id, set] of this.#wanted) {
        wantedNames.add(set.name);
        if (set.state === "trusted" && !this.#present.has(set.name))
          this.#log.warn("somebody deleted an IP set of ours; repairing", { set: set.name });
        if (!this.#present.has(set.name)) set.state = "absent";
        else if (isFull || set.state === "absent") set.state = "unread";
        if (set.state !== "trusted") this.#dirty.add(id);
      }
      for (const name of this.#present)
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
    if (listed === undefined) {
      this.#present.delete(set.name);
      set.state = "absent";
      return;
    }
    const isKin = listed.type === IPSET_TYPE[set.memberType] && listed.family === this.version;
    // One that was made larger for members it no longer has is as we made it.
    const capacity = set.capacity === 0 ? this.#capacityFor(set) : set.capacity;
    const isFit = isKin && listed.maxElements === capacity && listed.timeoutSeconds === undefined;
    set.capacity = isKin ? listed.maxElements : 0;
    set.state = isFit ? "trusted" : isKin ? "unfit" : "alien";
    if (isFit) set.members.found(new Set(listed.members));
  }

  #write(): void {
    if (this.#dirty.size === 0) return;
    const changes: IpsetChange[] = [];
    const touched: OurSet[] = [];
    for (const id of this.#dirty) {
      const set = this.#wanted.get(id);
      if (set === undefined) continue;
      while (set.state === "unread" || set.state === "alien") {
        if (set.state === "unread") this.#read(set);
        else this.#makeRoom(id, set);
      }
      this.#difference(set, changes);
      touched.push(set);
    }
    try {
      if (changes.length > 0) {
        this.#options.store.apply(changes);
        this.#options.onCall?.(true, changes.length);
      }
    } catch (error) {
      this.#options.onCall?.(false, changes.length);
      // Some of it may have been done: those sets are read again before the next write.
      for (const set of touched) {
        this.#present.add(set.name);
        set.state = "unread";
      }
      throw error;
    }
    for (const set of touched) {
      this.#present.add(set.name);
      set.state = "trusted";
      set.members.written();
    }
    this.#dirty.clear();
  }

  /** A set in which not all fit would let pass what it shall stop: then it is made larger than it was asked to be. */
  #capacityFor({ members }: OurSet): number {
    const { maxElements } = this.#options;
    const size = members.wanted.size;
    return size <= maxElements ? maxElements : 2 ** Math.ceil(Math.log2(size));
  }

  #difference(set: OurSet, changes: IpsetChange[]): void {
    const { name, memberType, members } = set;
    const type = IPSET_TYPE[memberType];
    const fill = (target: string) => {
      const maxElements = this.#capacityFor(set);
      set.capacity = maxElements;
      if (maxElements > this.#options.maxElements)
        this.#log.warn("an IP set has more members than MaxIpsetSize; it is made larger", {
          ...{ set: set.ownName, members: members.wanted.size, size: maxElements },
        });
      changes.push({ op: "create", set: { type, family: this.version, maxElements, name: target } });
      if (members.wanted.size > 0) changes.push({ op: "add", name: target, type, members: [...members.wanted] });
    };
    if (set.state === "absent") return fill(name);
    if (set.state === "unfit" || members.wanted.size > set.capacity) {
      const temporary = this.#temporaryName();
      fill(temporary);
      changes.push({ op: "swap", name, with: temporary });
      this.#present.add(temporary);
      this.#surplus.add(temporary); // it now holds the old members
      return;
    }
    if (members.surplus.size > 0) changes.push({ op: "delete", name, type, members: [...members.surplus] });
    if (members.missing.size > 0) changes.push({ op: "add", name, type, members: [...members.missing] });
  }

  #temporaryName(): string {
    for (;;) {
      const name = `cali${this.version}t${this.#temporary++}`;
      if (!this.#present.has(name)) return name;
    }
  }

  #isOurs(name: string): boolean {
    const version = this.version;
    if (name.startsWith(`cali${version}`) || name.startsWith(`felix-${version}`)) return true;
    return version === 4 && (name === "felix-masq-ipam-pools" || name === "felix-all-ipam-pools");
  }
}

/** Some rule matches by it. */
const isHeld = (error: unknown): boolean => hasErrno(error, "EBUSY", "E4100");
