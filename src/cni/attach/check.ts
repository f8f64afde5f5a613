// Implements CHECK: the endpoint is stored for this container, the pod has its interface with every address and a route via
// the gateway, and the host has its interface and routes.
import { type NetworkNamespace, openRtnetlink, type Rtnetlink } from "../../kernel/index.ts";
import { hostCidr, type IpNetwork, ipVersion, tryParseNetwork } from "../../lib/ip/ip.ts";
import { callOptions, type CniContext } from "../context.ts";
import { usesGrpcDataplane } from "../request/dataplane-options.ts";
import { findEndpoint, type WorkloadEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import { hostInterfaceName, mayRunVirtualMachine } from "../request/identity.ts";
import { ipamPluginCheck } from "../ipam/ipam-plugin.ts";
import { parseResult } from "../request/result.ts";

export async function check(context: CniContext): Promise<void> {
  const { store, identity, conf } = context;
  const found = await findEndpoint(store, identity, callOptions(context));
  if (found === undefined) throw broken(`there is no workload endpoint for ${describe(context)}`);
  const containerId = found.endpoint.spec.containerID ?? "";
  if (containerId !== "" && containerId !== identity.containerId)
    throw broken(`the workload endpoint of ${describe(context)} belongs to container ${containerId}`);
  await ipamPluginCheck(context);
  const networks = expectedNetworks(context, found.endpoint);
  if (usesGrpcDataplane(conf)) return; // the gRPC service has no method that checks an interface
  // Until the migration is complete, this host has no routes to the machine's addresses.
  const isMigrating =
    mayRunVirtualMachine(identity) &&
    (await (await import("../ipam/virtual-machine-addresses.ts")).isMigratingToThisPod(context, networks));
  checkInterfacePair(context, found.endpoint, { pod: networks, host: isMigrating ? [] : networks });
}

/**
 * Checks the interfaces of pod and host.
 * @param networks.pod addresses that the pod must have
 * @param networks.host addresses that the host must have routes to
 */
export function checkInterfacePair(
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

/** Returns the endpoint's addresses. They must include those of the previous result, if the runtime passes it. */
function expectedNetworks(context: CniContext, endpoint: WorkloadEndpoint): readonly IpNetwork[] {
  const stored = (endpoint.spec.ipNetworks ?? []).flatMap((text) => tryParseNetwork(text) ?? []);
  const previous = context.request.config["prevResult"];
  const previousNetworks = previous === undefined ? [] : parseResult(previous).ips.map((ip) => ip.address);
  for (const { address } of previousNetworks)
    if (!stored.some((network) => network.address === address))
      throw broken(`${address} is in the result of ADD, but not in the workload endpoint`);
  return stored;
}

function checkPod(netns: NetworkNamespace, ifName: string, networks: readonly IpNetwork[]): void {
  using pod = openRtnetlink(netns);
  const link = pod.links.get(ifName);
  if (link === undefined) throw broken(`the pod has no interface ${ifName}`);
  if (!link.isUp) throw broken(`the pod's interface ${ifName} is down`);
  const addresses = pod.addresses.list({ link: link.index });
  for (const { address } of networks) {
    if (!addresses.some((a) => a.address === address))
      throw broken(`the pod's interface ${ifName} has lost its address ${address}`);
    const version = ipVersion(address);
    const hasGatewayRoute = pod.routes
      .list({ version, table: 254, link: link.index })
      .some((route) => route.gateway !== undefined);
    if (!hasGatewayRoute) throw broken(`the pod has no IPv${version} route via its gateway on ${ifName}`);
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
      throw broken(`the host has no route to ${destination} via ${hostName}`);
  }
}

const broken = (message: string): CniError =>
  new CniError(INTERNAL, message, "delete the pod, so that it is created again");

const describe = ({ identity }: CniContext): string =>
  identity.orchestrator === "k8s" ? `pod ${identity.namespace}/${identity.pod}` : `container ${identity.containerId}`;
