// The BGP service: follows the datastore and this node, and keeps BIRD's two configurations equal to the plan.
//
//   syncer ─► collector ─┐
//   services, secrets ───┼─► plan ─► text ─► BIRD tries it ─► file in place ─► BIRD reads it
//   local workloads ─────┘
//
// Nothing is written before every source has told all it knows. A failed attempt is repeated, slower and slower.
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
import { withNewBlocksBeside } from "./claims.ts";
import { type Bird, ConfigurationFile, ConfigurationRefused } from "./install.ts";
import { LocalWorkloads } from "./local-workloads.ts";
import { salvage } from "./salvage.ts";
import { KubernetesSecrets, noPasswords, type PasswordSource } from "./secrets.ts";

const BACKOFF = { firstMs: 250, maxMs: 5000 };
/** A BIRD that did not answer is asked again: it may have started with the file as it was before. */
const ASK_AGAIN_MS = 5000;
const EXCLUDE_LABEL = "node.kubernetes.io/exclude-from-external-load-balancers";
export const CONFIG_FILE: Readonly<Record<IpVersion, string>> = { 4: "bird.cfg", 6: "bird6.cfg" };

export interface BgpServiceOptions {
  readonly nodeName: string;
  /** How Kubernetes calls this node, where it is another name. */
  readonly kubernetesNodeName?: string;
  readonly syncer: Syncer;
  /** Where `bird.cfg` and `bird6.cfg` go. */
  readonly folder: string;
  readonly birds: Readonly<Record<IpVersion, Bird>>;
  /** Felix' endpoint status files. */
  readonly endpointStatusFolder: string;
  /** For services and secrets; without it neither is known. */
  readonly kubernetes?: KubeApi;
  /** In place of Kubernetes' secrets. */
  readonly passwords?: PasswordSource;
  readonly secretNamespace?: string;
  readonly routerId?: string;
  readonly clusterIps?: readonly string[];
  /** Addresses come from the nodes' pod CIDRs: those are the blocks. */
  readonly usePodCidr?: boolean;
  readonly logger: Logger;
  /** Told of each plan that is in force. */
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
  /** What was said of problems, so that each is said once. */
  #said = "";

  constructor(options: BgpServiceOptions) {
    this.#options = options;
    this.#logger = options.logger;
    this.#collector = new BgpCollector({ usePodCidr: options.usePodCidr ?? false });
    const file = (family: IpVersion) =>
      new ConfigurationFile(join(options.folder, CONFIG_FILE[family]), options.birds[family]);
    this.#files = { 4: file(4), 6: file(6) };
    this.#workloads = new LocalWorkloads(options.endpointStatusFolder, () => this.#touch());
  }

  /** Until the signal aborts; with `once`, until the first plan is in force. */
  async run(signal: AbortSignal, options: { readonly once?: boolean } = {}): Promise<void> {
    const stop = new AbortController();
    const all = AbortSignal.any([signal, stop.signal]);
    const wake = () => this.#wake?.();
    all.addEventListener("abort", wake, { once: true });
    const sources = [this.#follow(all), this.#workloads.run(all), ...this.#followKubernetes(all)];
    try {
      await this.#keepUp(all, options.once === true);
    } finally {
      stop.abort();
      await Promise.all(sources);
    }
  }

  #follow(signal: AbortSignal): Promise<void> {
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
        onUnreadable: (path, reason) => this.#logger.warn("A datastore entry is not used", { path, reason }),
      },
      signal,
    );
  }

  #followKubernetes(signal: AbortSignal): readonly Promise<void>[] {
    const { kubernetes: api, secretNamespace = "kube-system" } = this.#options;
    const touch = () => this.#touch();
    if (api === undefined) {
      this.#passwords = this.#options.passwords ?? noPasswords;
      this.#isReady = true;
      return [];
    }
    const log = this.#logger;
    const follow = (path: string) => {
      const informer = new Informer({ api, path, keep: (object) => object, log });
      informer.listen(touch);
      return informer;
    };
    this.#passwords =
      this.#options.passwords ??
      new KubernetesSecrets({ api, namespace: secretNamespace, onChange: touch, log, signal });
    this.#services = follow("/api/v1/services");
    this.#slices = follow("/apis/discovery.k8s.io/v1/endpointslices");
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

  async #keepUp(signal: AbortSignal, once: boolean): Promise<void> {
    let failures = 0;
    while (!signal.aborted) {
      if (!this.#isDirty || this.#status !== "in-sync" || !this.#isReady) {
        await this.#news(signal, this.#files[4].isRead && this.#files[6].isRead ? undefined : ASK_AGAIN_MS);
        continue;
      }
      this.#isDirty = false;
      try {
        await this.#apply();
        failures = 0;
        if (once) return;
      } catch (error) {
        if (error instanceof NoSuchNode)
          this.#logger.warn("This node is not in the datastore: BIRD keeps what it has", { node: error.node });
        else this.#logger.error("BIRD's configuration could not be brought up to date; trying again", { error });
        this.#isDirty = !(error instanceof NoSuchNode); // when it comes back we hear of it
        await pause(backoffDelay(BACKOFF, failures++), signal);
      }
    }
  }

  /** Waits for news. After `ms` without any, BIRD is asked again whether it is there. */
  async #news(signal: AbortSignal, ms: number | undefined): Promise<void> {
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
    await this.#passwords.follow(secretsOf(state));
    const made = plan(state, this.#options.nodeName, this.#inputs(state));
    const inputs: RenderInputs = {
      password: (secret) => {
        const slash = secret.indexOf("/");
        return this.#passwords.get({ name: secret.slice(0, slash), key: secret.slice(slash + 1) });
      },
    };
    const problems: Problem[] = [...made.problems];
    for (const family of [4, 6] as const) problems.push(...(await this.#install(made, family, inputs)));
    this.#tellProblems(problems);
    this.#options.onPlan?.({ ...made, problems });
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

  async #install(made: BgpPlan, family: IpVersion, inputs: RenderInputs): Promise<readonly Problem[]> {
    const file = this.#files[family];
    const put = async (wanted: BgpPlan) => {
      const started = performance.now();
      const wasRead = file.isRead;
      const result = await file.install(birdConfiguration(wanted, family, inputs));
      if (result === "absent" && wasRead)
        this.#logger.warn("BIRD does not run; its configuration waits for it", { family });
      if (result !== "reconfigured") return;
      const sessions = wanted.peers.filter((peer) => peer.family === family).length;
      const ms = Math.round(performance.now() - started);
      this.#logger.info("BIRD has read its configuration", { family, sessions, ms });
    };
    try {
      const before = withNewBlocksBeside(made, family, file.text);
      if (before !== undefined) await put(before);
      await put(made);
      return [];
    } catch (error) {
      if (!(error instanceof ConfigurationRefused)) throw error;
      const saved = await salvage(made, family, inputs, (text) => file.judge(text));
      if (saved === undefined) throw error;
      await put(saved.plan);
      return saved.problems;
    }
  }

  #tellProblems(problems: readonly Problem[]): void {
    const text = JSON.stringify(problems);
    if (text === this.#said) return;
    this.#said = text;
    for (const { object, problem } of problems)
      this.#logger.warn("Not all of BGP's configuration is used", { object, problem });
  }
}

function secretsOf(state: BgpState): readonly SecretRef[] {
  const mesh = state.configurations.get("default")?.meshPassword;
  return [
    ...(mesh === undefined ? [] : [mesh]),
    ...[...state.peers.values()].flatMap(({ password }) => password ?? []),
  ];
}
