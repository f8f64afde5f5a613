// The members of IP sets named by selector or named port: every endpoint and network set of the cluster against every
// selector a local rule uses. Members are counted, so that an address shared by two endpoints stays until both are gone,
// and what did not change never flaps: what comes is added before what goes is removed.
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
const NO_MATCHES: readonly SelectorEntry[] = [];

class SetSelector extends SelectorEntry {
  readonly sets: IpSet[] = [];
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
  readonly #selectors = new Map<string, SetSelector>();
  readonly #sets = new Map<IpSetId, IpSet>();
  readonly #listener: MemberListener;
  readonly #withoutOverlaps: boolean;

  constructor(listener: MemberListener, options: { readonly withoutOverlaps: boolean }) {
    this.#listener = listener;
    this.#withoutOverlaps = options.withoutOverlaps;
    this.#labels = new LabelIndex({
      onMatchStarted: (selector, item) => {
        for (const set of selector.sets) for (const member of contribution(set, item)) set.members.add(member);
      },
      onMatchStopped: (selector, item) => {
        for (const set of selector.sets) for (const member of contribution(set, item)) set.members.remove(member);
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
    selector.sets.push(set);
    if (known === undefined) {
      this.#selectors.set(content.selector, selector);
      this.#labels.addSelector(selector);
    } else
      for (const item of this.#labels.matchesOf(selector))
        for (const member of contribution(set, item)) set.members.add(member);
  }

  /** No member is taken out one by one: the set goes as a whole. */
  removeSet(id: IpSetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    this.#sets.delete(id);
    const { selector } = set;
    selector.sets.splice(selector.sets.indexOf(set), 1);
    if (selector.sets.length > 0) return;
    this.#selectors.delete(selector.text);
    this.#labels.removeSelector(selector);
  }

  /** New addresses or ports under the labels the item still has. */
  #setContribution(item: Item, value: Contributor): void {
    const before = { nets: item.nets, ports: item.ports };
    item.nets = value.nets;
    item.ports = value.ports.length === 0 ? NO_PORTS : value.ports;
    for (const selector of (item.labelClass?.matches ??
      NO_MATCHES) as readonly SelectorEntry[] as readonly SetSelector[])
      for (const set of selector.sets) {
        // One entry of a large network set usually changes at a time.
        const { a: removed, b: added } = differingParts(contribution(set, before), contribution(set, item));
        for (const member of added) set.members.add(member);
        for (const member of removed) set.members.remove(member);
      }
  }
}

function contribution(set: IpSet, item: Pick<Contributor, "nets" | "ports">): readonly string[] {
  if (set.port === undefined) return item.nets;
  const members: string[] = [];
  for (const port of item.ports) {
    const protocol = protocolName(port.protocol);
    if (port.name !== set.port.name || (set.port.protocol !== "any" && protocol !== set.port.protocol)) continue;
    for (const net of item.nets) members.push(`${cidrAddress(net)},${protocol}:${port.port}`);
  }
  return members;
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
