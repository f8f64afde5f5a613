// Stores the facts about each prefix: its pool, the owner of its block, and the hosts, workloads and tunnels that use it.
// Records the dirty prefixes, whose route must be calculated again.
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { PrefixTrie } from "../../lib/ip/prefix-trie.ts";
import type { RoutePoolType, RouteUpdate } from "../messages.ts";

export interface PoolFacts {
  readonly type: RoutePoolType;
  readonly natOutgoing: boolean;
  readonly crossSubnet: boolean;
}
/** In order of preference. */
const REF_TYPES = ["workload", "wireguard", "ipip", "vxlan"] as const;
export type RefType = (typeof REF_TYPES)[number];
export interface Ref {
  readonly node: string;
  readonly type: RefType;
  count: number;
}

class RouteFacts {
  pool: PoolFacts | undefined;
  /** The node that owns the prefix according to IPAM. */
  blockNode: string | undefined;
  /** Nodes that have this address, sorted. */
  hosts: readonly string[] = [];
  /** Sorted by node, then type. */
  refs: readonly Ref[] = [];
  sent: RouteUpdate | undefined;

  constructor(readonly cidr: Cidr) {}

  /** False if no fact is left: the route must be removed. */
  get hasFacts(): boolean {
    return this.pool !== undefined || this.blockNode !== undefined || this.hosts.length > 0 || this.refs.length > 0;
  }
}

export class RouteTable {
  readonly #tries: Readonly<Record<IpVersion, PrefixTrie<RouteFacts>>> = {
    4: new PrefixTrie(),
    6: new PrefixTrie(),
  };
  /** Prefixes that refer to a node, with the number of references, by node. */
  readonly #referenceCountsByNode = new Map<string, Map<Cidr, number>>();
  readonly #dirty = new Set<Cidr>();

  /** Returns the prefixes that became dirty since the last call. */
  takeDirty(): readonly Cidr[] {
    const dirty = [...this.#dirty];
    this.#dirty.clear();
    return dirty;
  }

  get(cidr: Cidr): RouteFacts | undefined {
    return this.#trie(cidr).get(cidr);
  }
  /** Yields the facts of all enclosing prefixes, from the widest to the prefix itself. */
  *enclosing(cidr: Cidr): Iterable<RouteFacts> {
    for (const [, facts] of this.#trie(cidr).covering(cidr)) yield facts;
  }

  markNode(node: string): void {
    for (const cidr of this.#referenceCountsByNode.get(node)?.keys() ?? []) this.#dirty.add(cidr);
  }
  markAll(): void {
    for (const trie of Object.values(this.#tries)) for (const [cidr] of trie.entries()) this.#dirty.add(cidr);
  }

  setPool(cidr: Cidr, pool: PoolFacts | undefined): void {
    this.#change(cidr, (facts) => (facts.pool = pool));
    this.#markWithin(cidr);
  }

  setBlockNode(cidr: Cidr, node: string | undefined): void {
    const before = this.get(cidr)?.blockNode;
    if (before === node) return;
    if (before !== undefined) this.#unlink(before, cidr);
    if (node !== undefined) this.#link(node, cidr);
    this.#change(cidr, (facts) => (facts.blockNode = node));
    this.#markWithin(cidr);
  }

  addHost(cidr: Cidr, node: string): void {
    this.#link(node, cidr);
    this.#change(cidr, (facts) => (facts.hosts = [...facts.hosts, node].sort()));
  }
  removeHost(cidr: Cidr, node: string): void {
    this.#unlink(node, cidr);
    this.#change(cidr, (facts) => {
      const at = facts.hosts.indexOf(node);
      facts.hosts = facts.hosts.filter((_, i) => i !== at);
    });
  }

  addRef(cidr: Cidr, node: string, type: RefType): void {
    this.#link(node, cidr);
    this.#change(cidr, (facts) => {
      const known = facts.refs.find((ref) => ref.node === node && ref.type === type);
      if (known !== undefined) known.count++;
      else facts.refs = [...facts.refs, { node, type, count: 1 }].sort(compareRefs);
    });
  }
  removeRef(cidr: Cidr, node: string, type: RefType): void {
    this.#unlink(node, cidr);
    this.#change(cidr, (facts) => {
      const known = facts.refs.find((ref) => ref.node === node && ref.type === type);
      if (known === undefined) throw new Error(`${cidr} has no ${type} reference to node ${node}`);
      if (--known.count === 0) facts.refs = facts.refs.filter((ref) => ref !== known);
    });
  }

  setSent(facts: RouteFacts, sent: RouteUpdate | undefined): void {
    facts.sent = sent;
    if (sent === undefined && !facts.hasFacts) this.#trie(facts.cidr).delete(facts.cidr);
  }

  #change(cidr: Cidr, change: (facts: RouteFacts) => void): void {
    const trie = this.#trie(cidr);
    let facts = trie.get(cidr);
    if (facts === undefined) trie.set(cidr, (facts = new RouteFacts(cidr)));
    change(facts);
    this.#dirty.add(cidr);
  }

  #markWithin(cidr: Cidr): void {
    for (const [inner] of this.#trie(cidr).within(cidr)) this.#dirty.add(inner);
  }

  #link(node: string, cidr: Cidr): void {
    let routes = this.#referenceCountsByNode.get(node);
    if (routes === undefined) this.#referenceCountsByNode.set(node, (routes = new Map()));
    routes.set(cidr, (routes.get(cidr) ?? 0) + 1);
  }

  #unlink(node: string, cidr: Cidr): void {
    const routes = this.#referenceCountsByNode.get(node);
    const count = routes?.get(cidr);
    if (routes === undefined || count === undefined) throw new Error(`${cidr} has no reference to node ${node}`);
    if (count > 1) routes.set(cidr, count - 1);
    else if (routes.size > 1) routes.delete(cidr);
    else this.#referenceCountsByNode.delete(node);
  }

  #trie(cidr: Cidr): PrefixTrie<RouteFacts> {
    return this.#tries[ipVersion(cidr)];
  }
}

function compareRefs(a: Ref, b: Ref): number {
  if (a.node !== b.node) return a.node < b.node ? -1 : 1;
  return REF_TYPES.indexOf(a.type) - REF_TYPES.indexOf(b.type);
}
