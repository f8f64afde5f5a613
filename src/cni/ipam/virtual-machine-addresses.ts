// Assigns and releases the addresses of a pod that runs a virtual machine. The addresses belong to the machine's handle, not to
// the pod's: the next pod of the machine uses them again, and they are released when the machine is deleted. Each address
// records its active owner, the pod in which the machine runs, and during a migration its alternate owner, the target pod.
// Felix swaps the two when the migration is complete.
import {
  ATTRIBUTE,
  HandleLimitReached,
  InCooldown,
  isMachineHandle,
  machineHandle,
  NotAssigned,
  type OwnedAddress,
  type OwnerAttributes,
  type ReleaseRequest,
  StaleRelease,
} from "../../ipam/index.ts";
import { hostCidr, type IpAddress, type IpNetwork, ipVersion } from "../../lib/ip/ip.ts";
import type { IpamConfig, Labels } from "../../model/index.ts";
import { callOptions, type IpamContext } from "../context.ts";
import { getEndpoint, isOfNewerContainer } from "../attach/endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import { lockAddresses } from "./host-lock.ts";
import type { EndpointIdentity } from "../request/identity.ts";
import { type Assigned, containerHandleOptions, type HandleOptions, type IpamRequest } from "./pool-addresses.ts";
import { type Machine, findEndingPodMachine, findPodMachine } from "./virtual-machine.ts";
import { resultOf } from "../request/result.ts";

/** Another pod of the machine may get an address at the same time; the assignment is then repeated. */
const ATTEMPTS = 3;

/** Assigns addresses to a handle; by default to that of the container. */
type Assign = (request: IpamRequest, handle?: HandleOptions) => Promise<Assigned>;

export async function assignMachineAddresses(
  context: IpamContext,
  request: IpamRequest,
  assign: Assign,
): Promise<Assigned> {
  const machine = await findPodMachine(context);
  if (machine === undefined) return assign(request);
  if (!persists(await context.ipam.config(context.signal))) {
    if (machine.migrationUid === undefined) return assign(request);
    throw new CniError(
      INTERNAL,
      `${describe(context, machine)} cannot migrate: it would not keep its addresses, because kubeVirtVMAddressPersistence is Disabled`,
      "calicoctl ipam configure --kubevirt-ip-persistence=Enabled",
    );
  }
  const handle = machineHandleOptions(context, machine);
  if (machine.migrationUid !== undefined) return useAddressesOfSource(context, request, machine, handle);
  for (let attempt = 1; ; attempt++)
    try {
      const held = await setOwners(context, handle.handleId, (owners) => ({ ...owners, active: handle.attributes }));
      return await assignMissing(context, request, machine, { held, assign: (part) => assign(part, handle) });
    } catch (error) {
      if (!(error instanceof HandleLimitReached) || attempt === ATTEMPTS) throw error;
    }
}

const setOwners = (context: IpamContext, handleId: string, change: (owners: OwnerAttributes) => OwnerAttributes) =>
  lockAddresses(context, () => context.ipam.updateOwnerAttributes(handleId, change, context.signal));

/** Returns the machine's addresses. If it lacks an address of a requested family, one is assigned. */
async function assignMissing(
  context: IpamContext,
  request: IpamRequest,
  machine: Machine,
  {
    held,
    assign,
  }: { readonly held: readonly OwnedAddress[]; readonly assign: (part: IpamRequest) => Promise<Assigned> },
): Promise<Assigned> {
  if (held.length === 0) return assign(request);
  const { ip, settings } = request;
  if (ip !== undefined) {
    const ofFamily = held.find(({ address }) => ipVersion(address) === ipVersion(ip));
    if (ofFamily === undefined) return assign({ ip, settings });
    return resultOf([hostCidr(requireHeld(context, machine, held, ip))]);
  }
  const lacks = (version: 4 | 6): boolean => held.every(({ address }) => ipVersion(address) !== version);
  const assignIpv4 = settings.assignIpv4 && lacks(4);
  const assignIpv6 = settings.assignIpv6 && lacks(6);
  const kept = resultOf(held.map(({ address }) => hostCidr(address)));
  if (!assignIpv4 && !assignIpv6) return kept;
  const fresh = await assign({ settings: { ...settings, assignIpv4, assignIpv6 } });
  const [first, second] = assignIpv4 ? [fresh, kept] : [kept, fresh];
  return {
    interfaces: [],
    ips: [...first.ips, ...second.ips],
    routes: [...first.routes, ...second.routes],
  };
}

