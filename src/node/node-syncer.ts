// Opens the syncer of a calico-node part: on Typha if the environment names one, otherwise on the datastore.
import { createSyncer, type Datastore, type Environment, type Syncer } from "../datastore/index.ts";
import { BUILD } from "../lib/process/build.ts";
import type { Logger } from "../lib/log/log.ts";
import { BGP_PREFIXES, createTyphaSyncer, NODE_PREFIXES, typhaSettings } from "../typha/index.ts";

const PREFIXES = {
  bgp: BGP_PREFIXES,
  "tunnel-ip-allocation": NODE_PREFIXES,
  "node-status": NODE_PREFIXES,
} as const;

export async function openNodeSyncer(
  syncer: keyof typeof PREFIXES,
  options: {
    readonly env: Environment;
    readonly store: Datastore;
    readonly node: string;
    readonly log: Logger;
    readonly usePodCidr?: boolean;
  },
): Promise<Syncer> {
  const { env, store, node, log, usePodCidr = false } = options;
  const settings = typhaSettings(env, PREFIXES[syncer]);
  if (settings !== undefined)
    return createTyphaSyncer({
      settings,
      syncer,
      hostname: node,
      info: syncer,
      version: BUILD.version,
      log,
      env,
      onlyOwnHost: true,
    });
  return createSyncer(syncer, store, { hostname: node, usePodCidr, log: log.with({ syncer }) });
}
