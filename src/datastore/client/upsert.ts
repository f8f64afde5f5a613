// Creates or updates a resource that several programs write: reads it, changes it, writes it, and starts again after a
// conflict.
import { API_VERSION, type KindName, type Resource, type ResourceKey } from "../../model/index.ts";
import type { Datastore } from "../datastore.ts";
import { AlreadyExists, Conflict, NotFound } from "../errors.ts";
import { delay } from "../../lib/retry.ts";
import { stamp } from "./preconditions.ts";

/**
 * @param change returns the new spec, or undefined if the resource needs no change
 * @param at.retryMs delay after a conflict
 */
export async function upsert(
  at: { readonly store: Datastore; readonly signal?: AbortSignal; readonly retryMs?: number },
  name: { readonly kind: KindName; readonly name: string },
  change: (current: Resource | undefined) => object | undefined,
): Promise<void> {
  const key: ResourceKey = { type: "resource", ...name };
  const options = at.signal === undefined ? {} : { signal: at.signal };
  for (;;) {
    try {
      const stored = await at.store.get(key, options).catch((error: unknown) => {
        if (error instanceof NotFound) return undefined;
        throw error;
      });
      const spec = change(stored?.value);
      if (spec === undefined) return;
      if (stored === undefined) {
        const metadata = stamp({ name: name.name }, () => new Date());
        const value = { apiVersion: API_VERSION, kind: name.kind, metadata, spec };
        await at.store.create({ key, value }, options);
      } else await at.store.update({ ...stored, value: { ...stored.value, spec } }, options);
      return;
    } catch (error) {
      if (!(error instanceof Conflict || error instanceof AlreadyExists || error instanceof NotFound)) throw error;
      await delay(at.retryMs ?? 50, at.signal);
    }
  }
}
