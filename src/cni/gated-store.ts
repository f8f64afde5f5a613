// A datastore that may be read at once but written only when a question has been answered: reading ahead while the
// gates of ADD and DEL are still being checked saves a round trip, and a closed gate means nothing was touched.
import type { Datastore } from "../datastore/index.ts";
import type { CniContext } from "./context.ts";
import { CALICO_IPAM } from "./ipam-delegation.ts";
import { onStore } from "./ipam-plugin.ts";

export function gatedStore(store: Datastore, gate: Promise<unknown>): Datastore {
  gate.catch(() => {}); // whoever writes hears of it
  const together = store.together?.bind(store);
  return {
    name: store.name,
    get: (key, options) => store.get(key, options),
    list: (query, options) => store.list(query, options),
    watch: (query, options) => store.watch(query, options),
    create: async (entry, options) => {
      await gate;
      return store.create(entry, options);
    },
    update: async (entry, options) => {
      await gate;
      return store.update(entry, options);
    },
    apply: async (entry, options) => {
      await gate;
      return store.apply(entry, options);
    },
    delete: async (key, options) => {
      await gate;
      return store.delete(key, options);
    },
    ...(together === undefined
      ? {}
      : {
          together: async (writes, options) => {
            await gate;
            return together(writes, options);
          },
        }),
    close: () => store.close(),
  };
}

/** The context for an IPAM that reads at once and writes when the gate is open; other plugins wait for the gate. */
export async function behindGate(context: CniContext, gate: Promise<unknown>): Promise<CniContext> {
  if (context.conf.ipam.type !== CALICO_IPAM) {
    await gate;
    return context;
  }
  return onGatedStore(context, gate);
}

/** Where nobody waits to write behind a gate that stays shut. */
export function onGatedStore(context: CniContext, gate: Promise<unknown>): CniContext {
  const shut = new AbortController();
  gate.catch((reason: unknown) => shut.abort(reason));
  const signal = context.signal === undefined ? shut.signal : AbortSignal.any([context.signal, shut.signal]);
  return { ...onStore(context, gatedStore(context.store, gate)), signal };
}
