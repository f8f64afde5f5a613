// Keeps the KubeControllersConfiguration: makes it when it is missing, shows in its status what runs, and tells when
// what should run is no longer what runs.
import { type Client, Conflict, NotFound } from "../datastore/index.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { delay, pause } from "../lib/retry.ts";
import { API_VERSION, loadSchemas, type Resource, type ResourceOf } from "../model/index.ts";
import { type ConfigurationSpec, DEFAULT_SPEC, type Effective, effectiveConfig } from "./configuration.ts";
import type { EnvironmentSettings } from "./environment.ts";
import { sameJson } from "./same-json.ts";

const NAME = { kind: "KubeControllersConfiguration", name: "default" } as const;
const ABSENT: ResourceOf<typeof NAME.kind> = {
  apiVersion: API_VERSION,
  kind: NAME.kind,
  metadata: { name: NAME.name },
  spec: DEFAULT_SPEC,
};
const RETRY_MS = 1000;

export class ConfigurationKeeper {
  readonly #client: Client;
  readonly #environment: EnvironmentSettings;
  readonly #log: Logger;
  /** The status we last wrote, and what came of it. */
  #shown: { readonly wanted: unknown; readonly got: unknown } | undefined;

  constructor(client: Client, environment: EnvironmentSettings, log: Logger) {
    this.#client = client;
    this.#environment = environment;
    this.#log = log;
  }

  /** What is to run; waits for the datastore as long as it takes. Writes nothing: we may not be the one who works. */
  async first(signal: AbortSignal): Promise<Effective> {
    for (;;)
      try {
        return (await this.#read(signal, false)).effective;
      } catch (error) {
        signal.throwIfAborted();
        this.#log.warn("cannot read the controllers' configuration; trying again", { error: describeError(error) });
        await delay(RETRY_MS, signal);
      }
  }

  /** Keeps the status; ends when something else should run. */
  follow(running: Effective, signal: AbortSignal): Promise<void> {
    return this.#watch(running, true, signal);
  }

  /** Ends when something else should run; writes nothing. */
  differs(running: Effective, signal: AbortSignal): Promise<void> {
    return this.#watch(running, false, signal);
  }

  async #watch(running: Effective, works: boolean, signal: AbortSignal): Promise<void> {
    while (!signal.aborted)
      try {
        const { effective, resource } = await this.#read(signal, works);
        if (effective.fingerprint !== running.fingerprint) return;
        if (works) await this.#showStatus(resource, effective, signal);
        await this.#changed(resource, signal);
      } catch (error) {
        if (signal.aborted) return;
        if (error instanceof Conflict) continue;
        this.#log.warn("cannot follow the controllers' configuration; trying again", { error: describeError(error) });
        await pause(RETRY_MS, signal);
      }
  }

  async #read(signal: AbortSignal, works: boolean) {
    const resource = (await this.#get(signal)) ?? (works ? await this.#make(signal) : ABSENT);
    const { validateResource } = await loadSchemas();
    const checked = await validateResource(resource, { mode: "update" });
    if (!checked.ok) this.#log.error("the controllers' configuration has faults", { faults: checked.faults });
    const spec = (checked.ok ? checked.resource.spec : resource.spec) as ConfigurationSpec;
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

  async #make(signal: AbortSignal): Promise<ResourceOf<typeof NAME.kind>> {
    this.#log.info("the controllers' configuration is missing; made it with the defaults");
    return this.#client.create(ABSENT, { signal });
  }

  async #showStatus(resource: Resource, { status }: Effective, signal: AbortSignal): Promise<void> {
    if (sameJson(resource.status, status)) return;
    // The server may keep less or more than it was given (its definition is older or newer than ours); once is enough.
    if (sameJson(resource.status, this.#shown?.got) && sameJson(status, this.#shown?.wanted)) return;
    const written = await this.#client.updateStatus({ ...resource, status }, { signal, trusted: true });
    this.#shown = { wanted: status, got: written.status };
  }

  /** Until somebody writes or deletes it. */
  async #changed(resource: Resource, signal: AbortSignal): Promise<void> {
    const stop = new AbortController();
    const both = AbortSignal.any([signal, stop.signal]);
    // What was written since it was read is told first: nothing is missed between the two.
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
