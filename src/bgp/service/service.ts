// Runs the BGP service: watches the datastore and this node, and keeps BIRD's two configurations equal to the plan.
//
//   syncer ─► collector ─┐
//   services, secrets ───┼─► plan ─► text ─► BIRD checks it ─► file installed ─► BIRD reloads it
//   local workloads ─────┘
//
// Nothing is written before all sources are in sync. A failed attempt is retried with backoff.
import { join } from "node:path";
import {
  Informer,
  type KubeApi,
  type KubeObject,
  type Syncer,
  type SyncerUpdate,
  type SyncStatus,
} from "../../datastore/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { backoffDelay, pause } from "../../lib/retry.ts";
import type { SecretRef } from "../../model/index.ts";
import { birdConfiguration, isUsablePassword, type RenderInputs } from "../bird/configuration.ts";
import { BgpCollector } from "../collect.ts";
import { type LocalInputs, NoSuchNode, plan } from "../plan.ts";
import type { BgpPlan } from "../plan-types.ts";
import { serviceAddresses } from "../service-addresses.ts";
import type { BgpState, Problem } from "../state.ts";
import { intermediatePlan } from "./intermediate-plan.ts";
import { type Bird, ConfigurationFile, ConfigurationRejected } from "./configuration-file.ts";
import { LocalWorkloads } from "./local-workloads.ts";
import { excludeRejected } from "./exclude-rejected.ts";
import { KubernetesSecrets, noPasswords, type PasswordSource } from "./secrets.ts";

const BACKOFF = { firstMs: 250, maxMs: 5000 };
/** Interval of reloads while BIRD has not confirmed one: it may have started with the previous file. */
const RELOAD_RETRY_MS = 5000;
const EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers";
export const CONFIG_FILE: Readonly<Record<IpVersion, string>> = { 4: "bird.cfg", 6: "bird6.cfg" };

export interface BgpServiceOptions {
  readonly nodeName: string;
  /** Name of this node in Kubernetes, if it differs. */
  readonly kubernetesNodeName?: string;
  readonly syncer: Syncer;
  /** The folder of `bird.cfg` and `bird6.cfg`. */
  readonly folder: string;
  readonly birds: Readonly<Record<IpVersion, Bird>>;
  /** Felix's endpoint status files. */
  readonly endpointStatusFolder: string;
  /** Source of services and secrets; without it, there are none. */
  readonly kubernetes?: KubeApi;
  /** Replaces Kubernetes Secrets. */
  readonly passwords?: PasswordSource;
  readonly secretNamespace?: string;
  readonly routerId?: string;
  readonly clusterIps?: readonly string[];
  /** Uses the nodes' pod CIDRs as their blocks. */
  readonly usePodCidr?: boolean;
  readonly logger: Logger;
  /** Called with each plan after it has been applied. */
  readonly onPlan?: (plan: BgpPlan) => void;
}

export class BgpService {
  readonly #options: BgpServiceOptions;
  readonly #logger: Logger;
  readonly #collector: BgpCollector;
  readonly #workloads: LocalWorkloads;
  readonly #files: Readonly<Record<IpVersion, ConfigurationFile>>;
  #services: Informer<KubeObject> | undefined;
  #slices: Informer<KubeObject> | undefined;
  #passwords: PasswordSource = noPasswords;
  #status: SyncStatus = "wait-for-ready";
  #isReady = false;
  #isDirty = false;
  #wake: (() => void) | undefined;
  /** The problems logged last, so that they are not repeated. */
  #loggedProblems = "";

  constructor(options: BgpServiceOptions) {
    this.#options = options;
    this.#logger = options.logger;
    this.#collector = new BgpCollector({ usePodCidr: options.usePodCidr ?? false });
    const file = (family: IpVersion) =>
      new ConfigurationFile(join(options.folder, CONFIG_FILE[family]), options.birds[family]);
    this.#files = { 4: file(4), 6: file(6) };
    this.#workloads = new LocalWorkloads(options.endpointStatusFolder, () => this.#touch());
  }

