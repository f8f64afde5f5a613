// What the parts of a node follow the cluster by: a Typha when the environment names one, else the datastore itself.
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
  given: {
    readonly env: Environment;
    readonly store: Datastore;
    readonly node: string;
    readonly log: Logger;
    readonly usePodCidr?: boolean;
  },
): Promise<Syncer> {
  const { env, store, node, log, usePodCidr = false } = given;
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
      onlyOwn: true,
    });
  return createSyncer(syncer, store, { hostname: node, usePodCidr, log: log.with({ syncer }) });
}
