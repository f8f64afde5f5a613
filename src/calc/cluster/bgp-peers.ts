// Which local workloads speak BGP with their own host: those that a BGPPeer of this node selects. Of several peers the
// one with the least name counts.
import {
  lookupIn,
  compileSelector,
  type Labels,
  type Resource,
  tryParseSelector,
  type WorkloadEndpointKey,
} from "../../model/index.ts";
import { type EndpointKey, endpointKeyText } from "../ids.ts";
import type { SelectionListener } from "../policy/active-rules.ts";
import { type BgpPeerSpec, specOf } from "../resources.ts";

export interface Selections {
  addSelection(selector: string, listener: SelectionListener): void;
  removeSelection(selector: string, listener: SelectionListener): void;
}

export class LocalBgpPeers implements SelectionListener {
  readonly #host: string;
  readonly #selections: Selections;
  readonly #say: (key: WorkloadEndpointKey, peer: string | undefined) => void;
  #nodeLabels: Labels = {};
  readonly #peers = new Map<string, BgpPeerSpec>();
  /** Peers of this node by the workloads they select. */
  readonly #bySelector = new Map<string, Set<string>>();
  readonly #selectors = new Map<string, string>();
  readonly #matches = new Map<string, { readonly key: WorkloadEndpointKey; readonly selectors: Set<string> }>();
  readonly #said = new Map<string, string>();

  constructor(options: {
    readonly host: string;
    readonly selections: Selections;
    readonly say: (key: WorkloadEndpointKey, peer: string | undefined) => void;
  }) {
    this.#host = options.host;
    this.#selections = options.selections;
    this.#say = options.say;
  }

  setPeer(name: string, resource: Resource | undefined): void {
    if (resource === undefined) this.#peers.delete(name);
    else this.#peers.set(name, specOf<BgpPeerSpec>(resource));
    this.#recheck(name);
  }

  setNode(name: string, resource: Resource | undefined): void {
    if (name !== this.#host) return;
    const labels = resource?.metadata.labels ?? {};
    if (Bun.deepEquals(labels, this.#nodeLabels, true)) return;
    this.#nodeLabels = labels;
    for (const peer of this.#peers.keys()) this.#recheck(peer);
  }

  onSelected(selector: string, key: EndpointKey): void {
    if (key.type !== "workloadEndpoint") return;
    const id = endpointKeyText(key);
    let match = this.#matches.get(id);
    if (match === undefined) this.#matches.set(id, (match = { key, selectors: new Set() }));
    match.selectors.add(selector);
    this.#choose(id);
  }

  onDeselected(selector: string, key: EndpointKey): void {
    const id = endpointKeyText(key);
    this.#matches.get(id)?.selectors.delete(selector);
    this.#choose(id);
  }

  #recheck(name: string): void {
    const spec = this.#peers.get(name);
    const before = this.#selectors.get(name);
    const after = spec !== undefined && this.#selectsUs(spec) ? workloadSelector(spec) : undefined;
    if (before === after) return;
    if (after === undefined) this.#selectors.delete(name);
    else {
      this.#selectors.set(name, after);
      const sharers = this.#bySelector.get(after);
      if (sharers !== undefined) sharers.add(name);
      else {
        this.#bySelector.set(after, new Set([name]));
        this.#selections.addSelection(after, this);
      }
      this.#chooseMatching(after);
    }
    if (before === undefined) return;
    const sharers = this.#bySelector.get(before);
    sharers?.delete(name);
    this.#chooseMatching(before);
    if (sharers?.size !== 0) return;
    this.#bySelector.delete(before);
    this.#selections.removeSelection(before, this);
  }

  #selectsUs(spec: BgpPeerSpec): boolean {
    if (spec.node !== undefined && spec.node !== "") return spec.node === this.#host;
    const selector = tryParseSelector(spec.nodeSelector ?? "");
    return selector !== undefined && compileSelector(selector)(lookupIn(this.#nodeLabels));
  }

  #chooseMatching(selector: string): void {
    for (const [id, match] of this.#matches) if (match.selectors.has(selector)) this.#choose(id);
  }

  #choose(id: string): void {
    const match = this.#matches.get(id);
    if (match === undefined) return;
    let least: string | undefined;
    for (const selector of match.selectors)
      for (const name of this.#bySelector.get(selector) ?? []) if (least === undefined || name < least) least = name;
    if (match.selectors.size === 0) this.#matches.delete(id);
    if (this.#said.get(id) === least) return;
    if (least === undefined) this.#said.delete(id);
    else this.#said.set(id, least);
    this.#say(match.key, least);
  }
}

/** No selector selects nobody. */
function workloadSelector(spec: BgpPeerSpec): string | undefined {
  const text = spec.localWorkloadSelector ?? "";
  return text === "" || tryParseSelector(text) === undefined ? undefined : text;
}
