// Keeps a deleted Tier of the native API, with a finalizer, until its last policy is deleted. A condition of the Tier shows the
// policies that remain.
import { Informer, type KubeApi, type KubeObject } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { WorkQueue } from "../work-queue.ts";
import { NATIVE, type NativeObject, setCondition, setFinalizer } from "./update-object.ts";

const TIER_FINALIZER = "projectcalico.org/tier-controller";
const POLICIES = {
  NetworkPolicy: "networkpolicies",
  GlobalNetworkPolicy: "globalnetworkpolicies",
  StagedNetworkPolicy: "stagednetworkpolicies",
  StagedGlobalNetworkPolicy: "stagedglobalnetworkpolicies",
} as const;
const DEFAULT_TIER = "default";

export class TierFinalizer {
  readonly #api: KubeApi;
  readonly #log: Logger;
  readonly #tiers: Informer<{ readonly isDeleting: boolean }>;
  /** By policy kind, informers that keep the tier of each policy. */
  readonly #policies: ReadonlyMap<string, Informer<string>>;
  readonly #queue: WorkQueue;

  constructor({ api, log }: { readonly api: KubeApi; readonly log: Logger }) {
    this.#api = api;
    this.#log = log;
    const keep = ({ metadata }: KubeObject) => ({ isDeleting: metadata.deletionTimestamp !== undefined });
    this.#tiers = new Informer({ api, path: `${NATIVE}/tiers`, keep, log });
    this.#queue = new WorkQueue({ name: "tier", work: (name, signal) => this.#reconcile(name, signal), log });
    this.#tiers.listen(({ key }) => this.#queue.add(key));
    this.#policies = new Map(
      Object.entries(POLICIES).map(([kind, plural]) => {
        const informer = new Informer({ api, path: `${NATIVE}/${plural}`, keep: tierOf, log });
        informer.listen(({ before }) => {
          if (before !== undefined) this.#queue.add(before);
        });
        return [kind, informer];
      }),
    );
  }

  async run(signal: AbortSignal): Promise<void> {
    const informers = [this.#tiers, ...this.#policies.values()];
    await Promise.all([...informers.map((informer) => informer.run(signal)), this.#queue.run(signal)]);
  }

  async #reconcile(name: string, signal: AbortSignal): Promise<void> {
    const tier = this.#tiers.get(name);
    if (tier === undefined) return;
    const path = `${NATIVE}/tiers/${encodeURIComponent(name)}`;
    if (!tier.isDeleting) return setFinalizer(this.#api, path, { finalizer: TIER_FINALIZER, isDesired: true }, signal);
    // With an incomplete list of policies, a tier that still has policies could be removed.
    if (![...this.#policies.values()].every(({ hasSynced }) => hasSynced))
      return void setTimeout(() => this.#queue.add(name), 50);
    const remaining = [...this.#policies].flatMap(([kind, informer]) => {
      const count = [...informer.entries()].filter(([, own]) => own === name).length;
      return count === 0 ? [] : [`${count} ${kind}`];
    });
    if (remaining.length === 0) {
      await setFinalizer(this.#api, path, { finalizer: TIER_FINALIZER, isDesired: false }, signal);
      this.#log.info("removed a deleted tier after its last policy", { tier: name });
      return;
    }
    const message = `the tier is being deleted and still has ${remaining.join(", ")}: delete or move them`;
    await setCondition(this.#api, path, { type: "Ready", status: "False", reason: "Terminating", message }, signal);
  }
}

function tierOf(object: KubeObject): string {
  const tier = (object as NativeObject).spec?.["tier"];
  return typeof tier === "string" && tier !== "" ? tier : DEFAULT_TIER;
}
