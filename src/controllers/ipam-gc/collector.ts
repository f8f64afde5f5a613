// Releases addresses that are no longer in use, blocks of deleted nodes, and surplus empty blocks. Decides slowly on purpose:
// releasing an address of a running pod is worse than keeping a leaked address longer.
//
//   cache (blocks, nodes) ──► AllocationIndex ──► scan: in use? ──► suspect ─grace─► leak ──► read pod again ──► release
//   pods, Kubernetes Nodes ──────────────────────────┘
import { type Datastore, type Informer, isObjectMissing, type KubeApi } from "../../datastore/index.ts";
import { ATTRIBUTE, describeFinding, type Ipam } from "../../ipam/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import { backoffDelay, pause } from "../../lib/retry.ts";
import type { DatastoreCache } from "../datastore-cache.ts";
import { type KubernetesNode, kubernetesNodeName } from "../nodes/kubernetes-name.ts";
import { isVirtualMachine, isPod, isTunnel, type AllocationIndex, type TrackedAllocation } from "./allocation-index.ts";
import { type VirtualMachineLookup, virtualMachineGraceMs } from "./virtual-machines.ts";
import { usesAddress, type PodFacts, podFacts } from "./pod-facts.ts";
import { listHandles, LeakedHandles } from "./leaked-handles.ts";

export interface CollectorOptions {
  readonly index: AllocationIndex;
  readonly cache: DatastoreCache;
  readonly store: Datastore;
  readonly ipam: Ipam;
  readonly api: KubeApi;
  readonly pods: Informer<PodFacts>;
  readonly kubernetesNodes: Informer<KubernetesNode>;
  readonly virtualMachines: VirtualMachineLookup;
  /** Undefined = only addresses of deleted nodes are released; 0 = other leaks are detected but never released. */
  readonly graceMs: number | undefined;
  readonly log: Logger;
  readonly now?: () => number;
  /** Called for each released address. */
  readonly onReleased?: (allocation: TrackedAllocation) => void;
}

const FULL_SCAN_MS = 5 * 60_000;
const MAX_RELEASED_PER_SCAN = 10_000;
const CONCURRENT_POD_READS = 8;
const NOT_READY_POLL_MS = 50;
const FLANNEL_MIGRATION_LABEL = "projectcalico.org/node-flannel-migration-in-progress";
const RETRY = { firstMs: 5, maxMs: 30_000, factor: 4 };

export class AddressCollector {
  readonly index: AllocationIndex;
  readonly #options: CollectorOptions;
  readonly #now: () => number;
  /** Nodes to scan. */
  readonly #dirty = new Set<string>();
  readonly #leaks = new Map<string, TrackedAllocation>();
  readonly #leakedHandles = new LeakedHandles();
  #needsFullScan = true;
  #wake: () => void = () => {};
  #fullScanDone = Promise.withResolvers<void>();

