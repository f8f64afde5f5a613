// Assigns the addresses of an ADD: those that the pod's author chose, or any. Every ADD of a pod gives new addresses, because
// they belong to the container; the old container's addresses are released by its own DEL.
import { containerHandle, type ExtraWrites, StaleRelease, UnknownHandle } from "../../ipam/index.ts";
import { type IpAddress, tryParseCidr } from "../../lib/ip/ip.ts";
import type { CniContext } from "../context.ts";
import type { StoredEndpoint } from "../attach/endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import { mayRunVirtualMachine } from "../request/identity.ts";
import { CALICO_IPAM, ipamAdd, requireAddresses } from "./delegation.ts";
import type { Assigned } from "./pool-addresses.ts";
import { type CniResult, hostNetwork } from "../request/result.ts";
import type { Workload } from "../attach/workload.ts";

/** @param extraWrites done with the addresses in one transaction, where IPAM chooses them */
export async function assignTo(
  context: CniContext,
  { ipam, ipAddrs, ipAddrsNoIpam }: Workload,
  existing: StoredEndpoint | undefined,
  extraWrites: ExtraWrites | undefined,
): Promise<Assigned> {
  const { conf, identity } = context;
  if (ipAddrs === undefined && ipAddrsNoIpam === undefined)
    return requireAddresses(await ipamAdd(context, ipam, { extraWrites }), identity.orchestrator);
  if (conf.ipam.type !== CALICO_IPAM)
    throw new CniError(
      INTERNAL,
      `a pod that names its addresses needs ipam.type ${CALICO_IPAM}, not ${conf.ipam.type}`,
    );
  if (ipAddrsNoIpam !== undefined) {
    if (!conf.features.ipAddrsNoIpam)
      throw new CniError(INTERNAL, "requested feature is not enabled: ip_addrs_no_ipam");
    return withoutRoutes(ipAddrsNoIpam);
  }
  if (existing !== undefined) await releaseAddressesOf(context, existing);
  let isStillElsewhere = false;
  let handleCount = 0;
  for (const ip of ipAddrs ?? [])
    try {
      const given = await ipamAdd(context, ipam, { ip });
      isStillElsewhere ||= given.isStillElsewhere === true;
      handleCount = given.handleCount ?? 0;
    } catch (error) {
      const reason = error instanceof Error ? error.message : error;
      throw new CniError(INTERNAL, `error getting IP from IPAM: ${reason}`, undefined, { cause: error });
    }
  return { ...withoutRoutes(ipAddrs ?? []), isStillElsewhere, handleCount };
}

const withoutRoutes = (addresses: readonly IpAddress[]): CniResult => ({
  interfaces: [],
  ips: addresses.map((address) => ({ address: hostNetwork({ address, length: 0 }) })),
  routes: [],
});

/**
 * Releases the addresses that the pod's last container still holds; otherwise they would count as taken. In the Kubernetes
 * datastore the endpoint's addresses and container ID come from the pod, whose annotations its author writes: only
 * allocations whose attributes name this pod are released.
 */
async function releaseAddressesOf(context: CniContext, { endpoint }: StoredEndpoint): Promise<void> {
  const { conf, identity, ipam, log, signal } = context;
  const owner = { namespace: identity.namespace, pod: identity.pod };
  try {
    if (mayRunVirtualMachine(identity)) {
      // By handle, not by address: a virtual machine keeps its own addresses.
      await ipam.releaseByHandleWith(containerHandle(conf.name, endpoint.spec.containerID ?? ""), { owner }, signal);
      return;
    }
    const addresses = (endpoint.spec.ipNetworks ?? []).flatMap((text) => tryParseCidr(text)?.split("/")[0] ?? []);
    if (addresses.length === 0) return;
    const requests = addresses.map((address) => ({ address: address as IpAddress, owner }));
    const { error } = await ipam.release(requests, signal);
    if (error !== undefined) throw error;
  } catch (error) {
    if (error instanceof UnknownHandle) return;
    if (!(error instanceof StaleRelease)) throw error;
    log.warn("did not release an address that the pod's endpoint names: it belongs to another workload", { error });
  }
}
