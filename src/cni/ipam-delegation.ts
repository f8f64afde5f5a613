// Where a container's addresses come from: Calico's pools, in this very process, or another IPAM plugin.
import type { Also } from "../ipam/index.ts";
import type { IpAddress } from "../lib/ip.ts";
import type { CniContext } from "./context.ts";
import { CniError, INTERNAL } from "./error.ts";
import { withAnyCidrs, withPodCidrs } from "./host-local.ts";
import { type Assigned, assignAddresses, releaseAddresses } from "./ipam-plugin.ts";
import type { IpamSettings } from "./net-conf.ts";

export const CALICO_IPAM = "calico-ipam";
/** Loaded only when another plugin is called: starting processes is a module of its own. */
const delegation = () => import("./delegate.ts");

/** @param wish.ip exactly this address instead of any; wish.also to be stored with the addresses, where that can be */
export async function ipamAdd(
  context: CniContext,
  settings: IpamSettings,
  wish: { readonly ip?: IpAddress; readonly also?: Also | undefined } = {},
): Promise<Assigned> {
  const { conf, request, identity } = context;
  if (conf.ipam.type === CALICO_IPAM) {
    const ip = wish.ip ?? request.args.ip;
    const { also } = wish;
    return assignAddresses(context, {
      settings,
      ...(ip === undefined ? {} : { ip }),
      ...(also === undefined ? {} : { also }),
    });
  }
  if (conf.ipam.type !== "host-local") return (await delegation()).delegateAdd(request, conf.ipam.type, request.config);
  const node = conf.kubernetes.nodeName || identity.node;
  const config = await withPodCidrs(request.config, node, context.kubernetes);
  return (await delegation()).delegateAdd(request, conf.ipam.type, config);
}

/** Gives everything of the container back; having nothing is fine. */
export async function ipamDel(context: CniContext, signal?: AbortSignal): Promise<void> {
  const { conf, request } = context;
  if (conf.ipam.type === CALICO_IPAM) return void (await releaseAddresses(context, signal));
  const config = conf.ipam.type === "host-local" ? withAnyCidrs(request.config) : request.config;
  await (await delegation()).delegateDel(request, conf.ipam.type, config);
}

export function requireAddresses(result: Assigned, orchestrator: "k8s" | "cni"): Assigned {
  if (result.ips.length > 0) return result;
  throw new CniError(
    INTERNAL,
    orchestrator === "k8s"
      ? "IPAM plugin returned missing IP config"
      : "IPAM plugin returned no IP addresses in result",
  );
}
