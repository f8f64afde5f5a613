// Creates the entries that every cluster's datastore has: ClusterInformation and the built-in tiers. Several programs may
// run this at the same time.
import { API_VERSION, BUILT_IN_TIERS, type ResourceKey, specFields } from "../../model/index.ts";
import type { CallOptions, Datastore } from "../datastore.ts";
import { AlreadyExists, NotFound, Unauthorized, Unavailable, Unsupported } from "../errors.ts";
import { stamp } from "./preconditions.ts";
import { upsert } from "./upsert.ts";

export interface ClusterFacts {
  /** Undefined = keep the stored version. */
  readonly version?: string;
  /** Comma-separated words. Those that are not stored yet are added. */
  readonly clusterType?: string;
  /** Leaves an existing ClusterInformation as it is: for programs that may create but not update it. */
  readonly createOnly?: boolean;
}

const RETRY_MS = 1000;

/** Tries to create all entries, then throws the first error. Stops at once if the datastore is unavailable. */
export async function ensureInitialized(
  store: Datastore,
  facts: ClusterFacts = {},
  signal?: AbortSignal,
): Promise<void> {
  const faults: unknown[] = [];
  const fail = (error: unknown) => {
    if (error instanceof Unavailable) throw error; // the next request would wait for the same timeout
    faults.push(error);
  };
  await ensureClusterInformation(store, facts, signal).catch(fail);
  for (const [name, spec] of Object.entries(BUILT_IN_TIERS)) await ensureTier(store, name, spec, signal).catch(fail);
  signal?.throwIfAborted();
  if (faults.length > 0) throw faults[0];
}

function ensureClusterInformation(
  store: Datastore,
  facts: ClusterFacts,
  signal: AbortSignal | undefined,
): Promise<void> {
  const name = { kind: "ClusterInformation", name: "default" } as const;
  return upsert({ store, signal, retryMs: RETRY_MS }, name, (current) => {
    if (current !== undefined && facts.createOnly === true) return undefined;
    const before = current === undefined ? {} : specFields(current);
    const clusterType = joinTypes(
      before["clusterType"],
      facts.clusterType,
      store.name === "kubernetes" ? "kdd" : undefined,
    );
    const after = {
      ...before,
      clusterGUID: before["clusterGUID"] || crypto.randomUUID().replaceAll("-", ""),
      ...(clusterType === "" ? {} : { clusterType }),
      ...(facts.version === undefined || facts.version === "" ? {} : { calicoVersion: facts.version }),
      datastoreReady: before["datastoreReady"] ?? true,
    };
    return JSON.stringify(after, Object.keys(after).sort()) === JSON.stringify(before, Object.keys(after).sort())
      ? undefined
      : after;
  });
}

async function ensureTier(
  store: Datastore,
  name: string,
  spec: object,
  signal: AbortSignal | undefined,
): Promise<void> {
  const key = { type: "resource", kind: "Tier", name } as const;
  const options = { ...(signal && { signal }) };
  const metadata = stamp({ name }, () => new Date());
  try {
    // Read first, so that an initialized datastore is not written.
    if (await exists(store, key, options)) return;
    await store.create({ key, value: { apiVersion: API_VERSION, kind: "Tier", metadata, spec, status: {} } }, options);
  } catch (error) {
    // A program without permission to create tiers runs in a cluster where another program creates them.
    const isExpected = [AlreadyExists, Unauthorized, Unsupported].some((type) => error instanceof type);
    if (!isExpected) throw error;
  }
}

async function exists(store: Datastore, key: ResourceKey, options: CallOptions): Promise<boolean> {
  try {
    await store.get(key, options);
    return true;
  } catch (error) {
    if (error instanceof NotFound) return false;
    throw error;
  }
}

/** Joins comma-separated lists without duplicates, in the order of first occurrence. */
function joinTypes(...lists: readonly unknown[]): string {
  const words = lists.flatMap((list) => (typeof list === "string" ? list.split(",") : []));
  return [...new Set(words.filter((word) => word !== ""))].join(",");
}
