// The members of IP sets named by selector or named port: every endpoint and network set of the cluster against every
// selector a local rule uses. Members are counted, so that an address shared by two endpoints stays until both are gone,
// and what did not change never flaps: what comes is added before what goes is removed. Sets of named ports are found by
// the name of the port: a policy and a pod may each have tens of thousands of names.
import { type Cidr, cidrAddress } from "../../lib/ip.ts";
import { differingParts, sameList } from "../../lib/same-list.ts";
import type { EndpointPort, Labels } from "../../model/index.ts";
import { LabelIndex, type LabelIndexStats, LabelItem, SelectorEntry } from "../labels/index.ts";
import type { IpSetId } from "../messages.ts";
import type { IpSetContent, IpSetSpec, MemberListener, NamedPortProtocol } from "./ip-set.ts";
import { MemberSet } from "./member-set.ts";

/** What an endpoint or network set gives to the sets that select it. */
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
const NO_ITEMS: ReadonlySet<Item> = new Set();

class SetSelector extends SelectorEntry {
  readonly #plain = new Set<IpSet>();
  readonly #byPort = new Map<string, Set<IpSet>>();

  addSet(set: IpSet): void {
    if (set.port === undefined) this.#plain.add(set);
    else addTo(this.#byPort, set.port.name, set);
  }

  deleteSet(set: IpSet): void {
    this.#plain.delete(set);
    if (set.port !== undefined) deleteFrom(this.#byPort, set.port.name, set);
  }

  get hasSets(): boolean {
    return this.#plain.size > 0 || this.#byPort.size > 0;
  }

  /** The sets that the item contributes to. */
  *setsFor({ ports }: Pick<Item, "ports">): Generator<IpSet> {
    yield* this.#plain;
    if (this.#byPort.size > 0) for (const name of portNames(ports)) yield* this.#byPort.get(name) ?? [];
  }
}
interface IpSet {
  readonly members: MemberSet;
  readonly port: { readonly name: string; readonly protocol: NamedPortProtocol } | undefined;
  readonly selector: SetSelector;
}

type SelectedContent = Extract<IpSetContent, { readonly selector: string }>;

export class MemberIndex {
  readonly #labels: LabelIndex<Item, SetSelector>;
  readonly #items = new Map<string, Item>();
  readonly #itemsByPort = new Map<string, Set<Item>>();
  readonly #selectors = new Map<string, SetSelector>();
  readonly #sets = new Map<IpSetId, IpSet>();
  readonly #listener: MemberListener;
  readonly #withoutOverlaps: boolean;

  constructor(listener: MemberListener, options: { readonly withoutOverlaps: boolean }) {
    this.#listener = listener;
    this.#withoutOverlaps = options.withoutOverlaps;
    this.#labels = new LabelIndex({
      onMatchStarted: (selector, item) => {
        for (const set of selector.setsFor(item)) for (const member of contribution(set, item)) set.members.add(member);
      },
      onMatchStopped: (selector, item) => {
        for (const set of selector.setsFor(item))
          for (const member of contribution(set, item)) set.members.remove(member);
      },
    });
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

  /** Whether it is new. */
  setItem(id: string, value: Contributor): boolean {
    const known = this.#items.get(id);
    const item = known ?? new Item();
    if (known === undefined) this.#items.set(id, item);
    if (!sameList(item.nets, value.nets) || !samePorts(item.ports, value.ports)) this.#setContribution(item, value);
    this.#labels.setItem(item, value.labels, value.profileIds);
    return known === undefined;
  }

  /** Whether it was there. */
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

  addSet(spec: IpSetSpec & { readonly content: SelectedContent }): void {
    const { content } = spec;
    if (this.#sets.has(spec.id)) throw new Error(`IP set ${spec.id} is active already`);
    const port = content.kind === "namedPort" ? { name: content.port, protocol: content.protocol } : undefined;
    const known = this.#selectors.get(content.selector);
    const selector = known ?? new SetSelector(content.selector);
    const members = new MemberSet(spec.id, this.#listener, this.#withoutOverlaps && spec.type !== "ipAndPort");
    const set: IpSet = { members, port, selector };
    this.#sets.set(spec.id, set);
    selector.addSet(set);
    if (known === undefined) {
      this.#selectors.set(content.selector, selector);
      this.#labels.addSelector(selector);
    } else
      for (const item of this.#contributors(set)) for (const member of contribution(set, item)) set.members.add(member);
  }

  /** No member is taken out one by one: the set goes as a whole. */
  removeSet(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    this.#sets.delete(id);
    const { selector } = set;
    selector.deleteSet(set);
    if (selector.hasSets) return;
    this.#selectors.delete(selector.text);
    this.#labels.removeSelector(selector);
  }

  /** Items that the set's selector selects and that may have members for it. */
  *#contributors({ port, selector }: IpSet): Generator<Item> {
    if (port === undefined) yield* this.#labels.matchesOf(selector);
    else
      for (const item of this.#itemsByPort.get(port.name) ?? NO_ITEMS)
        if (item.labelClass?.matches.has(selector) === true) yield item;
  }

  /** New addresses or ports under the labels the item still has. */
  #setContribution(item: Item, value: Pick<Item, "nets" | "ports">): void {
    const before = { nets: item.nets, ports: item.ports };
    item.nets = value.nets;
    item.ports = value.ports.length === 0 ? NO_PORTS : value.ports;
    for (const name of portNames(before.ports)) deleteFrom(this.#itemsByPort, name, item);
    for (const name of portNames(item.ports)) addTo(this.#itemsByPort, name, item);
    for (const selector of (item.labelClass?.matches ?? []) as Iterable<SetSelector>)
      for (const set of new Set([...selector.setsFor(before), ...selector.setsFor(item)])) {
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

/** Longer lists of ports are indexed by name. */
const FEW_PORTS = 8;
const portIndexes = new WeakMap<readonly EndpointPort[], ReadonlyMap<string, readonly EndpointPort[]>>();

const portNames = (ports: readonly EndpointPort[]): Iterable<string> =>
  ports.length <= FEW_PORTS ? new Set(ports.map(({ name }) => name)) : portIndex(ports).keys();

const portsNamed = (ports: readonly EndpointPort[], wanted: string): readonly EndpointPort[] =>
  ports.length <= FEW_PORTS ? ports.filter(({ name }) => name === wanted) : (portIndex(ports).get(wanted) ?? []);

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
