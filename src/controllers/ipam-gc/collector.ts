// Finds addresses nobody uses any more and gives them back, and with them the blocks of nodes that are gone or have too
// many. Slow to judge on purpose: an address taken from a living pod is worse than one that leaks a while longer.
//
//   feed (blocks, nodes) ──► Ledger ──► scan: who still uses it? ──► suspect ─grace─► leak ──► asked again ──► released
//   pods, nodes of Kubernetes ──────────┘
import { type Datastore, type Informer, isObjectMissing, type KubeApi } from "../../datastore/index.ts";
import { ATTRIBUTE, describeFinding, type Ipam } from "../../ipam/index.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import { backoffDelay, pause } from "../../lib/retry.ts";
import type { Feed } from "../feed.ts";
import { type KubernetesNode, kubernetesName } from "../nodes/kubernetes-name.ts";
import { isMachine, isPod, isTunnel, type Ledger, type Tracked } from "./ledger.ts";
import { type MachineLookup, machineGraceMs } from "./machines.ts";
import { keeps, type PodFacts, podFacts } from "./pod-facts.ts";
import { listHandles, StrayHandles } from "./stray-handles.ts";

export interface CollectorOptions {
  readonly ledger: Ledger;
  readonly feed: Feed;
  readonly store: Datastore;
  readonly ipam: Ipam;
  readonly api: KubeApi;
  readonly pods: Informer<PodFacts>;
  readonly kubernetesNodes: Informer<KubernetesNode>;
  readonly machines: MachineLookup;
  /** Undefined = only addresses of nodes that are gone; 0 = others are suspected but never released. */
  readonly graceMs: number | undefined;
  readonly log: Logger;
  readonly now?: () => number;
  /** Told of every address given back. */
  readonly onReleased?: (allocation: Tracked) => void;
}

const FULL_SCAN_MS = 5 * 60_000;
const MAX_RELEASE = 10_000;
const ASK_WIDTH = 8;
const UNREADY_MS = 50;
const MIGRATING = "projectcalico.org/node-flannel-migration-in-progress";
const RETRY = { firstMs: 5, maxMs: 30_000, factor: 4 };

export class AddressCollector {
  readonly ledger: Ledger;
  readonly #options: CollectorOptions;
  readonly #now: () => number;
  readonly #dirty = new Set<string>();
  readonly #leaks = new Map<string, Tracked>();
  readonly #strays = new StrayHandles();
  #wantsFullScan = true;
  #wake: () => void = () => {};
  #scanned = Promise.withResolvers<void>();

