// Keeps the members of an IP set equal to what the matching items contribute. Items with many members, and the items of a
// new set, are added in steps. Until an item's turn comes, its changes have no effect: its members are added as they are then.
import { differingParts } from "../../lib/compare-lists.ts";
import type { LabelItem, SelectorEntry } from "../labels/index.ts";
import { type ContributedSet, contribution, contributionSize, type Contributions } from "./contribution.ts";
import { LongLists, MEMBERS_PER_STEP } from "./long-lists.ts";
import type { MemberSet } from "./member-set.ts";

type Item = LabelItem & Contributions;

/** Shorter lists are applied at once. */
const MIN_LONG_LIST = 1000;

export class FilledSet<I extends Item> {
  readonly #set: ContributedSet & { readonly selector: SelectorEntry };
  readonly #members: MemberSet;
  /** Undefined before the first item with a long list. */
  #longLists: LongLists<I> | undefined;
  /** Items of a new set that were not added yet: those from `#next` on. */
  #waiting: readonly I[] = [];
  #next = 0;
  /** The same items, without those that stopped to match. It is created when an item changes before all were added. */
  #waitingSet: Set<I> | undefined;
  /** The number of items with long lists that the set had at first. */
  #longItems = 0;

  /** @param items all items that match `set.selector` */
  constructor(
    set: ContributedSet & { readonly selector: SelectorEntry },
    { members, items }: { readonly members: MemberSet; readonly items: Iterable<I> },
  ) {
    this.#set = set;
    this.#members = members;
    const short: I[] = [];
    for (const item of items)
      if (this.#isLong(item)) {
        this.#changeLong(item);
        this.#longItems++;
      } else short.push(item);
    if (short.length > MEMBERS_PER_STEP) this.#waiting = short;
    else for (const item of short) this.#add(item);
  }

  /** Returns true if all items that the set had at first were added. Later changes of long lists may still be pending. */
  get isComplete(): boolean {
    return this.#waiting.length === 0 && (this.#longLists?.changesApplied ?? 0) >= this.#longItems;
  }

  get isSettled(): boolean {
    return this.#waiting.length === 0 && this.#longLists?.isSettled !== false;
  }

  /** Does one step. Does nothing if `isSettled` is true. */
  step(): void {
    if (this.#waiting.length === 0) return this.#longLists?.step();
    for (let left = MEMBERS_PER_STEP; left > 0; ) {
      const item = this.#waiting[this.#next];
      if (item === undefined) {
        this.#waiting = [];
        this.#waitingSet = undefined;
        return;
      }
      left -= 1 + contributionSize(this.#set, item);
      this.#next++;
      if (this.#waitingSet?.delete(item) === false || !this.#isMatching(item)) continue;
      this.#start(item);
    }
  }

  onMatchStarted(item: I): void {
    if (!this.#isWaiting(item)) this.#start(item);
  }

  onMatchStopped(item: I): void {
    if (this.#isWaiting(item)) {
      this.#waitingSet?.delete(item);
      return;
    }
    if (this.#longLists?.has(item) === true) this.#changeLong(item);
    else for (const member of contribution(this.#set, item)) this.#members.remove(member);
  }

  /** Must be called when a matching item has changed. */
  onItemChanged(item: I, before: Contributions): void {
    if (this.#isWaiting(item)) return;
    const added = contribution(this.#set, before);
    if (this.#longLists?.has(item) === true || this.#isLong(item)) return this.#changeLong(item, added);
    // One entry of a network set usually changes at a time.
    const parts = differingParts(added, contribution(this.#set, item));
    for (const member of parts.b) this.#members.add(member);
    for (const member of parts.a) this.#members.remove(member);
  }

  #isWaiting(item: I): boolean {
    if (this.#waiting.length === 0) return false;
    this.#waitingSet ??= new Set(this.#waiting.slice(this.#next));
    return this.#waitingSet.has(item);
  }

  #isMatching(item: I): boolean {
    return item.labelClass?.matches.has(this.#set.selector) === true;
  }

  #isLong(item: I): boolean {
    return contributionSize(this.#set, item) >= MIN_LONG_LIST;
  }

  #changeLong(item: I, added?: readonly string[]): void {
    this.#longLists ??= new LongLists<I>(this.#members, {
      desired: (each) => (this.#isMatching(each) ? contribution(this.#set, each) : []),
      minLength: MIN_LONG_LIST,
    });
    this.#longLists.onChanged(item, added);
  }

  #start(item: I): void {
    if (this.#longLists?.has(item) === true || this.#isLong(item)) this.#changeLong(item);
    else this.#add(item);
  }

  #add(item: I): void {
    for (const member of contribution(this.#set, item)) this.#members.add(member);
  }
}