  constructor(options: CollectorOptions) {
    this.#options = options;
    this.index = options.index;
    this.#now = options.now ?? Date.now;
    const { cache, pods, kubernetesNodes } = options;
    cache.listen(({ blocks, nodes }) => {
      for (const cidr of blocks)
        for (const node of this.index.setBlock(cidr, cache.blocks.get(cidr))) this.#dirty.add(node);
      for (const node of nodes) this.#dirty.add(node);
      this.#wake();
    });
    pods.listen(({ before, after }) => {
      if (after !== undefined || before === undefined) return;
      this.#dirty.add(this.#calicoName(before.node));
      this.#wake();
    });
    kubernetesNodes.listen(({ after }) => {
      if (after === undefined) this.#requestFullScan();
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { cache, pods, kubernetesNodes, log, graceMs = 0 } = this.#options;
    const timer = setInterval(() => this.#requestFullScan(), graceMs > 0 ? graceMs / 2 : FULL_SCAN_MS);
    const stop = () => this.#wake();
    signal.addEventListener("abort", stop, { once: true });
    try {
      for (let failures = 0; !signal.aborted; ) {
        if (!this.#needsFullScan && this.#dirty.size === 0)
          await new Promise<void>((resolve) => {
            this.#wake = resolve;
          });
        if (signal.aborted) return;
        if (!cache.isWritable || !pods.hasSynced || !kubernetesNodes.hasSynced) {
          // No decisions on incomplete data, nor while the datastore is locked.
          await pause(NOT_READY_POLL_MS, signal);
          continue;
        }
        try {
          await this.#scan(signal);
          failures = 0;
        } catch (error) {
          if (signal.aborted) return;
          log.warn("scan for unused addresses failed, retrying", { error: describeError(error) });
          this.#needsFullScan = true;
          await pause(backoffDelay(RETRY, failures++), signal);
        }
      }
    } finally {
      clearInterval(timer);
      signal.removeEventListener("abort", stop);
    }
  }

  /** Requests a full scan; resolves when a full scan that began after the call has ended. */
  async scanAll(): Promise<void> {
    this.#requestFullScan();
    await this.#fullScanDone.promise;
  }

  #requestFullScan(): void {
    this.#needsFullScan = true;
    this.#wake();
  }

  async #scan(signal: AbortSignal): Promise<void> {
    const isFull = this.#needsFullScan;
    const nodes = isFull ? [...this.index.nodes()] : [...this.#dirty];
    const done = this.#fullScanDone;
    if (isFull) this.#fullScanDone = Promise.withResolvers<void>();
    this.#needsFullScan = false;
    this.#dirty.clear();
    const emptied: string[] = [];
    for (const node of nodes) if (await this.#checkNode(node, signal)) emptied.push(node);
    await this.#releaseLeaks(signal);
    for (const node of emptied) await this.#releaseBlocksOfNode(node, signal);
    if (!isFull) return;
    await this.#releaseStaleAffinities(signal);
    await this.#releaseEmptyBlocks(signal);
    await this.#repairLeakedHandles(signal);
    await this.#freeCooledDown(signal);
    done.resolve();
  }

  /** Checks all addresses of a node. @returns whether the node is deleted and its blocks can be released */
  async #checkNode(node: string, signal: AbortSignal): Promise<boolean> {
    const nodeState = this.#nodeStateOf(node);
    if (nodeState === "not in Kubernetes") return false;
    const isDeleted = nodeState === "deleted";
    const tunnels: TrackedAllocation[] = [];
    let hasUsedAddress = false;
    for (const allocation of [...this.index.allocationsOf(node)]) {
      if (isTunnel(allocation)) tunnels.push(allocation);
      else if (!isPod(allocation) && !isVirtualMachine(allocation)) hasUsedAddress = true;
      else if (await this.#isUsed(allocation, isDeleted ? undefined : nodeState.kubernetes, signal)) {
        this.#markUsed(allocation);
        hasUsedAddress = true;
      } else if (isDeleted) this.#markLeak(allocation);
      else this.#markSuspect(allocation);
    }
    if (!isDeleted || hasUsedAddress) return false;
    for (const tunnel of tunnels) this.#markLeak(tunnel);
    return this.index.hasNode(node);
  }

  /** An address whose allocation does not name a node (empty name) is checked against its pod only. */
  #nodeStateOf(node: string): "deleted" | "not in Kubernetes" | { readonly kubernetes: string | undefined } {
    if (node === "") return { kubernetes: undefined };
    const resource = this.#options.cache.nodes.get(node);
    if (resource === undefined) return "deleted";
    const kubernetes = kubernetesNodeName(resource);
    if (kubernetes === undefined) return "not in Kubernetes";
    return this.#options.kubernetesNodes.has(kubernetes) ? { kubernetes } : "deleted";
  }

  #calicoName(kubernetes: string): string {
    const { nodes } = this.#options.cache;
    const same = nodes.get(kubernetes);
    if (same !== undefined && kubernetesNodeName(same) === kubernetes) return kubernetes;
    for (const [name, node] of nodes) if (kubernetesNodeName(node) === kubernetes) return name;
    return kubernetes;
  }

  async #isUsed(allocation: TrackedAllocation, node: string | undefined, signal: AbortSignal): Promise<boolean> {
    if (isVirtualMachine(allocation)) return this.#options.virtualMachines.exists(allocation.attributes, signal);
    const pod = this.#options.pods.get(podKey(allocation));
    return pod !== undefined && usesAddress(pod, allocation.address, node);
  }

