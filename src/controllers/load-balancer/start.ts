// The addresses of services with what they need.
import type { Datastore, KubeApi } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { RunningConfig } from "../configuration.ts";
import type { Feed } from "../feed.ts";
import { Informer } from "../informer.ts";
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
  const path = "/api/v1/services";
  const services = new Informer({
    api,
    path,
    keep: serviceFacts,
    onFailure: (error) => log.warn("cannot follow objects of Kubernetes; trying again", { path, error }),
  });
  const ipam = new Ipam({ datastore: store, log });
  const { assignIPs } = config.loadBalancer;
  const controller = new LoadBalancerAddresses({ api, services, feed, ipam, assignIPs, log });
  return [controller.run(signal), services.run(signal)];
}
