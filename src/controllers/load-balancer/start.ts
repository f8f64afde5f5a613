// The addresses of services with what they need.
import { type Datastore, Informer, type KubeApi } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { RunningConfig } from "../configuration.ts";
import type { Feed } from "../feed.ts";
import { LoadBalancerAddresses } from "./controller.ts";
import { serviceFacts } from "./wanted.ts";

export function startLoadBalancer(
  parts: {
    readonly config: RunningConfig;
    readonly feed: Feed;
    readonly usePodCidr: boolean;
    readonly store: Datastore;
    readonly api: KubeApi;
    readonly log: Logger;
  },
  signal: AbortSignal,
): Promise<void>[] {
  const { config, feed, usePodCidr, store, api, log } = parts;
  if (config.loadBalancer === undefined) return [];
  if (usePodCidr) {
    log.info("addresses come from the nodes' pod CIDRs: services get none from us");
    return [];
  }
  const services = new Informer({ api, path: "/api/v1/services", keep: serviceFacts, log });
  const ipam = new Ipam({ datastore: store, log });
  const { assignIPs } = config.loadBalancer;
  const controller = new LoadBalancerAddresses({ api, services, feed, ipam, assignIPs, log });
  return [controller.run(signal), services.run(signal)];
}
