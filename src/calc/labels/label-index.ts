// Finds which items match which selectors, and updates the matches when an item, a selector or a profile changes.
//
// The cost of a change depends on the affected items and selectors, not on their total number: after a change of labels,
// only selectors that are indexed under these labels are evaluated; a new selector is evaluated only for items that have
// one of the labels it requires.
//
// The author of a selector chooses its number of terms, and others choose the number of classes, so the product of both has
// no limit. Adding a selector and changing the labels of a profile are therefore done in steps, between which other changes
// may be made. At any time, `matches` of a class contains the selectors whose match was reported for all of its items.
import type { Labels } from "../inputs.ts";
import { LabelClass, type LabelItem, LabelParent } from "./item.ts";
import type { SelectorEntry } from "./selector-entry.ts";
import { SelectorList } from "./selector-list.ts";
import { IdPool, isAlive, type LabelName, type LabelPair, LabelTable } from "./table.ts";

export interface LabelIndexStats {
  readonly evaluations: { matched: number; unmatched: number };
  /** How candidates for new selectors were found. */
  readonly strategies: { none: number; "all-items": number; label: number; values: number };
}

export interface MatchListener<I, E> {
  onMatchStarted(selector: E, item: I): void;
  onMatchStopped(selector: E, item: I): void;
}

export class LabelIndex<I extends LabelItem, E extends SelectorEntry> {
  readonly #table = new LabelTable();
  readonly #classes = new Map<string, LabelClass>();
  readonly #parents = new Map<string, LabelParent>();
  /** Selectors that no label restricts: candidates for every item. */
  readonly #unrestricted = new SelectorList();
  readonly #selectors = new Set<E>();
  /** Classes that inherit from a changed profile and were not evaluated again yet. */
  readonly #stale = new Set<LabelClass>();
  readonly #listener: MatchListener<I, E>;
  readonly #stepWork: number;
  #items = 0;
  readonly #parentIds = new IdPool();
  /** Changes whenever a selector is added or removed. */
  #selectorsVersion = 0;
  // Reused for each item: most items belong to an existing class, so that no new arrays are needed.
  readonly #scratchPairs: LabelPair[] = [];
  readonly #scratchParents: LabelParent[] = [];
  readonly stats: LabelIndexStats = {
    evaluations: { matched: 0, unmatched: 0 },
    strategies: { none: 0, "all-items": 0, label: 0, values: 0 },
  };

  /** @param stepWork the work of one step, in terms that are evaluated and items that are reported */
  constructor(listener: MatchListener<I, E>, stepWork = STEP_WORK) {
    this.#listener = listener;
    this.#stepWork = stepWork;
  }

