// Calls the configured IPAM plugin: `calico-ipam` in this process, every other plugin as a program.
import type { ExtraWrites } from "../../ipam/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import type { CniContext } from "../context.ts";
import { CniError, INTERNAL } from "../error.ts";
import { withAnyCidrs, withPodCidrs } from "./host-local.ts";
import { type Assigned, assignPoolAddresses, releasePoolAddresses } from "./pool-addresses.ts";
import type { IpamSettings } from "../request/net-conf.ts";
import type { JsonObject } from "../request/request.ts";

export const CALICO_IPAM = "calico-ipam";
const AZURE_IPAM = "azure-vnet-ipam";
/** Loaded only if another plugin is called, because loading code delays every pod start. */
const callPlugin = () => import("./call-plugin.ts");
const azureState = async ({ conf, request }: CniContext) =>
  new (await import("./azure-ipam.ts")).AzureState(conf.name, request);

/**
 * @param options.ip assign exactly this address
 * @param options.extraWrites written with the addresses, in one transaction if possible
 */
export async function ipamPluginAdd(
  context: CniContext,
  settings: IpamSettings,
  options: { readonly ip?: IpAddress; readonly extraWrites?: ExtraWrites } = {},
): Promise<Assigned> {
  const { conf, request, identity } = context;
  if (conf.ipam.type === CALICO_IPAM) {
    const ip = options.ip ?? request.args.ip;
    return assignPoolAddresses(context, { settings, extraWrites: options.extraWrites, ip });
  }
  if (conf.ipam.type === AZURE_IPAM) return azureAdd(context);
  if (conf.ipam.type !== "host-local") return (await callPlugin()).delegateAdd(request, conf.ipam.type, request.config);
  const node = conf.kubernetes.nodeName || identity.node;
  const config = await withPodCidrs(request.config, node, context.kubernetes);
  return (await callPlugin()).delegateAdd(request, conf.ipam.type, config);
}

/** Releases all addresses of the container. It is not an error if it has none. */
export async function ipamPluginDel(context: CniContext): Promise<void> {
  const { conf, request } = context;
  if (conf.ipam.type === CALICO_IPAM) return void (await releasePoolAddresses(context));
  const azure = conf.ipam.type === AZURE_IPAM ? await azureState(context) : undefined;
  const config = azure === undefined ? withoutNode(request.config, conf.ipam.type) : azure.configForDel();
  if (config === undefined) return; // no address was assigned to it on this node
  await (await callPlugin()).delegateDel(request, conf.ipam.type, config);
  azure?.delete();
}

/** Runs CHECK of another IPAM plugin. For `calico-ipam`, the caller compares the endpoint's addresses. */
export async function ipamPluginCheck(context: CniContext): Promise<void> {
  const { conf, request } = context;
  if (conf.ipam.type === CALICO_IPAM || conf.ipam.type === "") return;
  const known = conf.ipam.type === AZURE_IPAM ? (await azureState(context)).configForDel() : undefined;
  const config = known ?? withoutNode(request.config, conf.ipam.type);
  await (await callPlugin()).delegateCheck(request, conf.ipam.type, config);
}

/** DEL and CHECK do not need the node's pod CIDRs. */
const withoutNode = (config: JsonObject, plugin: string): JsonObject =>
  plugin === "host-local" ? withAnyCidrs(config) : config;

/** If the assigned address cannot be stored, it is released immediately; a later DEL could not release it. */
async function azureAdd(context: CniContext): Promise<Assigned> {
  const { request } = context;
  const state = await azureState(context);
  const { delegateAdd, delegateDel } = await callPlugin();
  const result = await delegateAdd(request, AZURE_IPAM, state.configForAdd());
  try {
    state.store(result);
  } catch (error) {
    await delegateDel(request, AZURE_IPAM, state.configFor(result)).catch(() => {}); // the first error is reported
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
