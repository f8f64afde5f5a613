// CHECK really looks: the endpoint is stored for this container, the pod has its interface with every address and a way
// out, the host its end and its routes.
import { type NetworkNamespace, openRtnetlink, type Rtnetlink } from "../../kernel/index.ts";
import { hostCidr, type IpNetwork, ipVersion, tryParseNetwork } from "../../lib/ip/ip.ts";
import { callOptions, type CniContext } from "../context.ts";
import { isForeign } from "../request/dataplane-options.ts";
import { findEndpoint, type WorkloadEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import { hostInterfaceName, mayRunVirtualMachine } from "../request/identity.ts";
import { ipamCheck } from "../ipam/delegation.ts";
import { parseResult } from "../request/result.ts";

export async function check(context: CniContext): Promise<void> {
  const { store, identity, conf } = context;
  const found = await findEndpoint(store, identity, callOptions(context));
  if (found === undefined) throw broken(`there is no workload endpoint for ${describe(context)}`);
  const holder = found.endpoint.spec.containerID ?? "";
  if (holder !== "" && holder !== identity.containerId)
    throw broken(`the workload endpoint of ${describe(context)} belongs to container ${holder}`);
  await ipamCheck(context);
  const networks = expectedNetworks(context, found.endpoint);
  if (isForeign(conf)) return; // what such a wire looks like is known to its maker, who cannot be asked
  // To a machine that is only on its way nothing leads here yet.
  const isElsewhere =
    mayRunVirtualMachine(identity) &&
    (await (await import("../ipam/virtual-machine-addresses.ts")).isOnItsWay(context, networks));
  checkWire(context, found.endpoint, { pod: networks, host: isElsewhere ? [] : networks });
}

/**
 * The two ends and what leads to them.
 * @param networks that the pod has, and to which the host has routes
 */
export function checkWire(
  context: CniContext,
  endpoint: WorkloadEndpoint,
  networks: { readonly pod: readonly IpNetwork[]; readonly host: readonly IpNetwork[] },
): void {
  const { identity, request } = context;
  using netns = context.openNetns();
  checkPod(netns, request.ifName, networks.pod);
  using host = openRtnetlink();
  const hostName = endpoint.spec.interfaceName ?? hostInterfaceName(identity, request.interfacePrefix);
  checkHost(host, hostName, networks.host);
}

/** What ADD answered, when the runtime says; else what was stored. */
function expectedNetworks(context: CniContext, endpoint: WorkloadEndpoint): readonly IpNetwork[] {
  const stored = (endpoint.spec.ipNetworks ?? []).flatMap((text) => tryParseNetwork(text) ?? []);
  const previous = context.request.config["prevResult"];
  const answered = previous === undefined ? [] : parseResult(previous).ips.map((ip) => ip.address);
  for (const { address } of answered)
    if (!stored.some((network) => network.address === address))
      throw broken(`${address} was given to the pod but its workload endpoint does not have it`);
  return stored;
}

function checkPod(netns: NetworkNamespace, ifName: string, networks: readonly IpNetwork[]): void {
  using pod = openRtnetlink(netns);
  const link = pod.links.get(ifName);
  if (link === undefined) throw broken(`the pod has no interface ${ifName}`);
  if (!link.isUp) throw broken(`the pod's interface ${ifName} is down`);
  const addresses = pod.addresses.list({ link: link.index });
  for (const { address } of networks) {
    if (!addresses.some((a) => a.address === address)) throw broken(`the pod's ${ifName} lost its address ${address}`);
    const version = ipVersion(address);
    const hasWayOut = pod.routes
      .list({ version, table: 254, link: link.index })
      .some((route) => route.gateway !== undefined);
    if (!hasWayOut) throw broken(`the pod has no IPv${version} route by its gateway on ${ifName}`);
  }
}

function checkHost(host: Rtnetlink, hostName: string, networks: readonly IpNetwork[]): void {
  const link = host.links.get(hostName);
  if (link === undefined) throw broken(`the host has no interface ${hostName}`);
  if (!link.isUp) throw broken(`the host's interface ${hostName} is down`);
  for (const { address } of networks) {
    const destination = hostCidr(address);
    const routes = host.routes.list({ version: ipVersion(address), table: 254, link: link.index });
    if (!routes.some((route) => route.destination === destination))
      throw broken(`the host has no route to ${destination} by ${hostName}`);
  }
}

const broken = (message: string): CniError => new CniError(INTERNAL, message, "delete the pod so that it is made anew");

const describe = ({ identity }: CniContext): string =>
  identity.orchestrator === "k8s" ? `pod ${identity.namespace}/${identity.pod}` : `container ${identity.containerId}`;
