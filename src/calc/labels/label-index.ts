// Which items match which selectors, kept up to date as either side or a profile changes. Both ways are short: changed
// labels look only at selectors filed under them, a new selector only at items that have a label it demands. So the cost
// follows what is affected, not the number of endpoints or selectors there are.
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
  readonly #listener: MatchListener<I, E>;
  #items = 0;
  readonly #parentIds = new IdPool();
  // Most items find their class: these spare an allocation each.
  readonly #scratchPairs: LabelPair[] = [];
  readonly #scratchParents: LabelParent[] = [];
  readonly stats: LabelIndexStats = {
    evaluations: { matched: 0, unmatched: 0 },
    strategies: { none: 0, "all-items": 0, label: 0, values: 0 },
  };

  constructor(listener: MatchListener<I, E>) {
    this.#listener = listener;
  }

  get itemCount(): number {
    return this.#items;
  }
  /** How many selectors are found by label, and how many must be tried on every item. */
  get selectorCounts(): { readonly optimized: number; readonly unoptimized: number } {
    const unoptimized = this.#unrestricted.size;
    return { optimized: this.#selectors.size - unoptimized, unoptimized };
  }

  // --- items ---------------------------------------------------------------------------------------------------
  /** Adds the item, or gives it other labels or profiles. */
  setItem(item: I, labels: Labels, profiles: readonly string[]): void {
    const before = item.labelClass;
    const after = this.#classOf(labels, profiles);
    if (after === before) return;
    if (before === undefined) this.#items++;
    else before.removeItem(item);
    after.addItem(item);
    this.#tellMove(item, before?.matches ?? NO_MATCHES, after.matches);
    if (before !== undefined) this.#forgetClass(before);
  }

  deleteItem(item: I): void {
    const before = item.labelClass;
    if (before === undefined) return;
    this.#items--;
    before.removeItem(item);
    this.#tellMove(item, before.matches, NO_MATCHES);
    this.#forgetClass(before);
  }

  // --- profiles ------------------------------------------------------------------------------------------------
  setParentLabels(name: string, labels: Labels | undefined): void {
    const parent = this.#parent(name);
    parent.labels = labels;
    if (parent.children.live > 0 && this.#internParent(parent))
      for (const child of [...parent.children.fresh(isAlive, this.#table.newWalk())]) this.#reevaluate(child);
    this.#forgetParent(parent);
  }

  // --- selectors -----------------------------------------------------------------------------------------------
  addSelector(selector: E): void {
    if (this.#selectors.has(selector)) throw new Error(`selector ${selector.text} is in the index already`);
    this.#selectors.add(selector);
    this.#file(selector);
    for (const candidate of this.#candidates(selector)) {
      if (!this.#evaluate(selector, candidate)) continue;
      candidate.matches.add(selector);
      for (const item of candidate.items) this.#listener.onMatchStarted(selector, item as I);
    }
  }

  removeSelector(selector: E): void {
    if (!this.#selectors.delete(selector)) return;
    for (const candidate of this.#candidates(selector)) {
      if (!candidate.matches.delete(selector)) continue;
      for (const item of candidate.items) this.#listener.onMatchStopped(selector, item as I);
    }
    this.#unfile(selector);
  }

  *matchesOf(selector: E): Generator<I> {
    for (const candidate of this.#candidates(selector))
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
    const known = this.#classes.get(key);
    return known ?? this.#createClass(key, pairs.slice(), parents.slice());
  }

  #createClass(key: string, pairs: readonly LabelPair[], parents: readonly LabelParent[]): LabelClass {
    const created = new LabelClass(key, pairs, parents);
    this.#classes.set(key, created);
    for (const pair of pairs) this.#table.postClass(pair, created);
    for (const parent of parents) {
      parent.children.add(created, isAlive, this.#table.newWalk);
      if (parent.children.live === 1) this.#internParent(parent);
    }
    this.#reevaluate(created);
    return created;
  }

  #forgetClass(labelClass: LabelClass): void {
    if (labelClass.items.length > 0) return;
    labelClass.isForgotten = true;
    this.#classes.delete(labelClass.key);
    for (const pair of labelClass.pairs) this.#table.withdrawClass(pair);
    for (const parent of labelClass.parents) {
      parent.children.remove(isAlive, this.#table.newWalk);
      if (parent.children.live === 0) this.#internParent(parent);
      this.#forgetParent(parent);
    }
  }

  #parent(name: string): LabelParent {
    let parent = this.#parents.get(name);
    if (parent === undefined) this.#parents.set(name, (parent = new LabelParent(name, this.#parentIds.take())));
    return parent;
  }

  #forgetParent(parent: LabelParent): void {
    if (parent.labels !== undefined || parent.children.live > 0) return;
    if (this.#parents.delete(parent.name)) this.#parentIds.giveBack(parent.id);
  }

  /** Whether its pairs changed. */
  #internParent(parent: LabelParent): boolean {
    const before = parent.pairs;
    const wanted = parent.children.live > 0 ? parent.labels : undefined;
    const pairs = new Set(wanted === undefined ? [] : this.#table.intern(wanted));
    if (pairs.size === before.size && pairs.isSubsetOf(before)) return false;
    parent.pairs = pairs;
    for (const pair of pairs) if (!before.has(pair)) this.#table.postParent(pair, parent);
    for (const pair of before) if (!pairs.has(pair)) this.#table.withdrawParent(pair);
    return true;
  }

  // --- matching ------------------------------------------------------------------------------------------------
  #reevaluate(labelClass: LabelClass): void {
    const walk = this.#table.newWalk();
    const before = labelClass.matches;
    const now = new SelectorList();
    const consider = (selectors: Iterable<SelectorEntry>) => {
      for (const selector of selectors) {
        if (selector.seen === walk) continue;
        selector.seen = walk;
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
    for (const parent of labelClass.parents) considerPairs(parent.pairs);
    consider(this.#unrestricted);
    labelClass.matches = now;
    for (const item of labelClass.items) this.#tellMove(item as I, before, now);
  }

  /** What comes is told before what goes, so that nothing that stays is lost in between. */
  #tellMove(item: I, before: Iterable<SelectorEntry>, after: Iterable<SelectorEntry>): void {
    const walk = this.#table.newWalk();
    for (const selector of before) selector.matchedBefore = walk;
    for (const selector of after) selector.matched = walk;
    for (const selector of after as Iterable<E>)
      if (selector.matchedBefore !== walk) this.#listener.onMatchStarted(selector, item);
    for (const selector of before as Iterable<E>)
      if (selector.matched !== walk) this.#listener.onMatchStopped(selector, item);
  }

  #evaluate(selector: SelectorEntry, labelClass: LabelClass): boolean {
    const matched = selector.matcher(labelClass);
    if (matched) this.stats.evaluations.matched++;
    else this.stats.evaluations.unmatched++;
    return matched;
  }

  // --- where to look -------------------------------------------------------------------------------------------
  #file(selector: E): void {
    const { filing } = selector;
    if (filing.kind === "everywhere") this.#unrestricted.add(selector);
    else if (filing.kind === "name") (this.#table.name(filing.label).selectors ??= new SelectorList()).add(selector);
    else if (filing.kind === "values")
      for (const value of filing.values)
        (this.#table.pair(filing.label, value).selectors ??= new SelectorList()).add(selector);
  }

  #unfile(selector: E): void {
    const { filing } = selector;
    if (filing.kind === "everywhere") this.#unrestricted.delete(selector);
    else if (filing.kind === "name") {
      const name = this.#table.name(filing.label);
      name.selectors?.delete(selector);
      this.#table.releaseName(name);
    } else if (filing.kind === "values")
      for (const value of filing.values) {
        const pair = this.#table.pair(filing.label, value);
        pair.selectors?.delete(selector);
        this.#table.release(pair);
      }
  }

  /** A superset of what the selector can match, as small as the labels allow. */
  #candidates(selector: E): readonly LabelClass[] {
    if (selector.filing.kind === "nowhere") {
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
    const walk = this.#table.newWalk();
    const found: LabelClass[] = [];
    for (const pair of pairs) {
      if (pair.classes !== undefined) for (const each of pair.classes.fresh(isAlive, walk)) found.push(each);
      if (pair.parents === undefined) continue;
      for (const parent of pair.parents.fresh((other) => other.pairs.has(pair), walk))
        for (const child of parent.children.fresh(isAlive, walk)) found.push(child);
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

/** How many classes would have to be looked at, or `limit` when it is that many or more. */
function costOf(pairs: Iterable<LabelPair>, limit: number): number {
  let cost = 0;
  for (const { classes, parents } of pairs) {
    cost += (classes?.live ?? 0) + (parents?.live ?? 0);
    if (cost < limit)
      for (const parent of parents?.entries() ?? []) {
        cost += parent.children.live;
        if (cost >= limit) break;
      }
    if (cost >= limit) return limit;
  }
  return cost;
}

const NO_MATCHES: readonly SelectorEntry[] = [];
let keyBuffer = Buffer.alloc(1024);

/** Equal for equal labels and profiles: their numbers as characters, two each, profiles after a mark. */
function classKey(pairs: readonly LabelPair[], parents: readonly LabelParent[]): string {
  const size = (pairs.length + parents.length) * 4 + 2;
  if (size > keyBuffer.length) keyBuffer = Buffer.alloc(2 * size);
  let at = 0;
  for (const { id } of pairs) at = keyBuffer.writeUInt32LE(id, at);
  at = keyBuffer.writeUInt16LE(0xffff, at);
  for (const { id } of parents) at = keyBuffer.writeUInt32LE(id, at);
  return keyBuffer.toString("utf16le", 0, at);
}
