// Makes, repairs and removes the host endpoints that nodes get by themselves. Runs also when none are wanted, to take
// away those that once were. What others made is never touched.
import { AlreadyExists, type Client, Conflict, NotFound } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { Resource, SpecOf } from "../../model/index.ts";
import type { HostEndpointSettings } from "../configuration.ts";
import type { Feed } from "../feed.ts";
import { sameJson } from "../same-json.ts";
import { every, WorkQueue } from "../work-queue.ts";
import { CREATED_BY, CREATOR, desiredHostEndpoints } from "./desired.ts";

const FULL_PASS_MS = 5 * 60_000;

export interface HostEndpointsOptions {
  readonly client: Client;
  readonly feed: Feed;
  readonly settings: HostEndpointSettings;
  readonly log: Logger;
}

export class HostEndpoints {
  readonly #options: HostEndpointsOptions;
  readonly #queue: WorkQueue;
  /** Which node's a host endpoint of ours is, also when it is gone. */
  readonly #nodeOf = new Map<string, string>();

  constructor(options: HostEndpointsOptions) {
    this.#options = options;
    const { feed, log } = options;
    this.#queue = new WorkQueue({ name: "host endpoints", work: (node, signal) => this.#sync(node, signal), log });
    let isFirst = true;
    feed.listen(({ nodes, hostEndpoints }) => {
      for (const name of nodes) this.#queue.add(name);
      for (const name of hostEndpoints) this.#onHostEndpoint(name);
      if (isFirst) for (const node of this.#nodeOf.values()) this.#queue.add(node);
      isFirst = false;
    });
  }

  async run(signal: AbortSignal): Promise<void> {
    const { feed } = this.#options;
    await Promise.all([
      this.#queue.run(signal),
      every(FULL_PASS_MS, signal, () => {
        for (const name of [...feed.nodes.keys(), ...this.#nodeOf.values()]) this.#queue.add(name);
      }),
    ]);
  }

  #onHostEndpoint(name: string): void {
    const resource = this.#options.feed.hostEndpoints.get(name);
    const queue = (node: string) => {
      // One of a node that is not there may be ahead of its node: left for the full pass.
      if (this.#options.feed.nodes.has(node)) this.#queue.add(node);
    };
    const before = this.#nodeOf.get(name);
    if (before !== undefined) queue(before);
    if (resource === undefined || !isOurs(resource)) {
      this.#nodeOf.delete(name);
      return;
    }
    const node = nodeOf(resource);
    this.#nodeOf.set(name, node);
    queue(node);
  }

  async #sync(name: string, signal: AbortSignal): Promise<void> {
    const { feed, settings, client, log } = this.#options;
    const node = feed.nodes.get(name);
    const wanted = new Map(
      (node === undefined ? [] : desiredHostEndpoints(node, settings)).map((resource) => [
        resource.metadata.name,
        resource,
      ]),
    );
    for (const [own, owner] of this.#nodeOf)
      if (owner === name && !wanted.has(own)) {
        await settled(client.delete({ kind: "HostEndpoint", name: own }, { signal }));
        log.info("removed an automatic host endpoint", { name: own, node: name });
      }
    for (const [own, resource] of wanted) {
      const current = feed.hostEndpoints.get(own);
      if (current === undefined) {
        this.#nodeOf.set(own, name); // it may be gone again before the feed tells of it
        await settled(client.create(resource, { signal }));
      } else if (isOurs(current)) await settled(this.#repair(own, resource, signal));
      else log.warn("a host endpoint of this name was made by somebody else; left alone", { name: own });
    }
  }

  async #repair(name: string, wanted: Resource, signal: AbortSignal): Promise<void> {
    const current: Resource = await this.#options.client.get({ kind: "HostEndpoint", name }, { signal });
    const { labels = {}, annotations = {} } = current.metadata;
    const isSame =
      sameJson(labels, wanted.metadata.labels) &&
      sameJson(annotations, wanted.metadata.annotations ?? {}) &&
      sameJson(current.spec, wanted.spec);
    if (isSame) return;
    const { annotations: _, ...metadata } = current.metadata;
    await this.#options.client.update(
      { ...current, metadata: { ...metadata, ...wanted.metadata }, spec: wanted.spec },
      { signal },
    );
  }
}

const isOurs = ({ metadata }: Resource): boolean => metadata.labels?.[CREATED_BY] === CREATOR;
const nodeOf = (resource: Resource): string => (resource.spec as SpecOf<"HostEndpoint">).node ?? "";

/** Somebody was quicker: the feed tells us, and we look again. */
async function settled(write: Promise<unknown>): Promise<void> {
  try {
    await write;
  } catch (error) {
    if (![NotFound, AlreadyExists, Conflict].some((type) => error instanceof type)) throw error;
  }
}
