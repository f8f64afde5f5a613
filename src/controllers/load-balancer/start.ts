// Starts the controller that assigns addresses to services.
import { type Datastore, Informer, type KubeApi } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { RunningConfig } from "../configuration.ts";
import type { DatastoreCache } from "../datastore-cache.ts";
import { LoadBalancerAddresses } from "./controller.ts";
import { serviceFacts } from "./desired.ts";

export function startLoadBalancer(
  parts: {
    readonly config: RunningConfig;
    readonly cache: DatastoreCache;
    readonly usePodCidr: boolean;
    readonly store: Datastore;
    readonly api: KubeApi;
    readonly log: Logger;
  },
  signal: AbortSignal,
): Promise<void>[] {
  const { config, cache, usePodCidr, store, api, log } = parts;
  if (config.loadBalancer === undefined) return [];
  if (usePodCidr) {
    log.info("services get no addresses, because USE_POD_CIDR is set and addresses come from the nodes' pod CIDRs");
    return [];
  }
  const services = new Informer({ api, path: "/api/v1/services", keep: serviceFacts, log });
  const ipam = new Ipam({ datastore: store, log });
  const { assignIPs } = config.loadBalancer;
  const controller = new LoadBalancerAddresses({ api, services, cache, ipam, assignIPs, log });
  return [controller.run(signal), services.run(signal)];
}
