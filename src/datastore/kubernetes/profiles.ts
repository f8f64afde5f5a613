// Derives profiles from namespaces and service accounts. Their revision consists of both collections' revisions: `<ns>/<sa>`.
import {
  profileFromNamespace,
  profileFromServiceAccount,
  profileOrigin,
  type Resource,
  type ResourceKey,
} from "../../model/index.ts";
import type { ListResult, ReadOptions, Stored, Watch, WatchEvent } from "../datastore.ts";
import { NotFound, ValidationFailed } from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import type { KubeApi, KubeObject } from "./api-client.ts";
import type { Collection } from "./collection.ts";
import { toDatastoreError } from "./failures.ts";
import { KubeWatch } from "./watch.ts";

const NAMESPACES = "/api/v1/namespaces";
const ACCOUNTS = "/api/v1/serviceaccounts";

const profileKey = (name: string): ResourceKey => ({ type: "resource", kind: "Profile", name });
const stored = (value: Resource): Stored<ResourceKey> => ({
  key: profileKey(value.metadata.name),
  value,
  revision: value.metadata.resourceVersion ?? "",
});

export class Profiles {
  constructor(readonly api: KubeApi) {}

  async get(key: ResourceKey, options: ReadOptions): Promise<Stored<ResourceKey>> {
    const origin = profileOrigin(key.name);
    if (origin === undefined) throw new NotFound(nameOfKey(key));
    const path =
      origin.type === "namespace"
        ? `${NAMESPACES}/${encodeURIComponent(origin.name)}`
        : `${NAMESPACES}/${encodeURIComponent(origin.namespace)}/serviceaccounts/${encodeURIComponent(origin.name)}`;
    try {
      const object = await this.api.get<KubeObject>(path, { signal: options.signal });
      return stored(origin.type === "namespace" ? profileFromNamespace(object) : profileFromServiceAccount(object));
    } catch (error) {
      throw toDatastoreError(error, key);
    }
  }

  async list(name: string | undefined, options: ReadOptions): Promise<ListResult<ResourceKey>> {
    const origin = name === undefined ? undefined : profileOrigin(name);
    const includes = (type: "namespace" | "serviceAccount") => name === undefined || origin?.type === type;
    const [namespaces, accounts] = await Promise.all([
      this.api.list(NAMESPACES, { signal: options.signal }),
      this.api.list(ACCOUNTS, { signal: options.signal }),
    ]);
    const items = [
      ...(includes("namespace") ? namespaces.items.map(profileFromNamespace) : []),
      ...(includes("serviceAccount") ? accounts.items.map(profileFromServiceAccount) : []),
    ].map(stored);
    return {
      items: name === undefined ? items : items.filter(({ key }) => key.name === name),
      revision: `${namespaces.metadata.resourceVersion ?? ""}/${accounts.metadata.resourceVersion ?? ""}`,
    };
  }

  async watch(name: string | undefined, after: string | undefined, signal: AbortSignal): Promise<Watch<ResourceKey>> {
    const start = after === undefined || after === "0" || after === "" ? await this.list(name, { signal }) : undefined;
    const [namespaces = "", accounts = "", more] = (start?.revision ?? after ?? "").split("/");
    if (more !== undefined || (after !== undefined && after !== "0" && !after.includes("/")))
      throw new ValidationFailed([
        { field: "ResourceVersion", value: after, reason: "want <namespaces>/<serviceaccounts>" },
      ]);
    const accepts = (key: ResourceKey) => name === undefined || key.name === name;
    const part = (path: string, convert: (object: KubeObject) => Resource, revision: string) =>
      new KubeWatch<ResourceKey>({
        api: this.api,
        collection: source(path, convert),
        selection: { path },
        accepts,
        after: revision,
        signal,
      });
    return new MergedWatch(
      part(NAMESPACES, profileFromNamespace, namespaces),
      part(ACCOUNTS, profileFromServiceAccount, accounts),
      [namespaces, accounts],
      start?.items,
    );
  }
}

function source(path: string, convert: (object: KubeObject) => Resource): Collection<ResourceKey> {
  const unused = (): never => {
    throw new Error("profiles are read only");
  };
  return {
    kind: "Profile",
    select: () => ({ path }),
    keyOf: (object) => profileKey(convert(object).metadata.name),
    itemPath: unused,
    createPath: unused,
    encode: unused,
    decode: (object) => ({ ...stored(convert(object)), revision: object.metadata.resourceVersion ?? "" }),
  };
}

/** Merges two watches; each event has the newest revision of both. */
class MergedWatch implements Watch<ResourceKey> {
  constructor(
    readonly first: KubeWatch<ResourceKey>,
    readonly second: KubeWatch<ResourceKey>,
    readonly start: readonly [string, string],
    readonly initial: readonly Stored<ResourceKey>[] | undefined,
  ) {}

  async *[Symbol.asyncIterator](): AsyncGenerator<readonly WatchEvent<ResourceKey>[]> {
    const revisions: [string, string] = [...this.start];
    if (this.initial !== undefined) {
      const events = this.initial.map(
        (item): WatchEvent<ResourceKey> => ({ type: "added", item, revision: revisions.join("/") }),
      );
      yield [...events, { type: "bookmark", revision: revisions.join("/") }];
    }
    const iterators = [this.first[Symbol.asyncIterator](), this.second[Symbol.asyncIterator]()] as const;
    const next = (side: 0 | 1) => iterators[side].next().then((result) => ({ side, result }));
    const waiting: (ReturnType<typeof next> | undefined)[] = [next(0), next(1)];
    try {
      for (;;) {
        const { side, result } = await Promise.race(waiting.filter((w) => w !== undefined));
        if (result.done === true) return;
        waiting[side] = next(side);
        yield result.value.map((event) => {
          revisions[side] = event.revision ?? revisions[side];
          const revision = revisions.join("/");
          return "item" in event
            ? { ...event, revision, item: { ...event.item, revision: sideRevision(side, event.item.revision) } }
            : { ...event, revision };
        });
      }
    } finally {
      await this[Symbol.asyncDispose]();
      for (const pending of waiting) pending?.catch(() => {}); // disposing the other watch rejects its pending read
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await Promise.all([this.first[Symbol.asyncDispose](), this.second[Symbol.asyncDispose]()]);
  }
}

const sideRevision = (side: 0 | 1, revision: string): string => (side === 0 ? `${revision}/` : `/${revision}`);
