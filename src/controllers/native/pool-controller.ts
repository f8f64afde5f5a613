// Sets the condition `Allocatable` of each IPPool of the native API. Keeps a deleted pool, with a finalizer, until its last block
// is deleted, so that a new pool with the same range cannot assign an address that is still in use.
import { Informer, type KubeApi, type KubeObject } from "../../datastore/index.ts";
import type { Ipam } from "../../ipam/index.ts";
import { type Cidr, cidrContains, tryParseCidr } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { WorkQueue } from "../work-queue.ts";
import { evaluatePools, MESSAGES, type PoolFacts } from "./allocatable-pools.ts";
import { NATIVE, type NativeObject, setCondition, setFinalizer } from "./update-object.ts";

const POOL_FINALIZER = "projectcalico.org/ippool-finalizer";
const ALLOCATABLE = "Allocatable";
const POOLS = `${NATIVE}/ippools`;
const BLOCKS = `${NATIVE}/ipamblocks`;
/** The only key of the queue, because the condition of a pool depends on all pools. */
const ALL_POOLS = "pools";

export class PoolConditions {
  readonly #api: KubeApi;
  readonly #ipam: Pick<Ipam, "releasePoolAffinities">;
  readonly #log: Logger;
  readonly #pools: Informer<PoolFacts>;
  readonly #blocks: Informer<Cidr | undefined>;
  readonly #queue: WorkQueue;

  constructor(options: {
    readonly api: KubeApi;
    readonly ipam: Pick<Ipam, "releasePoolAffinities">;
    readonly log: Logger;
  }) {
    const { api, log } = options;
    this.#api = api;
    this.#ipam = options.ipam;
    this.#log = log;
    this.#pools = new Informer({ api, path: POOLS, keep: poolFacts, log });
    this.#blocks = new Informer({ api, path: BLOCKS, keep: blockCidr, log });
    this.#queue = new WorkQueue({ name: "ippool", work: (_, signal) => this.#reconcile(signal), log });
    this.#pools.listen(() => this.#queue.add(ALL_POOLS));
    this.#blocks.listen(({ after }) => {
      if (after === undefined) this.#queue.add(ALL_POOLS);
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#pools.run(signal), this.#blocks.run(signal), this.#queue.run(signal)]);
  }

  async #reconcile(signal: AbortSignal): Promise<void> {
    if (!this.#pools.hasSynced || !this.#blocks.hasSynced) return void setTimeout(() => this.#queue.add(ALL_POOLS), 50);
    const pools = [...this.#pools.entries()].map(([, pool]) => pool);
    const reasons = evaluatePools(pools);
    // Conditions with status False are written first, so that two overlapping pools are never allocatable at the same time.
    const inOrder = [...pools].sort(
      (a, b) => Number(reasons.get(a.name) === "OK") - Number(reasons.get(b.name) === "OK"),
    );
    for (const pool of inOrder) {
      const reason = reasons.get(pool.name) ?? "CIDROverlap";
      const path = `${POOLS}/${encodeURIComponent(pool.name)}`;
      const status = reason === "OK" ? "True" : "False";
      if (pool.allocatable !== (status === "True") || pool.reason !== reason)
        await setCondition(this.#api, path, { type: ALLOCATABLE, status, reason, message: MESSAGES[reason] }, signal);
      if (pool.isDeleting) await this.#finalize(pool, path, signal);
      else if (pool.hasFinalizer !== (reason === "OK"))
        await setFinalizer(this.#api, path, { finalizer: POOL_FINALIZER, isDesired: reason === "OK" }, signal);
    }
  }

  async #finalize({ name, cidr, hasFinalizer }: PoolFacts, path: string, signal: AbortSignal): Promise<void> {
    if (!hasFinalizer) return;
    if (cidr !== undefined) {
      await this.#ipam.releasePoolAffinities(cidr, signal);
      for (const [, block] of this.#blocks.entries()) if (block !== undefined && cidrContains(cidr, block)) return; // the informer calls again when the block is deleted
    }
    await setFinalizer(this.#api, path, { finalizer: POOL_FINALIZER, isDesired: false }, signal);
    this.#log.info("removed a deleted pool after its last block", { pool: name });
  }
}

function poolFacts(object: KubeObject): PoolFacts {
  const { metadata, spec = {}, status } = object as NativeObject;
  const condition = status?.conditions?.find(({ type }) => type === ALLOCATABLE);
  return {
    name: metadata.name,
    cidr: tryParseCidr(spec["cidr"]),
    isDisabled: spec["disabled"] === true,
    isDeleting: metadata.deletionTimestamp !== undefined,
    allocatable: condition === undefined ? undefined : condition.status === "True",
    reason: condition?.reason ?? "",
    hasFinalizer: metadata.finalizers?.includes(POOL_FINALIZER) === true,
    createdAt: metadata.creationTimestamp ?? "",
  };
}

const blockCidr = (object: KubeObject): Cidr | undefined => tryParseCidr((object as NativeObject).spec?.["cidr"]);
