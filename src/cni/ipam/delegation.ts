// Assigns and releases addresses: from Calico's pools in this process, or by another IPAM plugin.
import type { ExtraWrites } from "../../ipam/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import type { CniContext } from "../context.ts";
import { CniError, INTERNAL } from "../error.ts";
import { withAnyCidrs, withPodCidrs } from "./host-local.ts";
import { type Assigned, assignAddresses, releaseAddresses } from "./pool-addresses.ts";
import type { IpamSettings } from "../request/net-conf.ts";
import type { JsonObject } from "../request/request.ts";

export const CALICO_IPAM = "calico-ipam";
const AZURE_IPAM = "azure-vnet-ipam";
/** Loaded only when another plugin is called: starting processes is a module of its own. */
const delegation = () => import("./call-plugin.ts");
const azureState = async ({ conf, request }: CniContext) =>
  new (await import("./azure-ipam.ts")).AzureState(conf.name, request);

/**
 * @param wish.ip exactly this address
 * @param wish.extraWrites written with the addresses, in one transaction if possible
 */
export async function ipamAdd(
  context: CniContext,
  settings: IpamSettings,
  wish: { readonly ip?: IpAddress; readonly extraWrites?: ExtraWrites } = {},
): Promise<Assigned> {
  const { conf, request, identity } = context;
  if (conf.ipam.type === CALICO_IPAM) {
    const ip = wish.ip ?? request.args.ip;
    return assignAddresses(context, { settings, extraWrites: wish.extraWrites, ip });
  }
  if (conf.ipam.type === AZURE_IPAM) return azureAdd(context);
  if (conf.ipam.type !== "host-local") return (await delegation()).delegateAdd(request, conf.ipam.type, request.config);
  const node = conf.kubernetes.nodeName || identity.node;
  const config = await withPodCidrs(request.config, node, context.kubernetes);
  return (await delegation()).delegateAdd(request, conf.ipam.type, config);
}

/** Releases all addresses of the container; having none is not an error. */
export async function ipamDel(context: CniContext): Promise<void> {
  const { conf, request } = context;
  if (conf.ipam.type === CALICO_IPAM) return void (await releaseAddresses(context));
  const azure = conf.ipam.type === AZURE_IPAM ? await azureState(context) : undefined;
  const config = azure === undefined ? withoutNode(request.config, conf.ipam.type) : azure.configForDel();
  if (config === undefined) return; // it was given nothing here
  await (await delegation()).delegateDel(request, conf.ipam.type, config);
  azure?.forget();
}

/** Asks another plugin whether the container still has what it gave; ours is asked by the endpoint's addresses. */
export async function ipamCheck(context: CniContext): Promise<void> {
  const { conf, request } = context;
  if (conf.ipam.type === CALICO_IPAM || conf.ipam.type === "") return;
  const known = conf.ipam.type === AZURE_IPAM ? (await azureState(context)).configForDel() : undefined;
  const config = known ?? withoutNode(request.config, conf.ipam.type);
  await (await delegation()).delegateCheck(request, conf.ipam.type, config);
}

/** What must be known of the node for an ADD need not be for the rest. */
const withoutNode = (config: JsonObject, plugin: string): JsonObject =>
  plugin === "host-local" ? withAnyCidrs(config) : config;

/** An address that cannot be remembered could never be released. */
async function azureAdd(context: CniContext): Promise<Assigned> {
  const { request } = context;
  const state = await azureState(context);
  const { delegateAdd, delegateDel } = await delegation();
  const result = await delegateAdd(request, AZURE_IPAM, state.configForAdd());
  try {
    state.store(result);
  } catch (error) {
    await delegateDel(request, AZURE_IPAM, state.configFor(result)).catch(() => {}); // what came first is said
    throw error;
  }
  return result;
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