  /** Runs until the signal aborts; with `once`, until the first plan is applied. */
  async run(signal: AbortSignal, options: { readonly once?: boolean } = {}): Promise<void> {
    const stop = new AbortController();
    const all = AbortSignal.any([signal, stop.signal]);
    const wake = () => this.#wake?.();
    all.addEventListener("abort", wake, { once: true });
    const sources = [this.#runSyncer(all), this.#workloads.run(all), ...this.#watchKubernetes(all)];
    try {
      await this.#applyChanges(all, options.once === true);
    } finally {
      stop.abort();
      await Promise.all(sources);
    }
  }

  #runSyncer(signal: AbortSignal): Promise<void> {
    return this.#options.syncer.run(
      {
        onStatus: (status) => {
          this.#status = status;
          this.#touch();
        },
        onUpdates: (updates: readonly SyncerUpdate[]) => {
          for (const update of updates) this.#collector.onUpdate(update);
          this.#touch();
        },
        onUnreadable: (path, reason) => this.#logger.warn("ignoring an unreadable datastore entry", { path, reason }),
      },
      signal,
    );
  }

  #watchKubernetes(signal: AbortSignal): readonly Promise<void>[] {
    const { kubernetes: api, secretNamespace = "kube-system" } = this.#options;
    const touch = () => this.#touch();
    if (api === undefined) {
      this.#passwords = this.#options.passwords ?? noPasswords;
      this.#isReady = true;
      return [];
    }
    const log = this.#logger;
    const watch = (path: string) => {
      const informer = new Informer({ api, path, keep: (object) => object, log });
      informer.listen(touch);
      return informer;
    };
    this.#passwords =
      this.#options.passwords ??
      new KubernetesSecrets({ api, namespace: secretNamespace, onChange: touch, log, signal });
    this.#services = watch("/api/v1/services");
    this.#slices = watch("/apis/discovery.k8s.io/v1/endpointslices");
    void Promise.all([this.#services.synced, this.#slices.synced]).then(() => {
      this.#isReady = true;
      this.#touch();
    });
    return [this.#services.run(signal), this.#slices.run(signal)];
  }

  #touch(): void {
    this.#isDirty = true;
    this.#wake?.();
  }

  async #applyChanges(signal: AbortSignal, once: boolean): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      if (!this.#isDirty || this.#status !== "in-sync" || !this.#isReady) {
        await this.#waitForChange(signal, this.#files[4].isRead && this.#files[6].isRead ? undefined : RELOAD_RETRY_MS);
        continue;
      }
      this.#isDirty = false;
      try {
        await this.#apply();
        failures = 0;
        if (once) return;
      } catch (error) {
        if (error instanceof NoSuchNode)
          this.#logger.warn("Node resource does not exist; BIRD keeps its configuration", { node: error.node });
        else this.#logger.error("could not update BIRD's configuration, retrying", { error });
        this.#isDirty = !(error instanceof NoSuchNode); // a new Node resource arrives as an update
        await pause(backoffDelay(BACKOFF, failures++), signal);
      }
    }
  }

  /** Waits for a change; after `ms` without one, triggers another reload of BIRD. */
  async #waitForChange(signal: AbortSignal, ms: number | undefined): Promise<void> {
    if (signal.aborted) return;
    const { promise, resolve } = Promise.withResolvers<void>();
    this.#wake = resolve;
    const timer = ms === undefined || this.#status !== "in-sync" ? undefined : setTimeout(() => this.#touch(), ms);
    await promise;
    clearTimeout(timer);
    this.#wake = undefined;
  }

  async #apply(): Promise<void> {
    const state = this.#collector.stateFor(this.#options.nodeName);
    await this.#passwords.watch(secretsOf(state));
    const planned = plan(state, this.#options.nodeName, this.#inputs(state));
    const inputs: RenderInputs = {
      password: (secret) => {
        const slash = secret.indexOf("/");
        return this.#passwords.get({ name: secret.slice(0, slash), key: secret.slice(slash + 1) });
      },
    };
    const problems: Problem[] = [...planned.problems];
    for (const family of [4, 6] as const) problems.push(...(await this.#install(planned, family, inputs)));
    this.#logProblems(problems);
    this.#options.onPlan?.({ ...planned, problems });
  }

  #inputs(state: BgpState): LocalInputs {
    const { routerId, clusterIps, nodeName, kubernetesNodeName } = this.#options;
    return {
      routerId,
      clusterIps,
      workloads: this.#workloads.current,
      hasSecret: (ref) => isUsablePassword(this.#passwords.get(ref) ?? ""),
      isUnusableSecret: (ref) => {
        const password = this.#passwords.get(ref);
        return password !== undefined && !isUsablePassword(password);
      },
      serviceAddresses:
        this.#services === undefined || this.#slices === undefined
          ? []
          : serviceAddresses({
              services: [...this.#services.values()],
              slices: [...this.#slices.values()],
              nodeName: kubernetesNodeName ?? nodeName,
              configuration: state.configurations.get("default"),
              clusterIps,
              isExcluded: state.nodes.get(nodeName)?.labels[EXCLUDE_LABEL] === "true",
            }),
    };
  }

  async #install(planned: BgpPlan, family: IpVersion, inputs: RenderInputs): Promise<readonly Problem[]> {
    const file = this.#files[family];
    const put = async (desired: BgpPlan) => {
      const started = performance.now();
      const wasRead = file.isRead;
      const result = await file.install(birdConfiguration(desired, family, inputs));
      if (result === "absent" && wasRead)
        this.#logger.warn("BIRD does not run; it reads its configuration when it starts", { family });
      if (result !== "reconfigured") return;
      const sessions = desired.peers.filter((peer) => peer.family === family).length;
      const ms = Math.round(performance.now() - started);
      this.#logger.info("reconfigured BIRD", { family, sessions, ms });
    };
    try {
      const before = intermediatePlan(planned, family, file.text);
      if (before !== undefined) await put(before);
      await put(planned);
      return [];
    } catch (error) {
      if (!(error instanceof ConfigurationRejected)) throw error;
      const reduced = await excludeRejected(planned, family, inputs, (text) => file.check(text));
      if (reduced === undefined) throw error;
      await put(reduced.plan);
      return reduced.problems;
    }
  }

  #logProblems(problems: readonly Problem[]): void {
    const text = JSON.stringify(problems);
    if (text === this.#loggedProblems) return;
    this.#loggedProblems = text;
    for (const { object, problem } of problems)
      this.#logger.warn("ignoring part of the BGP configuration", { object, problem });
  }
}

function secretsOf(state: BgpState): readonly SecretRef[] {
  const mesh = state.configurations.get("default")?.meshPassword;
  return [
    ...(mesh === undefined ? [] : [mesh]),
    ...[...state.peers.values()].flatMap(({ password }) => password ?? []),
  ];
}