  get itemCount(): number {
    return this.#items;
  }
  /** The number of selectors that are indexed by label, and of those that are evaluated for every item. */
  get selectorCounts(): { readonly optimized: number; readonly unoptimized: number } {
    const unoptimized = this.#unrestricted.size;
    return { optimized: this.#selectors.size - unoptimized, unoptimized };
  }

  // --- items ---------------------------------------------------------------------------------------------------
  /** Adds the item, or changes its labels and profiles. */
  setItem(item: I, labels: Labels, profiles: readonly string[]): void {
    const before = item.labelClass;
    const after = this.#classOf(labels, profiles);
    if (after === before) return;
    if (before === undefined) this.#items++;
    else before.removeItem(item);
    after.addItem(item);
    this.#emitMatchChanges(item, before?.matches ?? NO_MATCHES, after.matches);
    if (before !== undefined) this.#removeEmptyClass(before);
  }

  deleteItem(item: I): void {
    const before = item.labelClass;
    if (before === undefined) return;
    this.#items--;
    before.removeItem(item);
    this.#emitMatchChanges(item, before.matches, NO_MATCHES);
    this.#removeEmptyClass(before);
  }

  // --- profiles ------------------------------------------------------------------------------------------------
  /** Changes the labels of a profile. The matches change while the caller calls `reevaluateNext`. */
  setParentLabels(name: string, labels: Labels | undefined): void {
    const parent = this.#parent(name);
    parent.labels = labels;
    if (parent.children.liveCount > 0 && this.#internParent(parent))
      for (const child of parent.children.unvisited(isAlive, this.#table.newStamp())) this.#stale.add(child);
    this.#removeUnusedParent(parent);
  }

  /**
   * Evaluates the next class that inherits from a changed profile.
   * @returns false if there was none
   */
  reevaluateNext(): boolean {
    for (const labelClass of this.#stale) {
      this.#stale.delete(labelClass);
      this.#reevaluate(labelClass);
      return true;
    }
    return false;
  }

  // --- selectors -----------------------------------------------------------------------------------------------
  addSelector(selector: E): void {
    for (const _ of this.addSelectorInSteps(selector));
  }

  /**
   * Adds the selector. Its matches start while the caller iterates. A class that is created or changed in the meantime is
   * evaluated at that time, because the selector is indexed first; the iteration then skips it. The iteration ends early
   * if the selector is removed.
   */
  addSelectorInSteps(selector: E): Iterator<void> & Iterable<void> {
    if (this.#selectors.has(selector)) throw new Error(`selector ${selector.selector.text} is already in the index`);
    this.#selectors.add(selector);
    this.#indexSelector(selector);
    return this.#startMatches(selector, this.#candidates(selector));
  }

  *#startMatches(selector: E, candidates: readonly LabelClass[]): Generator<void> {
    let work = 0;
    for (const candidate of candidates) {
      if (work >= this.#stepWork) {
        work = 0;
        yield;
      }
      if (!this.#selectors.has(selector)) return; // removed before the first step, or between two
      work += selector.selector.termCount;
      if (candidate.isRemoved || candidate.matches.has(selector) || !this.#evaluate(selector, candidate)) continue;
      work += candidate.items.length;
      candidate.matches.add(selector);
      for (const item of candidate.items) this.#listener.onMatchStarted(selector, item as I);
    }
  }

  removeSelector(selector: E): void {
    if (!this.#selectors.delete(selector)) return;
    for (const candidate of this.#candidatesAndStale(selector)) {
      if (!candidate.matches.delete(selector)) continue;
      for (const item of candidate.items) this.#listener.onMatchStopped(selector, item as I);
    }
    this.#unindexSelector(selector);
  }

  /** Returns the items for which a match was reported. */
  *matchesOf(selector: E): Generator<I> {
    for (const candidate of this.#candidatesAndStale(selector))
      if (candidate.matches.has(selector)) for (const item of candidate.items) yield item as I;
  }

  // --- classes and parents -----------------------------------------------------------------------------------------
  #classOf(labels: Labels, profiles: readonly string[]): LabelClass {
    const pairs = this.#table.intern(labels, this.#scratchPairs);
    const parents = this.#scratchParents;
    parents.length = 0;
    for (const name of profiles) {
      const parent = this.#parent(name);
      if (!parents.includes(parent)) parents.push(parent);
    }
    const key = classKey(pairs, parents);
    const existing = this.#classes.get(key);
    return existing ?? this.#createClass(key, pairs.slice(), parents.slice());
  }

  #createClass(key: string, pairs: readonly LabelPair[], parents: readonly LabelParent[]): LabelClass {
    const created = new LabelClass(key, pairs, parents);
    this.#classes.set(key, created);
    for (const pair of pairs) this.#table.addClass(pair, created);
    for (const parent of parents) {
      parent.children.add(created, isAlive, this.#table.newStamp);
      if (parent.children.liveCount === 1) this.#internParent(parent);
    }
    this.#reevaluate(created);
    return created;
  }

  #removeEmptyClass(labelClass: LabelClass): void {
    if (labelClass.items.length > 0) return;
    labelClass.isRemoved = true;
    this.#stale.delete(labelClass);
    this.#classes.delete(labelClass.key);
    for (const pair of labelClass.pairs) this.#table.removeClass(pair);
    for (const parent of labelClass.parents) {
      parent.children.remove(isAlive, this.#table.newStamp);
      if (parent.children.liveCount === 0) this.#internParent(parent);
      this.#removeUnusedParent(parent);
    }
  }

  #parent(name: string): LabelParent {
    let parent = this.#parents.get(name);
    if (parent === undefined) this.#parents.set(name, (parent = new LabelParent(name, this.#parentIds.allocate())));
    return parent;
  }

  #removeUnusedParent(parent: LabelParent): void {
    if (parent.labels !== undefined || parent.children.liveCount > 0) return;
    if (this.#parents.delete(parent.name)) this.#parentIds.release(parent.id);
  }

  /** @returns true if its pairs changed */
  #internParent(parent: LabelParent): boolean {
    const before = parent.pairs;
    const labels = parent.children.liveCount > 0 ? parent.labels : undefined;
    const pairs = new Set(labels === undefined ? [] : this.#table.intern(labels));
    if (pairs.size === before.size && pairs.isSubsetOf(before)) return false;
    parent.pairs = pairs;
    for (const pair of pairs) if (!before.has(pair)) this.#table.addParent(pair, parent);
    for (const pair of before) if (!pairs.has(pair)) this.#table.removeParent(pair);
    return true;
  }

  // --- matching ------------------------------------------------------------------------------------------------
  #reevaluate(labelClass: LabelClass): void {
    const stamp = this.#table.newStamp();
    const before = labelClass.matches;
    const now = new SelectorList();
    const consider = (selectors: Iterable<SelectorEntry>) => {
      for (const selector of selectors) {
        if (selector.seen === stamp) continue;
        selector.seen = stamp;
        if (this.#evaluate(selector, labelClass)) now.add(selector);
      }
    };
    const considerPairs = (pairs: Iterable<LabelPair>) => {
      for (const pair of pairs) {
        if (pair.selectors !== undefined) consider(pair.selectors);
        if (pair.name.selectors !== undefined) consider(pair.name.selectors);
      }
    };
    considerPairs(labelClass.pairs);
    for (const parent of labelClass.parents) consider(this.#selectorsUnder(parent));
    consider(this.#unrestricted);
    labelClass.matches = now;
    for (const item of labelClass.items) this.#emitMatchChanges(item as I, before, now);
  }

  /**
   * Returns the selectors that are indexed under a label of the profile. The result is cached, because a profile may have
   * 100,000 labels and hundreds of classes of endpoints.
   */
  #selectorsUnder(parent: LabelParent): readonly SelectorEntry[] {
    if (parent.selectorsVersion === this.#selectorsVersion) return parent.selectors;
    const selectors: SelectorEntry[] = [];
    for (const { selectors: ofPair, name } of parent.pairs) {
      if (ofPair !== undefined) for (const selector of ofPair) selectors.push(selector);
      if (name.selectors !== undefined) for (const selector of name.selectors) selectors.push(selector);
    }
    parent.selectors = selectors;
    parent.selectorsVersion = this.#selectorsVersion;
    return selectors;
  }

  /** Emits started matches before stopped ones, so that an IP set member with both is never removed in between. */
  #emitMatchChanges(item: I, before: Iterable<SelectorEntry>, after: Iterable<SelectorEntry>): void {
    const stamp = this.#table.newStamp();
    for (const selector of before) selector.matchedBefore = stamp;
    for (const selector of after) selector.matched = stamp;
    for (const selector of after as Iterable<E>)
      if (selector.matchedBefore !== stamp) this.#listener.onMatchStarted(selector, item);
    for (const selector of before as Iterable<E>)
      if (selector.matched !== stamp) this.#listener.onMatchStopped(selector, item);
  }

  #evaluate({ selector }: SelectorEntry, labelClass: LabelClass): boolean {
    const matched = selector.matcher(labelClass);
    if (matched) this.stats.evaluations.matched++;
    else this.stats.evaluations.unmatched++;
    return matched;
  }

  // --- index of selectors --------------------------------------------------------------------------------------
  #indexSelector(selector: E): void {
    const { indexKey } = selector;
    this.#selectorsVersion++;
    if (indexKey.kind === "all") this.#unrestricted.add(selector);
    else if (indexKey.kind === "name")
      (this.#table.name(indexKey.label).selectors ??= new SelectorList()).add(selector);
    else if (indexKey.kind === "values")
      for (const value of indexKey.values)
        (this.#table.pair(indexKey.label, value).selectors ??= new SelectorList()).add(selector);
  }

  #unindexSelector(selector: E): void {
    const { indexKey } = selector;
    this.#selectorsVersion++;
    if (indexKey.kind === "all") this.#unrestricted.delete(selector);
    else if (indexKey.kind === "name") {
      const name = this.#table.name(indexKey.label);
      name.selectors?.delete(selector);
      this.#table.releaseName(name);
    } else if (indexKey.kind === "values")
      for (const value of indexKey.values) {
        const pair = this.#table.pair(indexKey.label, value);
        pair.selectors?.delete(selector);
        this.#table.release(pair);
      }
  }

  /** Returns a superset of the classes that the selector matches: a stale class may match by labels that it had before. */
  #candidatesAndStale(selector: E): Iterable<LabelClass> {
    const candidates = this.#candidates(selector);
    return this.#stale.size === 0 ? candidates : new Set([...candidates, ...this.#stale]);
  }

  /** Returns a superset of the classes that the selector can match: those with the rarest label it requires. */
  #candidates(selector: E): readonly LabelClass[] {
    if (selector.indexKey.kind === "none") {
      this.stats.strategies.none++;
      return [];
    }
    let cheapest = this.#classes.size;
    let best: { readonly kind: "label" | "values"; readonly pairs: readonly LabelPair[] } | undefined;
    for (const [label, { presence, values }] of selector.restrictions) {
      if (presence === "absent") continue;
      const name = this.#table.findName(label);
      const cost = costOf(pairsOf(name, values), cheapest);
      if (cost >= cheapest) continue;
      cheapest = cost;
      best = { kind: values === undefined ? "label" : "values", pairs: [...pairsOf(name, values)] };
    }
    if (best === undefined) {
      this.stats.strategies["all-items"]++;
      return [...this.#classes.values()];
    }
    this.stats.strategies[best.kind]++;
    return this.#classesWith(best.pairs);
  }

  #classesWith(pairs: readonly LabelPair[]): LabelClass[] {
    const stamp = this.#table.newStamp();
    const found: LabelClass[] = [];
    for (const pair of pairs) {
      if (pair.classes !== undefined) for (const each of pair.classes.unvisited(isAlive, stamp)) found.push(each);
      if (pair.parents === undefined) continue;
      for (const parent of pair.parents.unvisited((other) => other.pairs.has(pair), stamp))
        for (const child of parent.children.unvisited(isAlive, stamp)) found.push(child);
    }
    return found;
  }
}

function* pairsOf(name: LabelName | undefined, values: readonly string[] | undefined): Generator<LabelPair> {
  if (name === undefined) return;
  if (values === undefined) yield* name.pairs.values();
  else
    for (const value of values) {
      const pair = name.pairs.get(value);
      if (pair !== undefined) yield pair;
    }
}

/** Returns the number of classes to evaluate, or `limit` if the number is at least that large. */
function costOf(pairs: Iterable<LabelPair>, limit: number): number {
  let cost = 0;
  for (const { classes, parents } of pairs) {
    cost += (classes?.liveCount ?? 0) + (parents?.liveCount ?? 0);
    if (cost < limit)
      for (const parent of parents?.entries() ?? []) {
        cost += parent.children.liveCount;
        if (cost >= limit) break;
      }
    if (cost >= limit) return limit;
  }
  return cost;
}

/** About 1 ms. */
const STEP_WORK = 10_000;
const NO_MATCHES: readonly SelectorEntry[] = [];
let keyBuffer = Buffer.alloc(1024);

/** Returns a key for labels and profiles: their 32-bit IDs as two characters each, with a separator before the profiles. */
function classKey(pairs: readonly LabelPair[], parents: readonly LabelParent[]): string {
  const size = (pairs.length + parents.length) * 4 + 2;
  if (size > keyBuffer.length) keyBuffer = Buffer.alloc(2 * size);
  let at = 0;
  for (const { id } of pairs) at = keyBuffer.writeUInt32LE(id, at);
  at = keyBuffer.writeUInt16LE(0xffff, at);
  for (const { id } of parents) at = keyBuffer.writeUInt32LE(id, at);
  return keyBuffer.toString("utf16le", 0, at);
}