  #markUsed(allocation: TrackedAllocation): void {
    allocation.suspectedAtMs = undefined;
    allocation.isLeak = false;
    allocation.isSurplus = false;
    this.#leaks.delete(allocation.id);
  }

  #markSuspect(allocation: TrackedAllocation): void {
    const { graceMs } = this.#options;
    if (graceMs === undefined) return;
    allocation.suspectedAtMs ??= this.#now();
    const grace = isVirtualMachine(allocation) ? virtualMachineGraceMs(graceMs) : graceMs;
    if (graceMs > 0 && this.#now() - allocation.suspectedAtMs > grace) this.#markLeak(allocation);
  }

  #markLeak(allocation: TrackedAllocation): void {
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
    for (let i = 0; i < present.length; i += CONCURRENT_POD_READS)
      await Promise.all(present.slice(i, i + CONCURRENT_POD_READS).map((leak) => this.#recheck(leak, signal)));
    const releasable = [...this.#leaks.values()]
      .filter(
        ({ handleId, isSurplus }) => isSurplus || [...this.index.withHandle(handleId)].every(({ isLeak }) => isLeak),
      )
      .slice(0, MAX_RELEASED_PER_SCAN);
    if (releasable.length === 0) return;
    const { released, notAllocated, error } = await ipam.release(
      releasable.map(({ address, handleId, sequenceNumber }) => ({
        address,
        handleId,
        sequenceNumber,
      })),
      signal,
    );
    const releasedAddresses = new Set(released);
    const alreadyFree = new Set(notAllocated); // the cache has not received the change yet
    for (const leak of releasable) {
      if (releasedAddresses.has(leak.address) || alreadyFree.has(leak.address)) this.#leaks.delete(leak.id);
      if (!releasedAddresses.has(leak.address)) continue;
      onReleased?.(leak);
      log.info("released an unused address", {
        address: leak.address,
        handle: leak.handleId,
        node: leak.node,
        pod: podKey(leak),
      });
    }
    if (error !== undefined) throw error;
  }

  #isTracked(leak: TrackedAllocation): boolean {
    for (const other of this.index.withHandle(leak.handleId)) if (other === leak) return true;
    return false;
  }

  /** If the node exists, reads the pod from the API server, because the informer may lag behind. */
  async #recheck(leak: TrackedAllocation, signal: AbortSignal): Promise<void> {
    const nodeState = this.#nodeStateOf(leak.node);
    if (nodeState === "not in Kubernetes") return this.#markUsed(leak);
    const isDeleted = nodeState === "deleted";
    const node = isDeleted ? undefined : nodeState.kubernetes;
    if (isTunnel(leak)) {
      if (!isDeleted) this.#markUsed(leak);
      return;
    }
    leak.isSurplus = false;
    if (isDeleted || isVirtualMachine(leak)) {
      if (await this.#isUsed(leak, node, signal)) this.#markUsed(leak);
      return;
    }
    const pod = await this.#readPod(leak, signal);
    if (pod === "unknown" || (pod !== "absent" && usesAddress(pod, leak.address, node))) return this.#markUsed(leak);
    // The pod has reported its addresses, and uses others of the handle: it runs in the handle's container.
    const inHandle = [...this.index.withHandle(leak.handleId)];
    leak.isSurplus = pod !== "absent" && inHandle.some(({ address }) => usesAddress(pod, address, node));
  }

  async #readPod(leak: TrackedAllocation, signal: AbortSignal): Promise<PodFacts | "absent" | "unknown"> {
    const { [ATTRIBUTE.namespace]: namespace = "", [ATTRIBUTE.pod]: pod = "" } = leak.attributes;
    const path = `/api/v1/namespaces/${encodeURIComponent(namespace)}/pods/${encodeURIComponent(pod)}`;
    try {
      return podFacts(await this.#options.api.get(path, { signal }));
    } catch (error) {
      signal.throwIfAborted();
      return isObjectMissing(error) ? "absent" : "unknown"; // then the address is kept
    }
  }

  /** Releases the blocks of a deleted node without addresses. A failure does not stop the work for other nodes. */
  async #releaseBlocksOfNode(node: string, signal: AbortSignal): Promise<void> {
    const { ipam, log } = this.#options;
    try {
      await ipam.releaseHostAffinities({ type: "host", name: node }, { mustBeEmpty: true }, signal);
      log.info("released the blocks of a deleted node", { node });
    } catch (error) {
      signal.throwIfAborted();
      this.#dirty.add(node);
      log.warn("cannot release the blocks of a deleted node, retrying", { node, error: describeError(error) });
      await pause(200, signal);
    }
  }

  /** An affinity without a block does not appear in the cache, so affinities are listed. */
  async #releaseStaleAffinities(signal: AbortSignal): Promise<void> {
    const { items } = await this.#options.store.list({ type: "blockAffinity", affinityType: "host" }, { signal });
    for (const host of new Set(items.map(({ key }) => key.host)))
      if (!this.index.hasNode(host) && this.#nodeStateOf(host) === "deleted")
        await this.#releaseBlocksOfNode(host, signal);
  }

  /** A node, even a deleted one, keeps its last block. Without a grace period it keeps all blocks. */
  async #releaseEmptyBlocks(signal: AbortSignal): Promise<void> {
    const { graceMs, ipam, log } = this.#options;
    if (graceMs === undefined || graceMs === 0) return;
    for (const node of this.index.nodes()) {
      const nodeState = this.#nodeStateOf(node);
      if (nodeState === "not in Kubernetes" || (nodeState !== "deleted" && this.#isMigrating(nodeState.kubernetes)))
        continue;
      const surplus = this.index.blocksOf(node).size - 1;
      for (const cidr of this.index.emptyBlocks(node, this.#now(), graceMs).slice(0, Math.max(0, surplus)))
        try {
          await ipam.releaseBlockAffinity(cidr, { type: "host", name: node }, { mustBeEmpty: true }, signal);
          log.info("released an empty block", { block: cidr, node });
        } catch (error) {
          signal.throwIfAborted();
          log.info("cannot release an empty block; it may be in use again, or belong to another node", {
            block: cidr,
            node,
            error: describeError(error),
          });
        }
    }
  }

  /** Repairs handles left by a program that was killed between writing the handle and writing the block. */
  async #repairLeakedHandles(signal: AbortSignal): Promise<void> {
    const { cache, graceMs, ipam, log, store } = this.#options;
    if (graceMs === undefined || graceMs === 0) return;
    const handles = await listHandles(store, signal);
    const expired = this.#leakedHandles.findExpired({ handles, blocks: cache.blocks.values() }, this.#now(), graceMs);
    if (expired.length === 0) return;
    await ipam.repair(expired, signal);
    for (const finding of expired) log.info("repaired a leaked handle", { finding: describeFinding(finding) });
  }

  /** A node that migrates from flannel has claimed blocks for pods that do not exist yet. */
  #isMigrating(kubernetes: string | undefined): boolean {
    if (kubernetes === undefined) return false;
    return this.#options.kubernetesNodes.get(kubernetes)?.labels[FLANNEL_MIGRATION_LABEL] === "true";
  }

  /** Frees addresses whose cooldown is over. Assignments do this only for the blocks that they change. */
  async #freeCooledDown(signal: AbortSignal): Promise<void> {
    const coolingDown = [...this.index.blocks()].filter(({ block }) =>
      block.attributes.some(({ releasedAt }) => releasedAt !== undefined),
    );
    if (coolingDown.length > 0)
      await this.#options.ipam.collectExpiredCooldowns(
        coolingDown.map(({ cidr }) => cidr),
        signal,
      );
  }
}

const podKey = ({ attributes }: TrackedAllocation): string =>
  `${attributes[ATTRIBUTE.namespace]}/${attributes[ATTRIBUTE.pod] ?? ""}`;
