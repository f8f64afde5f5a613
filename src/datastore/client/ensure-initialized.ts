// What every cluster's datastore holds: who the cluster is, and the built-in tiers. Safe to run by many at once.
import { API_VERSION, BUILT_IN_TIERS, type ResourceKey, specFields } from "../../model/index.ts";
import type { CallOptions, Datastore } from "../datastore.ts";
import { AlreadyExists, NotFound, Unauthorized, Unavailable, Unsupported } from "../errors.ts";
import { stamp } from "./preconditions.ts";
import { upsert } from "./upsert.ts";

export interface ClusterFacts {
  /** Written when given; what stands there otherwise stays. */
  readonly version?: string;
  /** Comma-separated words, each added once. */
  readonly clusterType?: string;
  /** Leaves an existing ClusterInformation as it is: for programs that may create but not update it. */
  readonly createOnly?: boolean;
}

const RETRY_MS = 1000;

/** Tries everything while somebody answers, then throws the first thing that failed. */
export async function ensureInitialized(
  store: Datastore,
  facts: ClusterFacts = {},
  signal?: AbortSignal,
): Promise<void> {
  const faults: unknown[] = [];
  const fail = (error: unknown) => {
    if (error instanceof Unavailable) throw error; // the next would wait as long for as little
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
    // Asked first: who only looks whether all is there writes nothing.
    if (await isThere(store, key, options)) return;
    await store.create({ key, value: { apiVersion: API_VERSION, kind: "Tier", metadata, spec, status: {} } }, options);
  } catch (error) {
    // A program that may not create tiers runs in a cluster where somebody else did.
    const fine = [AlreadyExists, Unauthorized, Unsupported].some((type) => error instanceof type);
    if (!fine) throw error;
  }
}

async function isThere(store: Datastore, key: ResourceKey, options: CallOptions): Promise<boolean> {
  try {
    await store.get(key, options);
    return true;
  } catch (error) {
    if (error instanceof NotFound) return false;
    throw error;
  }
}

/** In the order of first mention, each once. */
function joinTypes(...lists: readonly unknown[]): string {
  const words = lists.flatMap((list) => (typeof list === "string" ? list.split(",") : []));
  return [...new Set(words.filter((word) => word !== ""))].join(",");
}
