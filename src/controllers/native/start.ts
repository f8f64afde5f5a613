// Starts the controllers for the native API (custom resources of group projectcalico.org). With this API, kubectl stores objects
// without the checks of Calico's client, so these controllers enforce the rules afterwards.
import type { Datastore, KubeApi } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { API_VERSION } from "../../model/index.ts";
import { PoolConditions } from "./pool-controller.ts";
import { TierFinalizer } from "./tier-controller.ts";

export function startNative(
  parts: { readonly store: Datastore; readonly api: KubeApi; readonly log: Logger },
  signal: AbortSignal,
): Promise<void>[] {
  const { store, api, log } = parts;
  if (!isNative(store)) return [];
  const ipam = new Ipam({ datastore: store, log });
  return [new PoolConditions({ api, ipam, log }).run(signal), new TierFinalizer({ api, log }).run(signal)];
}

const isNative = (store: Datastore): boolean =>
  "apiGroup" in store && (store as { readonly apiGroup: unknown }).apiGroup === API_VERSION;
