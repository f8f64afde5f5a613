// Pools of the native API: each says whether it may give addresses, and one that is deleted stays until its last block is
// gone, so that nobody is given an address twice.
import { Informer, type KubeApi, type KubeObject } from "../../datastore/index.ts";
import type { Ipam } from "../../ipam/index.ts";
import { type Cidr, cidrContains, tryParseCidr } from "../../lib/ip.ts";
import type { Logger } from "../../lib/log.ts";
import { WorkQueue } from "../work-queue.ts";
import { judgePools, MESSAGES, type PoolFacts } from "./pools.ts";
import { NATIVE, type NativeObject, setCondition, setFinalizer } from "./writes.ts";

const POOL_FINALIZER = "projectcalico.org/ippool-finalizer";
const ALLOCATABLE = "Allocatable";
const POOLS = `${NATIVE}/ippools`;
const BLOCKS = `${NATIVE}/ipamblocks`;
/** All pools are judged together. */
const ALL = "pools";

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
    this.#pools.listen(() => this.#queue.add(ALL));
    this.#blocks.listen(({ after }) => {
      if (after === undefined) this.#queue.add(ALL);
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    await Promise.all([this.#pools.run(signal), this.#blocks.run(signal), this.#queue.run(signal)]);
  }

  async #reconcile(signal: AbortSignal): Promise<void> {
    if (!this.#pools.hasSynced || !this.#blocks.hasSynced) return void setTimeout(() => this.#queue.add(ALL), 50);
    const pools = [...this.#pools.entries()].map(([, pool]) => pool);
    const verdicts = judgePools(pools);
    // Refusals first: two that overlap never say yes at once.
    const inOrder = [...pools].sort(
      (a, b) => Number(verdicts.get(a.name) === "OK") - Number(verdicts.get(b.name) === "OK"),
    );
    for (const pool of inOrder) {
      const reason = verdicts.get(pool.name) ?? "CIDROverlap";
      const path = `${POOLS}/${encodeURIComponent(pool.name)}`;
      const status = reason === "OK" ? "True" : "False";
      if (pool.allocatable !== (status === "True") || pool.reason !== reason)
        await setCondition(this.#api, path, { type: ALLOCATABLE, status, reason, message: MESSAGES[reason] }, signal);
      if (pool.isDeleting) await this.#finish(pool, path, signal);
      else if (pool.hasFinalizer !== (reason === "OK"))
        await setFinalizer(this.#api, path, { finalizer: POOL_FINALIZER, isWanted: reason === "OK" }, signal);
    }
  }

  async #finish({ name, cidr, hasFinalizer }: PoolFacts, path: string, signal: AbortSignal): Promise<void> {
    if (!hasFinalizer) return;
    if (cidr !== undefined) {
      await this.#ipam.releasePoolAffinities(cidr, signal);
      for (const [, block] of this.#blocks.entries()) if (block !== undefined && cidrContains(cidr, block)) return; // told again when it goes
    }
    await setFinalizer(this.#api, path, { finalizer: POOL_FINALIZER, isWanted: false }, signal);
    this.#log.info("the last block of a deleted pool is gone, and the pool with it", { pool: name });
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
