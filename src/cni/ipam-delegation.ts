// Where a container's addresses come from: Calico's pools, in this very process, or another IPAM plugin.
import type { IpAddress } from "../lib/ip.ts";
import type { CniContext } from "./context.ts";
import { CniError, INTERNAL } from "./error.ts";
import { withAnyCidrs, withPodCidrs } from "./host-local.ts";
import { assignAddresses, releaseAddresses } from "./ipam-plugin.ts";
import type { IpamSettings } from "./net-conf.ts";
import type { CniResult } from "./result.ts";

export const CALICO_IPAM = "calico-ipam";
/** Loaded only when another plugin is called: starting processes is a module of its own. */
const delegation = () => import("./delegate.ts");

/** @param ip exactly this address instead of any */
export async function ipamAdd(context: CniContext, settings: IpamSettings, ip?: IpAddress): Promise<CniResult> {
  const { conf, request, identity } = context;
  if (conf.ipam.type === CALICO_IPAM) {
    const wanted = ip ?? request.args.ip;
    return assignAddresses(context, { settings, ...(wanted === undefined ? {} : { ip: wanted }) });
  }
  if (conf.ipam.type !== "host-local") return (await delegation()).delegateAdd(request, conf.ipam.type, request.config);
  const node = conf.kubernetes.nodeName || identity.node;
  const config = await withPodCidrs(request.config, node, context.kubernetes);
  return (await delegation()).delegateAdd(request, conf.ipam.type, config);
}

/** Gives everything of the container back; having nothing is fine. */
export async function ipamDel(context: CniContext, signal?: AbortSignal): Promise<void> {
  const { conf, request } = context;
  if (conf.ipam.type === CALICO_IPAM) return releaseAddresses(context, signal);
  const config = conf.ipam.type === "host-local" ? withAnyCidrs(request.config) : request.config;
  await (await delegation()).delegateDel(request, conf.ipam.type, config);
}

export function requireAddresses(result: CniResult, orchestrator: "k8s" | "cni"): CniResult {
  if (result.ips.length > 0) return result;
  throw new CniError(
    INTERNAL,
    orchestrator === "k8s"
      ? "IPAM plugin returned missing IP config"
      : "IPAM plugin returned no IP addresses in result",
  );
}
