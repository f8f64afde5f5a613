// Collects the BGP state from resources, or from the updates of a syncer.
import { type Cidr, parseCidr } from "../lib/ip/ip.ts";
import {
  affects,
  type BgpConfiguration,
  type BgpFilter,
  type BgpPeer,
  type BlockAffinity,
  convertPool,
  keyPath,
  type Node,
  type Pool,
  readBgpFilter,
  readNode,
  type Resource,
} from "../model/index.ts";
import type { SyncerUpdate } from "../datastore/index.ts";
import {
  type BgpState,
  type Block,
  parseConfiguration,
  parseNode,
  parseOrReport,
  parsePeer,
  type Problem,
} from "./state.ts";

/** Each object is parsed once, when it changes. */
export class BgpCollector {
  readonly #nodes = new Map<string, Node>();
  readonly #configurations = new Map<string, BgpConfiguration>();
  readonly #peers = new Map<string, BgpPeer>();
  readonly #filters = new Map<string, BgpFilter>();
  readonly #unreadableFilters = new Set<string>();
  readonly #pools = new Map<string, Pool>();
  readonly #blocks = new Map<string, Block & { readonly host: string }>();
  readonly #problems = new Map<string, readonly Problem[]>();
  readonly #podCidrs = new Map<string, readonly Cidr[]>();
  readonly #usePodCidr: boolean;

  /** @param options.usePodCidr uses a node's pod CIDRs, which Kubernetes assigned, as its blocks */
  constructor(options: { readonly usePodCidr?: boolean } = {}) {
    this.#usePodCidr = options.usePodCidr ?? false;
  }

  onUpdate(update: SyncerUpdate): void {
    const { key, value } = update;
    if (key.type === "resource") this.setResource(key.name, value as Resource | undefined, key.kind);
    else if (key.type === "pool") put(this.#pools, keyPath(key), value as Pool | undefined);
    else if (key.type === "blockAffinity" && key.affinityType === "host")
      put(this.#blocks, keyPath(key), blockOf(key.host, key.cidr, value as BlockAffinity | undefined));
  }

  setResource(name: string, resource: Resource | undefined, kind: Resource["kind"]): void {
    const problems: Problem[] = [];
    const read = <T>(parse: (resource: Resource, report: (problem: string) => void) => T): T | undefined =>
      resource === undefined ? undefined : parseOrReport(resource, parse, problems);
    if (kind === "Node") {
      put(this.#nodes, name, read(parseNode));
      if (this.#usePodCidr) put(this.#podCidrs, name, read(podCidrsOf));
    } else if (kind === "BGPConfiguration") put(this.#configurations, name, read(parseConfiguration));
    else if (kind === "BGPPeer") put(this.#peers, name, read(parsePeer));
    else if (kind === "BGPFilter") this.#setFilter(name, resource !== undefined, read(readBgpFilter));
    else if (kind === "IPPool")
      put(
        this.#pools,
        name,
        read((r) => convertPool(r)?.value),
      );
    put(this.#problems, `${kind}/${name}`, problems.length === 0 ? undefined : problems);
  }

  #setFilter(name: string, exists: boolean, filter: BgpFilter | undefined): void {
    put(this.#filters, name, filter);
    if (exists && filter === undefined) this.#unreadableFilters.add(name);
    else this.#unreadableFilters.delete(name);
  }

  setBlock(host: string, cidr: string, affinity: BlockAffinity): void {
    put(this.#blocks, `${host} ${cidr}`, blockOf(host, cidr, affinity));
  }

  /** The state with the blocks of one node. */
  stateFor(node: string): BgpState {
    return {
      nodes: sorted(this.#nodes),
      configurations: new Map(this.#configurations),
      peers: sorted(this.#peers),
      filters: sorted(this.#filters),
      unreadableFilters: new Set(this.#unreadableFilters),
      pools: [...this.#pools.values()],
      blocks: [
        ...[...this.#blocks.values()].filter(({ host }) => host === node),
        ...(this.#podCidrs.get(node) ?? []).map((cidr) => ({ cidr, state: "confirmed" as const })),
      ],
      problems: [...this.#problems.values()].flat(),
    };
  }
}

const podCidrsOf = (resource: Resource): readonly Cidr[] =>
  readNode(resource, (error) => {
    if (affects(error, ["status.podCIDRs"])) throw error;
  }).podCidrs;

/** A block that is not yet claimed (pending), or deleted, is not announced. */
function blockOf(
  host: string,
  cidr: string,
  affinity: BlockAffinity | undefined,
): (Block & { readonly host: string }) | undefined {
  if (affinity === undefined || affinity.deleted || affinity.state === "pending") return undefined;
  return { host, cidr: parseCidr(cidr), state: affinity.state };
}

function put<T>(map: Map<string, T>, name: string, value: T | undefined): void {
  if (value === undefined) map.delete(name);
  else map.set(name, value);
}

const sorted = <T>(map: ReadonlyMap<string, T>): ReadonlyMap<string, T> =>
  new Map([...map].sort(([a], [b]) => (a < b ? -1 : 1)));