/** The target pod of a migration has the same addresses as the source pod. This host has no routes to them until the migration is complete. */
async function useAddressesOfSource(
  context: IpamContext,
  request: IpamRequest,
  machine: Machine,
  handle: HandleOptions,
): Promise<Assigned> {
  const held = await setOwners(context, handle.handleId, (owners) => ({ ...owners, alternate: handle.attributes }));
  if (held.length === 0)
    throw new CniError(
      INTERNAL,
      `${describe(context, machine)} cannot migrate: handle ${handle.handleId} has no addresses`,
      "if the machine was started without address persistence, restart it",
    );
  const addresses = request.ip === undefined ? held : [{ address: requireHeld(context, machine, held, request.ip) }];
  return { ...resultOf(addresses.map(({ address }) => hostCidr(address))), routes: [], isMigrating: true };
}

/** Returns the requested address if the machine has it, and throws otherwise. */
function requireHeld(context: IpamContext, machine: Machine, held: readonly OwnedAddress[], ip: IpAddress): IpAddress {
  if (held.some(({ address }) => address === ip)) return ip;
  throw new CniError(
    INTERNAL,
    `${describe(context, machine)} has ${held.map(({ address }) => address).join(", ")}; it cannot get ${ip}`,
    "stop the machine and release its addresses (calicoctl ipam release), or request the address that it has",
  );
}

function machineHandleOptions(context: IpamContext, machine: Machine): HandleOptions {
  const { conf, identity } = context;
  const { name, instanceUid, machineUid, migrationUid } = machine;
  return {
    handleId: machineHandle(conf.name, identity.namespace, name),
    attributes: {
      ...containerHandleOptions(context).attributes,
      [ATTRIBUTE.vmiName]: name,
      [ATTRIBUTE.vmiUid]: instanceUid,
      ...(machineUid === undefined ? {} : { [ATTRIBUTE.vmUid]: machineUid }),
      ...(migrationUid === undefined ? {} : { [ATTRIBUTE.vmimUid]: migrationUid }),
    },
    maxPerHandle: 1,
  };
}

/**
 * Removes the pod from the owners of the machine's addresses. Releases the addresses if they have no owner then and the machine
 * is being deleted. A pod that becomes their owner at the same time keeps them.
 */
export async function removeFromOwners(context: IpamContext): Promise<void> {
  const { conf, identity, ipam, signal } = context;
  const machine = await findEndingPodMachine(context);
  if (machine === undefined) return;
  // Owners are recorded by pod. If the pod has a newer container, it stays an owner.
  const endpoint = await getEndpoint(context.store, identity, callOptions(context));
  if (endpoint !== undefined && isOfNewerContainer(endpoint, identity)) return;
  const handleId = machineHandle(conf.name, identity.namespace, machine.name);
  await lockAddresses(context, async () => {
    const unlessThisPod = (labels: Labels | undefined) => (isThisPod(identity, labels) ? undefined : labels);
    const held = await ipam.updateOwnerAttributes(
      handleId,
      ({ active, alternate }) => ({ active: unlessThisPod(active), alternate: unlessThisPod(alternate) }),
      signal,
    );
    if (held.length === 0 || held.some(isOwned)) return;
    if (!machine.isEnding && persists(await ipam.config(signal))) return;
    const requests = held.map(({ address }): ReleaseRequest => ({ address, handleId, requireNoOwner: true }));
    const { error } = await ipam.release(requests, signal);
    if (error !== undefined && !(error instanceof StaleRelease)) throw error;
  });
}

/** True if this pod is the target of a migration that is not complete: the machine still runs on another host. */
export async function isMigratingToThisPod(context: IpamContext, networks: readonly IpNetwork[]): Promise<boolean> {
  for (const { address } of networks)
    try {
      const { handleId = "", alternateAttributes } = await context.ipam.allocationOf(address, context.signal);
      if (isMachineHandle(context.conf.name, handleId) && isThisPod(context.identity, alternateAttributes)) return true;
    } catch (error) {
      if (!(error instanceof NotAssigned || error instanceof InCooldown)) throw error;
    }
  return false;
}

const persists = ({ kubeVirtVmAddressPersistence }: IpamConfig): boolean => kubeVirtVmAddressPersistence !== "Disabled";

const isThisPod = ({ namespace, pod }: EndpointIdentity, labels: Labels | undefined): boolean =>
  labels?.[ATTRIBUTE.pod] === pod && labels[ATTRIBUTE.namespace] === namespace;

const isOwned = ({ active = {}, alternate = {} }: OwnerAttributes): boolean =>
  Object.keys(active).length + Object.keys(alternate).length > 0;

const describe = ({ identity }: IpamContext, { name }: Machine): string => `machine ${identity.namespace}/${name}`;
