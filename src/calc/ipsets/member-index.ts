// Calculates the members of IP sets that are defined by a selector or a named port, by matching all endpoints and network
// sets of the cluster with the selectors that local rules use.
//
// - Members are reference-counted: an address that two endpoints share stays until both are deleted.
// - Additions are emitted before removals, so that an unchanged member is never removed in between.
// - Sets of named ports are indexed by port name: a policy and a pod may each have tens of thousands of names.
import { type Cidr, cidrAddress } from "../../lib/ip/ip.ts";
import { differingParts, listsEqual } from "../../lib/compare-lists.ts";
import type { EndpointPort, Labels, ParsedSelector } from "../../model/index.ts";
import { LabelIndex, type LabelIndexStats, LabelItem, SelectorEntry } from "../labels/index.ts";
import type { IpSetId } from "../messages.ts";
import type { IpSetContent, IpSetSpec, MemberListener, NamedPortProtocol } from "./ip-set.ts";
import { MemberSet } from "./member-set.ts";

/** The fields of an endpoint or network set that determine the members of IP sets. */
export interface Contributor {
  readonly labels: Labels;
  readonly profileIds: readonly string[];
  readonly nets: readonly Cidr[];
  readonly ports: readonly EndpointPort[];
}

class Item extends LabelItem {
  nets: readonly Cidr[] = NO_NETS;
  ports: readonly EndpointPort[] = NO_PORTS;
}
const NO_NETS: readonly Cidr[] = [];
const NO_PORTS: readonly EndpointPort[] = [];
const NO_NAMES: readonly string[] = [];
const NO_ITEMS: ReadonlySet<Item> = new Set();
const NO_SETS: readonly IpSet[] = [];

class SetSelector extends SelectorEntry {
  /** At most one element: the ID of such a set depends only on the selector. */
  #addressSets: readonly IpSet[] = NO_SETS;
  /** Sets of named ports, by port name. */
  readonly #portSets = new Map<string, Set<IpSet>>();

  addSet(set: IpSet): void {
    if (set.port === undefined) this.#addressSets = [set];
    else addTo(this.#portSets, set.port.name, set);
  }

  deleteSet(set: IpSet): void {
    if (set.port === undefined) this.#addressSets = NO_SETS;
    else deleteFrom(this.#portSets, set.port.name, set);
  }

  get hasSets(): boolean {
    return this.#addressSets.length > 0 || this.#portSets.size > 0;
  }

  /** The sets that the item contributes to. */
  setsFor({ ports }: Pick<Item, "ports">): readonly IpSet[] {
    if (this.#portSets.size === 0 || ports.length === 0) return this.#addressSets;
    const sets = [...this.#addressSets];
    for (const name of portNames(ports)) for (const set of this.#portSets.get(name) ?? NO_SETS) sets.push(set);
    return sets;
  }
}
interface IpSet {
  readonly spec: IpSetSpec;
  /** The number of members. An address that two endpoints share counts twice. */
  count: number;
  /** Undefined while the set is only counted. */
  members: MemberSet | undefined;
  readonly port: { readonly name: string; readonly protocol: NamedPortProtocol } | undefined;
  readonly selector: SetSelector;
}

type SelectedContent = Extract<IpSetContent, { readonly selector: ParsedSelector }>;

export class MemberIndex {
  readonly #labels: LabelIndex<Item, SetSelector>;
  readonly #items = new Map<string, Item>();
  readonly #itemsByPort = new Map<string, Set<Item>>();
  readonly #selectors = new Map<ParsedSelector, SetSelector>();
  readonly #sets = new Map<IpSetId, IpSet>();
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
          this.#addToCount(set, contributionSize(set, item));
          if (set.members !== undefined) for (const member of contribution(set, item)) set.members.add(member);
        }
      },
      onMatchStopped: (selector, item) => {
        for (const set of selector.setsFor(item)) {
          this.#addToCount(set, -contributionSize(set, item));
          if (set.members !== undefined) for (const member of contribution(set, item)) set.members.remove(member);
        }
      },
    });
  }

  #addToCount(set: IpSet, change: number): void {
    if (change === 0) return;
    set.count += change;
    this.#onCountChanged(set.spec.id);
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
    const item = known ?? new Item();
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