  constructor(options: CollectorOptions) {
    this.#options = options;
    this.ledger = options.ledger;
    this.#now = options.now ?? Date.now;
    const { feed, pods, kubernetesNodes } = options;
    feed.listen(({ blocks, nodes }) => {
      for (const cidr of blocks)
        for (const node of this.ledger.setBlock(cidr, feed.blocks.get(cidr))) this.#dirty.add(node);
      for (const node of nodes) this.#dirty.add(node);
      this.#wake();
    });
    pods.listen(({ before, after }) => {
      if (after !== undefined || before === undefined) return;
      this.#dirty.add(this.#calicoName(before.node));
      this.#wake();
    });
    kubernetesNodes.listen(({ after }) => {
      if (after === undefined) this.#scanAll();
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { feed, pods, kubernetesNodes, log, graceMs = 0 } = this.#options;
    const timer = setInterval(() => this.#scanAll(), graceMs > 0 ? graceMs / 2 : FULL_SCAN_MS);
    const stop = () => this.#wake();
    signal.addEventListener("abort", stop, { once: true });
    try {
      for (let failures = 0; !signal.aborted; ) {
        if (!this.#wantsFullScan && this.#dirty.size === 0)
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        if (signal.aborted) return;
        if (!feed.isWritable || !pods.hasSynced || !kubernetesNodes.hasSynced) {
          // Nothing is judged on half a picture, nor while an operator holds the datastore.
          await pause(UNREADY_MS, signal);
          continue;
        }
        try {
          await this.#pass(signal);
          failures = 0;
        } catch (error) {
          if (signal.aborted) return;
          log.warn("collecting addresses failed; trying again", { error: describeError(error) });
          this.#wantsFullScan = true;
          await pause(backoffDelay(RETRY, failures++), signal);
        }
      }
    } finally {
      clearInterval(timer);
      signal.removeEventListener("abort", stop);
    }
  }

  /** Has everything looked at; resolves when a pass that began after the call has ended. */
  async scanned(): Promise<void> {
    this.#scanAll();
    await this.#scanned.promise;
  }

  #scanAll(): void {
    this.#wantsFullScan = true;
    this.#wake();
  }

  async #pass(signal: AbortSignal): Promise<void> {
    const isFull = this.#wantsFullScan;
    const nodes = isFull ? [...this.ledger.nodes()] : [...this.#dirty];
    const told = this.#scanned;
    if (isFull) this.#scanned = Promise.withResolvers<void>();
    this.#wantsFullScan = false;
    this.#dirty.clear();
    const deserted: string[] = [];
    for (const node of nodes) if (await this.#judgeNode(node, signal)) deserted.push(node);
    await this.#releaseLeaks(signal);
    for (const node of deserted) await this.#forgetNode(node, signal);
    if (!isFull) return;
    await this.#forgetAffinities(signal);
    await this.#giveUpEmptyBlocks(signal);
    await this.#settleHandles(signal);
    await this.#thaw(signal);
    told.resolve();
  }

  /** Looks at all of a node's addresses. @returns whether the node is gone and nothing holds its blocks any longer */
  async #judgeNode(node: string, signal: AbortSignal): Promise<boolean> {
    const place = this.#placeOf(node);
    if (place === "not ours") return false;
    const isGone = place === "gone";
    const tunnels: Tracked[] = [];
    let isHeld = false;
    for (const allocation of [...this.ledger.allocationsOf(node)]) {
      if (isTunnel(allocation)) tunnels.push(allocation);
      else if (!isPod(allocation) && !isMachine(allocation)) isHeld = true;
      else if (await this.#isUsed(allocation, isGone ? undefined : place.kubernetes, signal)) {
        this.#clear(allocation);
        isHeld = true;
      } else if (isGone) this.#convict(allocation);
      else this.#suspect(allocation);
    }
    if (!isGone || isHeld) return false;
    for (const tunnel of tunnels) this.#convict(tunnel);
    return this.ledger.hasNode(node);
  }

  /** Where a node of ours stands in Kubernetes. Without a note of its node an address is judged by its pod alone. */
  #placeOf(node: string): "gone" | "not ours" | { readonly kubernetes: string | undefined } {
    if (node === "") return { kubernetes: undefined };
    const resource = this.#options.feed.nodes.get(node);
    if (resource === undefined) return "gone";
    const kubernetes = kubernetesName(resource);
    if (kubernetes === undefined) return "not ours";
    return this.#options.kubernetesNodes.has(kubernetes) ? { kubernetes } : "gone";
  }

  #calicoName(kubernetes: string): string {
    const { nodes } = this.#options.feed;
    const same = nodes.get(kubernetes);
    if (same !== undefined && kubernetesName(same) === kubernetes) return kubernetes;
    for (const [name, node] of nodes) if (kubernetesName(node) === kubernetes) return name;
    return kubernetes;
  }

  async #isUsed(allocation: Tracked, node: string | undefined, signal: AbortSignal): Promise<boolean> {
    if (isMachine(allocation)) return this.#options.machines.exists(allocation.attributes, signal);
    const pod = this.#options.pods.get(podKey(allocation));
    return pod !== undefined && keeps(pod, allocation.address, node);
  }

