// Calculates the members of IP sets that are defined by a selector or a named port, by matching all endpoints and network
// sets of the cluster with the selectors that local rules use.
//
// - Members are reference-counted: an address that two endpoints share stays until both are deleted.
// - Additions are emitted before removals, so that an unchanged member is never removed in between.
// - Counting and filling a set, and applying the change of a long list, are done in steps (`countStep`, `fillStep`, `step`),
//   between which anything may change.
// - Sets of named ports are indexed by port name: a policy and a pod may each have tens of thousands of names.
import type { Cidr } from "../../lib/ip/ip.ts";
import { listsEqual } from "../../lib/compare-lists.ts";
import type { EndpointPort, Labels, ParsedSelector } from "../../model/index.ts";
import { LabelIndex, type LabelIndexStats, LabelItem, SelectorEntry } from "../labels/index.ts";
import type { IpSetId } from "../messages.ts";
import { type ContributedSet, contributionSize, portNames, samePorts } from "./contribution.ts";
import { FilledSet } from "./filled-set.ts";
import type { IpSetContent, IpSetSpec, MemberListener } from "./ip-set.ts";
import { MemberSet } from "./member-set.ts";
import { addTo, deleteFrom } from "./sets-by-key.ts";

/** The fields of an endpoint or network set that determine the members of IP sets. */
export interface Contributor {
  readonly labels: Labels;
  readonly profileIds: readonly string[];
  readonly nets: readonly Cidr[];
  readonly ports: readonly EndpointPort[];
  /** The namespace of a network set; undefined for endpoints and global network sets. */
  readonly namespace?: string;
}

class Item extends LabelItem {
  nets: readonly Cidr[] = NO_NETS;
  ports: readonly EndpointPort[] = NO_PORTS;
}
/** A class of its own, because an endpoint should need no memory for the namespace. */
class NamespacedItem extends Item {
  constructor(readonly namespace: string) {
    super();
  }
}
const NO_NETS: readonly Cidr[] = [];
const NO_PORTS: readonly EndpointPort[] = [];
const NO_ITEMS: ReadonlySet<Item> = new Set();
const NO_SETS: readonly IpSet[] = [];

class SetSelector extends SelectorEntry {
  /** Nearly always at most one element: there is one such set, and one for each namespace in `networkSetsOf`. */
  #addressSets: readonly IpSet[] = NO_SETS;
  /** Sets of named ports, by port name. */
  readonly #portSets = new Map<string, Set<IpSet>>();
  /** Undefined if the selector was matched with all items. */
  matching: Iterator<void> | undefined;

