// Gathers the state from resources: all at once for a plan, or update by update from a syncer.
import { type Cidr, parseCidr, tryParseCidr } from "../lib/ip.ts";
import { type BlockAffinity, convertPool, keyPath, type Pool, type Resource } from "../model/index.ts";
import type { SyncerUpdate } from "../datastore/index.ts";
import {
  type BgpConfiguration,
  type BgpFilter,
  type BgpNode,
  type BgpPeer,
  type BgpState,
  type Block,
  parseConfiguration,
  parseNode,
  parseOrReport,
  parsePeer,
  type Problem,
} from "./state.ts";
import { JsonReader } from "../lib/json-reader.ts";

/** Follows a `bgp` syncer. Each object is read once, when it changes. */
export class BgpCollector {
  readonly #nodes = new Map<string, BgpNode>();
  readonly #configurations = new Map<string, BgpConfiguration>();
  readonly #peers = new Map<string, BgpPeer>();
  readonly #filters = new Map<string, BgpFilter>();
  readonly #pools = new Map<string, Pool>();
  readonly #blocks = new Map<string, Block & { readonly host: string }>();
  readonly #problems = new Map<string, readonly Problem[]>();
  readonly #podCidrs = new Map<string, readonly Cidr[]>();
  readonly #usePodCidr: boolean;

  /** @param options.usePodCidr a node's pod CIDRs, which Kubernetes gave it, are its blocks */
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
    else if (kind === "BGPFilter")
      put(
        this.#filters,
        name,
        read((r) => ({ name, spec: new JsonReader(r.spec ?? {}, "spec") })),
      );
    else if (kind === "IPPool")
      put(
        this.#pools,
        name,
        read((r) => convertPool(r).value),
      );
    put(this.#problems, `${kind}/${name}`, problems.length === 0 ? undefined : problems);
  }

  setBlock(host: string, cidr: string, affinity: BlockAffinity): void {
    put(this.#blocks, `${host} ${cidr}`, blockOf(host, cidr, affinity));
  }

  /** As one node sees it. */
  stateFor(node: string): BgpState {
    return {
      nodes: sorted(this.#nodes),
      configurations: new Map(this.#configurations),
      peers: sorted(this.#peers),
      filters: sorted(this.#filters),
      pools: [...this.#pools.values()],
      blocks: [
        ...[...this.#blocks.values()].filter(({ host }) => host === node),
        ...(this.#podCidrs.get(node) ?? []).map((cidr) => ({ cidr, state: "confirmed" as const })),
      ],
      problems: [...this.#problems.values()].flat(),
    };
  }
}

function podCidrsOf(resource: Resource): readonly Cidr[] {
  if (resource.status === undefined) return [];
  const status = new JsonReader(resource.status, "status");
  return status.texts("podCIDRs").map((text) => tryParseCidr(text) ?? status.fail("podCIDRs", `CIDRs, not ${text}`));
}

/** A block still being claimed, or already given up, is nobody's to announce. */
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