  #clear(allocation: Tracked): void {
    allocation.suspectedAtMs = undefined;
    allocation.isLeak = false;
    allocation.isSurplus = false;
    this.#leaks.delete(allocation.id);
  }

  #suspect(allocation: Tracked): void {
    const { graceMs } = this.#options;
    if (graceMs === undefined) return;
    allocation.suspectedAtMs ??= this.#now();
    const grace = isMachine(allocation) ? machineGraceMs(graceMs) : graceMs;
    if (graceMs > 0 && this.#now() - allocation.suspectedAtMs > grace) this.#convict(allocation);
  }

  #convict(allocation: Tracked): void {
    allocation.suspectedAtMs ??= this.#now();
    allocation.isLeak = true;
    this.#leaks.set(allocation.id, allocation);
  }

  /** Reads each pod once more, then releases the leaks whose handle has no other address in use, and surplus ones. */
  async #releaseLeaks(signal: AbortSignal): Promise<void> {
    const { ipam, log, onReleased } = this.#options;
    const present = [...this.#leaks.values()].filter((leak) => this.#isTracked(leak));
    this.#leaks.clear();
    for (const leak of present) this.#leaks.set(leak.id, leak);
    for (let i = 0; i < present.length; i += ASK_WIDTH)
      await Promise.all(present.slice(i, i + ASK_WIDTH).map((leak) => this.#askAgain(leak, signal)));
    const doomed = [...this.#leaks.values()]
      .filter(
        ({ handleId, isSurplus }) => isSurplus || [...this.ledger.withHandle(handleId)].every(({ isLeak }) => isLeak),
      )
      .slice(0, MAX_RELEASE);
    if (doomed.length === 0) return;
    const { released, notAllocated, error } = await ipam.release(
      doomed.map(({ address, handleId, sequenceNumber }) => ({
        address,
        handleId,
        ...(sequenceNumber === undefined ? {} : { sequenceNumber }),
      })),
      signal,
    );
    const given = new Set(released);
    const gone = new Set(notAllocated); // the feed has not told us yet
    for (const leak of doomed) {
      if (given.has(leak.address) || gone.has(leak.address)) this.#leaks.delete(leak.id);
      if (!given.has(leak.address)) continue;
      onReleased?.(leak);
      log.info("gave back an address that nobody uses", {
        address: leak.address,
        handle: leak.handleId,
        node: leak.node,
        pod: podKey(leak),
      });
    }
    if (error !== undefined) throw error;
  }

  #isTracked(leak: Tracked): boolean {
    for (const other of this.ledger.withHandle(leak.handleId)) if (other === leak) return true;
    return false;
  }

  /** While its node lives the API server itself is asked: what we have seen may be a moment old. */
  async #askAgain(leak: Tracked, signal: AbortSignal): Promise<void> {
    const place = this.#placeOf(leak.node);
    if (place === "not ours") return this.#clear(leak);
    const isGone = place === "gone";
    const node = isGone ? undefined : place.kubernetes;
    if (isTunnel(leak)) {
      if (!isGone) this.#clear(leak);
      return;
    }
    leak.isSurplus = false;
    if (isGone || isMachine(leak)) {
      if (await this.#isUsed(leak, node, signal)) this.#clear(leak);
      return;
    }
    const pod = await this.#readPod(leak, signal);
    if (pod === "unknown" || (pod !== "absent" && keeps(pod, leak.address, node))) return this.#clear(leak);
    // The pod has reported its addresses, and uses others of the handle: it runs in the handle's container.
    const inHandle = [...this.ledger.withHandle(leak.handleId)];
    leak.isSurplus = pod !== "absent" && inHandle.some(({ address }) => keeps(pod, address, node));
  }

  async #readPod(leak: Tracked, signal: AbortSignal): Promise<PodFacts | "absent" | "unknown"> {
    const { [ATTRIBUTE.namespace]: namespace = "", [ATTRIBUTE.pod]: pod = "" } = leak.attributes;
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(pod)}`;
    try {
      return podFacts(await this.#options.api.get(path, { signal }));
    } catch (error) {
      signal.throwIfAborted();
      return isObjectMissing(error) ? "absent" : "unknown"; // then the address is kept
    }
  }

  /** A node that is gone and whose addresses are gone gives up its blocks. One that refuses does not hold up others. */
  async #forgetNode(node: string, signal: AbortSignal): Promise<void> {
    const { ipam, log } = this.#options;
    try {
      await ipam.releaseHostAffinities({ type: "host", name: node }, { mustBeEmpty: true }, signal);
      log.info("gave up the blocks of a node that is gone", { node });
    } catch (error) {
      signal.throwIfAborted();
      this.#dirty.add(node);
      log.warn("a node that is gone still has blocks; trying again", { node, error: describeError(error) });
      await pause(200, signal);
    }
  }

  /** Affinities without a block tell nobody of themselves: asked for now and then. */
  async #forgetAffinities(signal: AbortSignal): Promise<void> {
    const { items } = await this.#options.store.list({ type: "blockAffinity", affinityType: "host" }, { signal });
    for (const host of new Set(items.map(({ key }) => key.host)))
      if (!this.ledger.hasNode(host) && this.#placeOf(host) === "gone") await this.#forgetNode(host, signal);
  }

  /** A node, even one that is gone, keeps its last block, and all of them where no grace is set. */
  async #giveUpEmptyBlocks(signal: AbortSignal): Promise<void> {
    const { graceMs, ipam, log } = this.#options;
    if (graceMs === undefined || graceMs === 0) return;
    for (const node of this.ledger.nodes()) {
      const place = this.#placeOf(node);
      if (place === "not ours" || (place !== "gone" && this.#isMigrating(place.kubernetes))) continue;
      const spare = this.ledger.blocksOf(node).size - 1;
      for (const cidr of this.ledger.emptyBlocks(node, this.#now(), graceMs).slice(0, Math.max(0, spare)))
        try {
          await ipam.releaseBlockAffinity(cidr, { type: "host", name: node }, { mustBeEmpty: true }, signal);
          log.info("gave up an empty block", { block: cidr, node });
        } catch (error) {
          signal.throwIfAborted();
          log.info("a block is no longer empty, or not the node's", { block: cidr, node, error: describeError(error) });
        }
    }
  }

  /** What somebody left who was killed between announcing an address and taking it. */
  async #settleHandles(signal: AbortSignal): Promise<void> {
    const { feed, graceMs, ipam, log, store } = this.#options;
    if (graceMs === undefined || graceMs === 0) return;
    const handles = await listHandles(store, signal);
    const ripe = this.#strays.judge({ handles, blocks: feed.blocks.values() }, this.#now(), graceMs);
    if (ripe.length === 0) return;
    await ipam.repair(ripe, signal);
    for (const finding of ripe) log.info("put a handle right", { finding: describeFinding(finding) });
  }

  /** A node that moves to us from flannel has claimed blocks for pods that are still to come. */
  #isMigrating(kubernetes: string | undefined): boolean {
    if (kubernetes === undefined) return false;
    return this.#options.kubernetesNodes.get(kubernetes)?.labels[MIGRATING] === "true";
  }

  /** Addresses that have rested long enough, in blocks nobody writes. */
  async #thaw(signal: AbortSignal): Promise<void> {
    const resting = [...this.ledger.blocks()].filter(({ block }) =>
      block.attributes.some(({ releasedAt }) => releasedAt !== undefined),
    );
    if (resting.length > 0)
      await this.#options.ipam.collectCold(
        resting.map(({ cidr }) => cidr),
        signal,
      );
  }
}

const podKey = ({ attributes }: Tracked): string =>
  `${attributes[ATTRIBUTE.namespace]}/${attributes[ATTRIBUTE.pod] ?? ""}`;
