// Creates, repairs and deletes the automatic host endpoints of nodes. Also runs when they are disabled, to delete those that
// were created before. Host endpoints of users are never changed.
import { AlreadyExists, type Client, Conflict, NotFound } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { ignoreUnreadable, readHostEndpoint, type Resource } from "../../model/index.ts";
import type { HostEndpointSettings } from "../configuration.ts";
import type { DatastoreCache } from "../datastore-cache.ts";
import { sameJson } from "../same-json.ts";
import { every, WorkQueue } from "../work-queue.ts";
import { CREATED_BY, CREATOR, desiredHostEndpoints } from "./desired.ts";

const FULL_SYNC_MS = 5 * 60_000;

export interface HostEndpointsOptions {
  readonly client: Client;
  readonly cache: DatastoreCache;
  readonly settings: HostEndpointSettings;
  readonly log: Logger;
}

export class HostEndpoints {
  readonly #options: HostEndpointsOptions;
  readonly #queue: WorkQueue;
  /** Nodes of the automatic host endpoints, by name of the host endpoint. */
  readonly #nodeOf = new Map<string, string>();

  constructor(options: HostEndpointsOptions) {
    this.#options = options;
    const { cache, log } = options;
    this.#queue = new WorkQueue({ name: "host endpoints", work: (node, signal) => this.#sync(node, signal), log });
    let isFirst = true;
    cache.listen(({ nodes, hostEndpoints }) => {
      for (const name of nodes) this.#queue.add(name);
      for (const name of hostEndpoints) this.#onHostEndpoint(name);
      if (isFirst) for (const node of this.#nodeOf.values()) this.#queue.add(node);
      isFirst = false;
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { cache } = this.#options;
    await Promise.all([
      this.#queue.run(signal),
      every(FULL_SYNC_MS, signal, () => {
        for (const name of [...cache.nodes.keys(), ...this.#nodeOf.values()]) this.#queue.add(name);
      }),
    ]);
  }

  #onHostEndpoint(name: string): void {
    const resource = this.#options.cache.hostEndpoints.get(name);
    const queue = (node: string) => {
      // A host endpoint of an unknown node may have arrived before its node. The full sync handles it if the node is missing.
      if (this.#options.cache.nodes.has(node)) this.#queue.add(node);
    };
    const before = this.#nodeOf.get(name);
    if (before !== undefined) queue(before);
    if (resource === undefined || !isAutomatic(resource)) {
      this.#nodeOf.delete(name);
      return;
    }
    const node = nodeOf(resource);
    this.#nodeOf.set(name, node);
    queue(node);
  }

  async #sync(name: string, signal: AbortSignal): Promise<void> {
    const { cache, settings, client, log } = this.#options;
    const node = cache.nodes.get(name);
    const desired = new Map(
      (node === undefined ? [] : desiredHostEndpoints(node, settings)).map((resource) => [
        resource.metadata.name,
        resource,
      ]),
    );
    for (const [endpointName, owner] of this.#nodeOf)
      if (owner === name && !desired.has(endpointName)) {
        await ignoreLostRace(client.delete({ kind: "HostEndpoint", name: endpointName }, { signal }));
        log.info("deleted an automatic host endpoint", { name: endpointName, node: name });
      }
    for (const [endpointName, resource] of desired) {
      const current = cache.hostEndpoints.get(endpointName);
      if (current === undefined) {
        this.#nodeOf.set(endpointName, name); // it may be deleted before the cache receives it
        await ignoreLostRace(client.create(resource, { signal }));
      } else if (isAutomatic(current)) await ignoreLostRace(this.#repair(endpointName, resource, signal));
      else
        log.warn("a host endpoint of a user has the name of an automatic one; leaving it unchanged", {
          name: endpointName,
        });
    }
  }

  async #repair(name: string, desired: Resource, signal: AbortSignal): Promise<void> {
    const current: Resource = await this.#options.client.get({ kind: "HostEndpoint", name }, { signal });
    const { labels = {}, annotations = {} } = current.metadata;
    const isSame =
      sameJson(labels, desired.metadata.labels) &&
      sameJson(annotations, desired.metadata.annotations ?? {}) &&
      sameJson(current.spec, desired.spec);
    if (isSame) return;
    const { annotations: _, ...metadata } = current.metadata;
    await this.#options.client.update(
      { ...current, metadata: { ...metadata, ...desired.metadata }, spec: desired.spec },
      { signal },
    );
  }
}

const isAutomatic = ({ metadata }: Resource): boolean => metadata.labels?.[CREATED_BY] === CREATOR;
const nodeOf = (resource: Resource): string => readHostEndpoint(resource, ignoreUnreadable).node ?? "";

/** If another client wrote the object first, the cache receives that change and queues the node again. */
async function ignoreLostRace(write: Promise<unknown>): Promise<void> {
  try {
    await write;
  } catch (error) {
    if (![NotFound, AlreadyExists, Conflict].some((type) => error instanceof type)) throw error;
  }
}
