// Watches the KubeControllersConfiguration: creates it if it is missing, writes the running configuration to its status, and
// returns when the effective configuration differs from the running one.
import { type Client, Conflict, NotFound } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { delay, pause } from "../lib/retry.ts";
import { API_VERSION, loadSchemas, type Resource, type ResourceOf } from "../model/index.ts";
import { DEFAULT_SPEC, type EffectiveConfig, effectiveConfig } from "./configuration.ts";
import type { EnvironmentSettings } from "./environment.ts";
import { sameJson } from "./same-json.ts";

const NAME = { kind: "KubeControllersConfiguration", name: "default" } as const;
const DEFAULT_RESOURCE: ResourceOf<typeof NAME.kind> = {
  apiVersion: API_VERSION,
  kind: NAME.kind,
  metadata: { name: NAME.name },
  spec: DEFAULT_SPEC,
};
const RETRY_MS = 1000;

export class ConfigurationWatcher {
  readonly #client: Client;
  readonly #environment: EnvironmentSettings;
  readonly #log: Logger;
  /** The status of the last write, as sent and as returned by the server. */
  #lastWrite: { readonly sent: unknown; readonly returned: unknown } | undefined;

  constructor(client: Client, environment: EnvironmentSettings, log: Logger) {
    this.#client = client;
    this.#environment = environment;
    this.#log = log;
  }

  /** Reads the configuration, and retries without a limit. Writes nothing, because this replica may not be the leader. */
  async readFirst(signal: AbortSignal): Promise<EffectiveConfig> {
    for (;;)
      try {
        return (await this.#read(signal, false)).effective;
      } catch (error) {
        signal.throwIfAborted();
        this.#log.warn("cannot read KubeControllersConfiguration, retrying", { error: describeError(error) });
        await delay(RETRY_MS, signal);
      }
  }

  /** Keeps the status up to date; returns when the effective configuration differs from `running`. For the leader. */
  keepStatus(running: EffectiveConfig, signal: AbortSignal): Promise<void> {
    return this.#watch(running, true, signal);
  }

  /** Returns when the effective configuration differs from `running`. Writes nothing. */
  waitForChange(running: EffectiveConfig, signal: AbortSignal): Promise<void> {
    return this.#watch(running, false, signal);
  }

  async #watch(running: EffectiveConfig, mayWrite: boolean, signal: AbortSignal): Promise<void> {
    while (!signal.aborted)
      try {
        const { effective, resource } = await this.#read(signal, mayWrite);
        if (effective.fingerprint !== running.fingerprint) return;
        if (mayWrite) await this.#writeStatus(resource, effective, signal);
        await this.#waitForWrite(resource, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Conflict) continue;
        this.#log.warn("cannot watch KubeControllersConfiguration, retrying", { error: describeError(error) });
        await pause(RETRY_MS, signal);
      }
  }

  async #read(signal: AbortSignal, mayWrite: boolean) {
    const resource = (await this.#get(signal)) ?? (mayWrite ? await this.#create(signal) : DEFAULT_RESOURCE);
    const { validateResource } = await loadSchemas();
    const checked = await validateResource(resource, { mode: "update" });
    if (!checked.ok) this.#log.error("KubeControllersConfiguration is invalid", { problems: checked.faults });
    const spec = checked.ok ? checked.resource.spec : resource.spec;
    const inKubernetes = this.#client.datastore.name === "kubernetes";
    return { resource: { ...resource, spec }, effective: effectiveConfig(spec, this.#environment, inKubernetes) };
  }

  async #get(signal: AbortSignal): Promise<ResourceOf<typeof NAME.kind> | undefined> {
    try {
      return await this.#client.get(NAME, { signal });
    } catch (error) {
      if (error instanceof NotFound) return undefined;
      throw error;
    }
  }

  async #create(signal: AbortSignal): Promise<ResourceOf<typeof NAME.kind>> {
    this.#log.info("KubeControllersConfiguration is missing, creating it with the defaults");
    return this.#client.create(DEFAULT_RESOURCE, { signal });
  }

  async #writeStatus(resource: Resource, { status }: EffectiveConfig, signal: AbortSignal): Promise<void> {
    if (sameJson(resource.status, status)) return;
    // The server may drop or add fields if its CRD has another version. Without this check, each write would cause another.
    if (sameJson(resource.status, this.#lastWrite?.returned) && sameJson(status, this.#lastWrite?.sent)) return;
    const written = await this.#client.updateStatus({ ...resource, status }, { signal, trusted: true });
    this.#lastWrite = { sent: status, returned: written.status };
  }

  /** Returns when the resource is written or deleted. */
  async #waitForWrite(resource: Resource, signal: AbortSignal): Promise<void> {
    const stop = new AbortController();
    const both = AbortSignal.any([signal, stop.signal]);
    // The list gives the revision to watch from. A write between the earlier read and this list is detected by the second read.
    const { revision } = await this.#client.list(NAME, { signal });
    const now = await this.#get(signal);
    if (now?.metadata.resourceVersion !== resource.metadata.resourceVersion) return;
    try {
      for await (const events of this.#client.watch(NAME, { after: revision, signal: both }))
        if (events.some(({ type }) => type !== "bookmark")) return;
    } finally {
      stop.abort();
    }
  }
}
