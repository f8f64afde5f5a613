// Finds the local workloads that have a BGP session with this host: those that the `localWorkloadSelector` of a BGPPeer
// for this node selects. If several peers select a workload, the peer whose name sorts first is used.
import {
  type BgpPeer,
  isForNode,
  type Labels,
  type Node,
  type ParsedSelector,
  type WorkloadEndpointKey,
} from "../../model/index.ts";
import { type EndpointKey, endpointKeyText } from "../ids.ts";
import type { SelectionListener } from "../policy/active-rules.ts";

export interface Selections {
  addSelection(selector: ParsedSelector, listener: SelectionListener): void;
  removeSelection(selector: ParsedSelector, listener: SelectionListener): void;
}

export class LocalBgpPeers implements SelectionListener {
  readonly #host: string;
  readonly #selections: Selections;
  readonly #onPeerChanged: (key: WorkloadEndpointKey, peer: string | undefined) => void;
  #nodeLabels: Labels = {};
  readonly #peers = new Map<string, BgpPeer>();
  /** Names of this node's peers, by the selector of their workloads. */
  readonly #peersBySelector = new Map<ParsedSelector, Set<string>>();
  /** By peer name. */
  readonly #selectors = new Map<string, ParsedSelector>();
  readonly #matches = new Map<string, { readonly key: WorkloadEndpointKey; readonly selectors: Set<ParsedSelector> }>();
  /** By workload. */
  readonly #emittedPeers = new Map<string, string>();

  constructor(options: {
    readonly host: string;
    readonly selections: Selections;
    readonly onPeerChanged: (key: WorkloadEndpointKey, peer: string | undefined) => void;
  }) {
    this.#host = options.host;
    this.#selections = options.selections;
    this.#onPeerChanged = options.onPeerChanged;
  }

  setPeer(name: string, peer: BgpPeer | undefined): void {
    if (peer === undefined) this.#peers.delete(name);
    else this.#peers.set(name, peer);
    this.#updateSelector(name);
  }

  setNode(name: string, node: Node | undefined): void {
    if (name !== this.#host) return;
    const labels = node?.labels ?? {};
    if (Bun.deepEquals(labels, this.#nodeLabels, true)) return;
    this.#nodeLabels = labels;
    for (const peer of this.#peers.keys()) this.#updateSelector(peer);
  }

  onSelected(selector: ParsedSelector, key: EndpointKey): void {
    if (key.type !== "workloadEndpoint") return;
    const id = endpointKeyText(key);
    let match = this.#matches.get(id);
    if (match === undefined) this.#matches.set(id, (match = { key, selectors: new Set() }));
    match.selectors.add(selector);
    this.#updateWorkload(id);
  }

  onDeselected(selector: ParsedSelector, key: EndpointKey): void {
    const id = endpointKeyText(key);
    this.#matches.get(id)?.selectors.delete(selector);
    this.#updateWorkload(id);
  }

  #updateSelector(name: string): void {
    const peer = this.#peers.get(name);
    const before = this.#selectors.get(name);
    const isForThisNode = peer !== undefined && isForNode(peer, { name: this.#host, labels: this.#nodeLabels });
    const after = isForThisNode ? peer.localWorkloadSelector : undefined;
    if (before === after) return;
    if (after === undefined) this.#selectors.delete(name);
    else {
      this.#selectors.set(name, after);
      const peerNames = this.#peersBySelector.get(after);
      if (peerNames !== undefined) peerNames.add(name);
      else {
        this.#peersBySelector.set(after, new Set([name]));
        this.#selections.addSelection(after, this);
      }
      this.#updateMatchingWorkloads(after);
    }
    if (before === undefined) return;
    const peerNames = this.#peersBySelector.get(before);
    peerNames?.delete(name);
    this.#updateMatchingWorkloads(before);
    if (peerNames?.size !== 0) return;
    this.#peersBySelector.delete(before);
    this.#selections.removeSelection(before, this);
  }

  #updateMatchingWorkloads(selector: ParsedSelector): void {
    for (const [id, match] of this.#matches) if (match.selectors.has(selector)) this.#updateWorkload(id);
  }

  #updateWorkload(id: string): void {
    const match = this.#matches.get(id);
    if (match === undefined) return;
    let firstName: string | undefined;
    for (const selector of match.selectors)
      for (const name of this.#peersBySelector.get(selector) ?? [])
        if (firstName === undefined || name < firstName) firstName = name;
    if (match.selectors.size === 0) this.#matches.delete(id);
    if (this.#emittedPeers.get(id) === firstName) return;
    if (firstName === undefined) this.#emittedPeers.delete(id);
    else this.#emittedPeers.set(id, firstName);
    this.#onPeerChanged(match.key, firstName);
  }
}