  /** Starts to count the members of the set. */
  addSet(spec: IpSetSpec & { readonly content: SelectedContent }): void {
    const { content } = spec;
    if (this.#sets.has(spec.id)) throw new Error(`IP set ${spec.id} is already in the index`);
    const port = content.kind === "namedPort" ? { name: content.port, protocol: content.protocol } : undefined;
    const known = this.#selectors.get(content.selector);
    const selector = known ?? new SetSelector(content.selector);
    const set: IpSet = { spec, count: 0, members: undefined, port, selector };
    this.#sets.set(spec.id, set);
    selector.addSet(set);
    if (known === undefined) {
      this.#selectors.set(content.selector, selector);
      this.#labels.addSelector(selector);
    } else for (const item of this.#contributors(set)) this.#addToCount(set, contributionSize(set, item));
  }

  memberCount(id: IpSetId): number {
    return this.#sets.get(id)?.count ?? 0;
  }

  /** Emits the members of the set and, until `empty` is called, their changes. */
  fill(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) throw new Error(`IP set ${id} is not in the index`);
    const { spec } = set;
    const members = new MemberSet(id, this.#listener, this.#omitNestedPrefixes && spec.type !== "ipAndPort");
    set.members = members;
    for (const item of this.#contributors(set)) for (const member of contribution(set, item)) members.add(member);
  }

  /** Stops emitting the members of the set. Their removal is not emitted, because the caller removes the set itself. */
  empty(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set !== undefined) set.members = undefined;
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
    const before = { nets: item.nets, ports: item.ports };
    item.nets = value.nets;
    item.ports = value.ports.length === 0 ? NO_PORTS : value.ports;
    for (const name of portNames(before.ports)) deleteFrom(this.#itemsByPort, name, item);
    for (const name of portNames(item.ports)) addTo(this.#itemsByPort, name, item);
    for (const selector of (item.labelClass?.matches ?? []) as Iterable<SetSelector>)
      for (const set of new Set([...selector.setsFor(before), ...selector.setsFor(item)])) {
        this.#addToCount(set, contributionSize(set, item) - contributionSize(set, before));
        if (set.members === undefined) continue;
        // One entry of a large network set usually changes at a time.
        const { a: removed, b: added } = differingParts(contribution(set, before), contribution(set, item));
        for (const member of added) set.members.add(member);
        for (const member of removed) set.members.remove(member);
      }
  }
}

function contribution(set: IpSet, item: Pick<Item, "nets" | "ports">): readonly string[] {
  if (set.port === undefined) return item.nets;
  const members: string[] = [];
  for (const port of portsNamed(item.ports, set.port.name)) {
    const protocol = protocolName(port.protocol);
    if (set.port.protocol !== "any" && protocol !== set.port.protocol) continue;
    for (const net of item.nets) members.push(`${cidrAddress(net)},${protocol}:${port.port}`);
  }
  return members;
}

/** The number of members that the item contributes to the set. */
function contributionSize(set: IpSet, item: Pick<Item, "nets" | "ports">): number {
  if (set.port === undefined) return item.nets.length;
  const { name, protocol } = set.port;
  const ports = portsNamed(item.ports, name).filter(
    (port) => protocol === "any" || protocolName(port.protocol) === protocol,
  );
  return ports.length * item.nets.length;
}

/** Longer lists of ports are indexed by name. */
const MAX_UNINDEXED_PORTS = 8;
const portIndexes = new WeakMap<readonly EndpointPort[], ReadonlyMap<string, readonly EndpointPort[]>>();

function portNames(ports: readonly EndpointPort[]): Iterable<string> {
  if (ports.length === 0) return NO_NAMES; // by far the most frequent case
  return ports.length <= MAX_UNINDEXED_PORTS ? new Set(ports.map(({ name }) => name)) : portIndex(ports).keys();
}

const portsNamed = (ports: readonly EndpointPort[], name: string): readonly EndpointPort[] =>
  ports.length <= MAX_UNINDEXED_PORTS ? ports.filter((port) => port.name === name) : (portIndex(ports).get(name) ?? []);

function portIndex(ports: readonly EndpointPort[]): ReadonlyMap<string, readonly EndpointPort[]> {
  let index = portIndexes.get(ports);
  if (index === undefined) portIndexes.set(ports, (index = Map.groupBy(ports, ({ name }) => name)));
  return index;
}

function addTo<T>(sets: Map<string, Set<T>>, key: string, element: T): void {
  const set = sets.get(key);
  if (set === undefined) sets.set(key, new Set([element]));
  else set.add(element);
}

function deleteFrom<T>(sets: Map<string, Set<T>>, key: string, element: T): void {
  const set = sets.get(key);
  if (set?.delete(element) === true && set.size === 0) sets.delete(key);
}

const PROTOCOL_NAMES: Readonly<Record<number, string>> = { 6: "tcp", 17: "udp", 132: "sctp" };

function protocolName(protocol: string | number): string {
  return typeof protocol === "number" ? (PROTOCOL_NAMES[protocol] ?? String(protocol)) : protocol.toLowerCase();
}

function samePorts(a: readonly EndpointPort[], b: readonly EndpointPort[]): boolean {
  return (
    a.length === b.length &&
    a.every((port, i) => {
      const other = b[i];
      return port.name === other?.name && port.protocol === other.protocol && port.port === other.port;
    })
  );
}
