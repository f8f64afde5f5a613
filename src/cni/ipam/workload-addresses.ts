// Assigns the addresses of a workload: those that the pod's annotations request, or any. Layers: this file decides which
// addresses; `ipam-plugin.ts` selects the IPAM plugin; `pool-addresses.ts` is `calico-ipam`, which assigns from Calico's pools.
//
// Every ADD of a pod assigns new addresses, because they belong to the container. The previous container's addresses are
// released by its own DEL.
import {
  containerHandle,
  type ExtraWrites,
  type ReleaseRequest,
  StaleRelease,
  UnknownHandle,
} from "../../ipam/index.ts";
import { type IpAddress, tryParseCidr } from "../../lib/ip/ip.ts";
import type { CniContext } from "../context.ts";
import type { StoredEndpoint } from "../attach/endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import { mayRunVirtualMachine } from "../request/identity.ts";
import { CALICO_IPAM, ipamPluginAdd, requireAddresses } from "./ipam-plugin.ts";
import type { Assigned } from "./pool-addresses.ts";
import { type CniResult, hostNetwork } from "../request/result.ts";
import type { Workload } from "../attach/workload.ts";

/** @param extraWrites written with the addresses in one transaction, if IPAM chooses the addresses */
export async function assignWorkloadAddresses(
  context: CniContext,
  { ipam, ipAddrs, ipAddrsNoIpam }: Workload,
  existing: StoredEndpoint | undefined,
  extraWrites: ExtraWrites | undefined,
): Promise<Assigned> {
  const { conf, identity } = context;
  if (ipAddrs === undefined && ipAddrsNoIpam === undefined)
    return requireAddresses(await ipamPluginAdd(context, ipam, { extraWrites }), identity.orchestrator);
  if (conf.ipam.type !== CALICO_IPAM)
    throw new CniError(
      INTERNAL,
      `the pod's annotation for fixed addresses requires ipam.type ${CALICO_IPAM}, not ${conf.ipam.type}`,
    );
  if (ipAddrsNoIpam !== undefined) {
    if (!conf.features.ipAddrsNoIpam)
      throw new CniError(INTERNAL, "requested feature is not enabled: ip_addrs_no_ipam");
    return withoutRoutes(ipAddrsNoIpam);
  }
  if (existing !== undefined) await releaseEndpointAddresses(context, existing);
  let isMigrating = false;
  let handleCount = 0;
  for (const ip of ipAddrs ?? [])
    try {
      const assigned = await ipamPluginAdd(context, ipam, { ip });
      isMigrating ||= assigned.isMigrating === true;
      handleCount = assigned.handleCount ?? 0;
    } catch (error) {
      const reason = error instanceof Error ? error.message : error;
      throw new CniError(INTERNAL, `error getting IP from IPAM: ${reason}`, undefined, { cause: error });
    }
  return { ...withoutRoutes(ipAddrs ?? []), isMigrating, handleCount };
}

const withoutRoutes = (addresses: readonly IpAddress[]): CniResult => ({
  interfaces: [],
  ips: addresses.map((address) => ({ address: hostNetwork({ address, length: 0 }) })),
  routes: [],
});

/**
 * Releases the addresses that the pod's previous container still has, so that they can be assigned again. In the Kubernetes
 * datastore the endpoint's addresses and container ID come from the pod's annotations, which its author can write. Therefore
 * only allocations whose attributes name this pod are released.
 */
async function releaseEndpointAddresses(context: CniContext, { endpoint }: StoredEndpoint): Promise<void> {
  const { conf, identity, ipam, log, signal } = context;
  const expectedPod = { namespace: identity.namespace, pod: identity.pod };
  try {
    if (mayRunVirtualMachine(identity)) {
      // By handle, not by address: a virtual machine keeps its own addresses.
      const handleId = containerHandle(conf.name, endpoint.spec.containerID ?? "");
      await ipam.releaseByHandleWith(handleId, { expectedPod }, signal);
      return;
    }
    const addresses = (endpoint.spec.ipNetworks ?? []).flatMap((text) => tryParseCidr(text)?.split("/")[0] ?? []);
    if (addresses.length === 0) return;
    const requests = addresses.map((address): ReleaseRequest => ({ address: address as IpAddress, expectedPod }));
    const { error } = await ipam.release(requests, signal);
    if (error !== undefined) throw error;
  } catch (error) {
    if (error instanceof UnknownHandle) return;
    if (!(error instanceof StaleRelease)) throw error;
    log.warn("did not release the addresses of the pod's endpoint: one belongs to another workload", { error });
  }
}