  addSet(set: IpSet): void {
    if (set.port === undefined) this.#addressSets = [...this.#addressSets, set];
    else addTo(this.#portSets, set.port.name, set);
  }

  deleteSet(set: IpSet): void {
    if (set.port === undefined) this.#addressSets = this.#addressSets.filter((each) => each !== set);
    else deleteFrom(this.#portSets, set.port.name, set);
  }

  get hasSets(): boolean {
    return this.#addressSets.length > 0 || this.#portSets.size > 0;
  }

  /** The sets that the item may contribute to. */
  setsFor({ ports }: Pick<Item, "ports">): readonly IpSet[] {
    if (this.#portSets.size === 0 || ports.length === 0) return this.#addressSets;
    const sets = [...this.#addressSets];
    // The shorter list is walked: one tenant chooses the number of ports, another one the number of selectors with ports.
    if (this.#portSets.size < ports.length) for (const ofPort of this.#portSets.values()) sets.push(...ofPort);
    else for (const name of portNames(ports)) sets.push(...(this.#portSets.get(name) ?? NO_SETS));
    return sets;
  }
}
interface IpSet extends ContributedSet {
  readonly spec: IpSetSpec;
  /** The number of members. An address that two endpoints share counts twice. */
  count: number;
  /** The part of them that network sets contribute, by their namespace. */
  countByNamespace: Map<string, number> | undefined;
  /** Undefined while the set is only counted. */
  filled: FilledSet<Item> | undefined;
  readonly selector: SetSelector;
}

type SelectedContent = Extract<IpSetContent, { readonly selector: ParsedSelector }>;

export class MemberIndex {
  readonly #labels: LabelIndex<Item, SetSelector>;
  readonly #items = new Map<string, Item>();
  readonly #itemsByPort = new Map<string, Set<Item>>();
  readonly #selectors = new Map<ParsedSelector, SetSelector>();
  readonly #sets = new Map<IpSetId, IpSet>();
  /** Filled sets to which a long list is being applied. */
  readonly #unsettledSets = new Set<IpSet>();
  readonly #listener: MemberListener;
  readonly #omitNestedPrefixes: boolean;
  readonly #onCountChanged: (id: IpSetId) => void;

  constructor(
    listener: MemberListener,
    options: { readonly omitNestedPrefixes: boolean },
    onCountChanged: (id: IpSetId) => void = () => {},
  ) {
    this.#listener = listener;
    this.#omitNestedPrefixes = options.omitNestedPrefixes;
    this.#onCountChanged = onCountChanged;
    this.#labels = new LabelIndex({
      onMatchStarted: (selector, item) => {
        for (const set of selector.setsFor(item)) {
          this.#addToCount(set, item, contributionSize(set, item));
          set.filled?.onMatchStarted(item);
          this.#queueStep(set);
        }
      },
      onMatchStopped: (selector, item) => {
        for (const set of selector.setsFor(item)) {
          this.#addToCount(set, item, -contributionSize(set, item));
          set.filled?.onMatchStopped(item);
          this.#queueStep(set);
        }
      },
    });
  }

  #addToCount(set: IpSet, item: Item, change: number): void {
    if (change === 0) return;
    set.count += change;
    if (item instanceof NamespacedItem) {
      set.countByNamespace ??= new Map();
      const count = (set.countByNamespace.get(item.namespace) ?? 0) + change;
      if (count > 0) set.countByNamespace.set(item.namespace, count);
      else set.countByNamespace.delete(item.namespace);
    }
    this.#onCountChanged(set.spec.id);
  }

  #queueStep(set: IpSet): void {
    if (set.filled?.isSettled === false) this.#unsettledSets.add(set);
  }

  get stats(): LabelIndexStats {
    return this.#labels.stats;
  }
  get itemCount(): number {
    return this.#labels.itemCount;
  }
  get selectorCounts(): { readonly optimized: number; readonly unoptimized: number } {
    return this.#labels.selectorCounts;
  }

  /** @returns true if the item is new */
  setItem(id: string, value: Contributor): boolean {
    const known = this.#items.get(id);
    const item = known ?? (value.namespace === undefined ? new Item() : new NamespacedItem(value.namespace));
    if (known === undefined) this.#items.set(id, item);
    if (!listsEqual(item.nets, value.nets) || !samePorts(item.ports, value.ports)) this.#setContribution(item, value);
    this.#labels.setItem(item, value.labels, value.profileIds);
    return known === undefined;
  }

  /** @returns true if the item existed */
  deleteItem(id: string): boolean {
    const item = this.#items.get(id);
    if (item === undefined) return false;
    this.#items.delete(id);
    this.#labels.deleteItem(item);
    for (const name of portNames(item.ports)) deleteFrom(this.#itemsByPort, name, item);
    return true;
  }

  setProfileLabels(name: string, labels: Labels | undefined): void {
    this.#labels.setParentLabels(name, labels);
  }

  /**
   * Does one step of the work that changes of items and profiles left.
   * @returns false if nothing is left
   */
  step(): boolean {
    const didReevaluate = this.#labels.reevaluateNext();
    for (const set of this.#unsettledSets) {
      this.#unsettledSets.delete(set);
      set.filled?.step();
      this.#queueStep(set); // behind the others
      return true;
    }
    return didReevaluate;
  }

  /** Starts to count the members of the set. */
  addSet(spec: IpSetSpec & { readonly content: SelectedContent }): void {
    const { content } = spec;
    if (this.#sets.has(spec.id)) throw new Error(`IP set ${spec.id} is already in the index`);
    const port = content.kind === "namedPort" ? { name: content.port, protocol: content.protocol } : undefined;
    const known = this.#selectors.get(content.selector);
    const selector = known ?? new SetSelector(content.selector);
    const networkSetsOf = content.kind === "selector" ? content.networkSetsOf : undefined;
    const counts = { count: 0, countByNamespace: undefined };
    const set: IpSet = { spec, ...counts, filled: undefined, port, networkSetsOf, selector };
    this.#sets.set(spec.id, set);
    selector.addSet(set);
    if (known === undefined) {
      this.#selectors.set(content.selector, selector);
      selector.matching = this.#labels.addSelectorInSteps(selector);
    } else for (const item of this.#contributors(set)) this.#addToCount(set, item, contributionSize(set, item));
  }

  /** Does one step of counting the members of the set. Returns true if all are counted. */
  countStep(id: IpSetId): boolean {
    const selector = this.#sets.get(id)?.selector;
    if (selector?.matching === undefined) return true;
    if (selector.matching.next().done === true) selector.matching = undefined;
    return selector.matching === undefined;
  }

  memberCount(id: IpSetId): number {
    return this.#sets.get(id)?.count ?? 0;
  }

  /** Returns how many members are contributed by network sets of other namespaces. */
  foreignCount(id: IpSetId, namespace: string): number {
    let count = 0;
    for (const [each, ofEach] of this.#sets.get(id)?.countByNamespace ?? []) if (each !== namespace) count += ofEach;
    return count;
  }

  /** Starts to emit the members of the set and, until `empty` is called, their changes. All members must be counted. */
  fill(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) throw new Error(`IP set ${id} is not in the index`);
    const { spec } = set;
    const members = new MemberSet(id, this.#listener, this.#omitNestedPrefixes && spec.type !== "ipAndPort");
    set.filled = new FilledSet(set, { members, items: this.#contributors(set) });
  }

  /** Does one step of emitting the members of the set. Returns true if all members were emitted. */
  fillStep(id: IpSetId): boolean {
    const filled = this.#sets.get(id)?.filled;
    if (filled === undefined || filled.isComplete) return true;
    filled.step();
    return filled.isComplete;
  }

  /** Stops emitting the members of the set. Their removal is not emitted, because the caller removes the set itself. */
  empty(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set !== undefined) set.filled = undefined;
  }

  removeSet(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    this.#sets.delete(id);
    const { selector } = set;
    selector.deleteSet(set);
    if (selector.hasSets) return;
    this.#selectors.delete(selector.selector);
    this.#labels.removeSelector(selector);
  }

  /** Items that the set's selector selects and that may have members for it. */
  *#contributors({ port, selector }: IpSet): Generator<Item> {
    if (port === undefined) yield* this.#labels.matchesOf(selector);
    else
      for (const item of this.#itemsByPort.get(port.name) ?? NO_ITEMS)
        if (item.labelClass?.matches.has(selector) === true) yield item;
  }

  /** Replaces the addresses and ports of an item whose labels are unchanged. */
  #setContribution(item: Item, value: Pick<Item, "nets" | "ports">): void {
    const { namespace } = item as Partial<NamespacedItem>;
    const before = { nets: item.nets, ports: item.ports, ...(namespace === undefined ? {} : { namespace }) };
    item.nets = value.nets;
    item.ports = value.ports.length === 0 ? NO_PORTS : value.ports;
    for (const name of portNames(before.ports)) deleteFrom(this.#itemsByPort, name, item);
    for (const name of portNames(item.ports)) addTo(this.#itemsByPort, name, item);
    for (const selector of (item.labelClass?.matches ?? []) as Iterable<SetSelector>)
      for (const set of new Set([...selector.setsFor(before), ...selector.setsFor(item)])) {
        this.#addToCount(set, item, contributionSize(set, item) - contributionSize(set, before));
        set.filled?.onItemChanged(item, before);
        this.#queueStep(set);
      }
  }
}
