// What only the native API (custom resources of group projectcalico.org) needs: there nobody stands between a user's
// kubectl and what is stored, so rules that a client would keep are kept afterwards.
import type { Datastore, KubeApi } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import type { Logger } from "../../lib/log.ts";
import { API_VERSION } from "../../model/index.ts";
import { PoolConditions } from "./pool-controller.ts";
import { TierGuard } from "./tier-controller.ts";

export function startNative(
  parts: { readonly store: Datastore; readonly api: KubeApi; readonly log: Logger },
  signal: AbortSignal,
): Promise<void>[] {
  const { store, api, log } = parts;
  if (!isNative(store)) return [];
  const ipam = new Ipam({ datastore: store, log });
  return [new PoolConditions({ api, ipam, log }).run(signal), new TierGuard({ api, log }).run(signal)];
}

const isNative = (store: Datastore): boolean =>
  "apiGroup" in store && (store as { readonly apiGroup: unknown }).apiGroup === API_VERSION;
