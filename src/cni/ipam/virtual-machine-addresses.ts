// Addresses of a pod that runs a virtual machine. They are the machine's, not the pod's: held under its name, reused by
// whichever pod runs it next, and free when it is gone for good. Beside each stands who uses it: the pod the machine runs
// in as active owner, and while it moves the pod it goes to as alternate one, which the node agent swaps on arrival.
import {
  ATTRIBUTE,
  HandleLimitReached,
  InCooldown,
  isMachineHandle,
  machineHandle,
  NotAssigned,
  type OwnedAddress,
  type Owners,
  StaleRelease,
} from "../../ipam/index.ts";
import { hostCidr, type IpAddress, type IpNetwork, ipVersion } from "../../lib/ip/ip.ts";
import type { IpamConfig, Labels } from "../../model/index.ts";
import { callOptions, type IpamContext } from "../context.ts";
import { getEndpoint, isOfNewerContainer } from "../attach/endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import { lockAddresses } from "./host-lock.ts";
import type { EndpointIdentity } from "../request/identity.ts";
import { type Assigned, containerHolder, type Holder, type IpamRequest } from "./pool-addresses.ts";
import { type Machine, machineLeft, machineOf } from "./virtual-machine.ts";
import { resultOf } from "../request/result.ts";

/** Another pod of the machine may come in between: so often we look again. */
const ATTEMPTS = 3;

/** Gives out addresses, under the name of the container where no other is said. */
type Assign = (request: IpamRequest, holder?: Holder) => Promise<Assigned>;

export async function assignToMachine(context: IpamContext, request: IpamRequest, assign: Assign): Promise<Assigned> {
  const machine = await machineOf(context);
  if (machine === undefined) return assign(request);
  if (!persists(await context.ipam.config(context.signal))) {
    if (machine.migrationUid === undefined) return assign(request);
    throw new CniError(
      INTERNAL,
      `${describe(context, machine)} cannot move: it would not keep its addresses, kubeVirtVMAddressPersistence is Disabled`,
      "calicoctl ipam configure --kubevirt-ip-persistence=Enabled",
    );
  }
  const holder = machineHolder(context, machine);
  if (machine.migrationUid !== undefined) return arrive(context, request, machine, holder);
  for (let attempt = 1; ; attempt++)
    try {
      const held = await takeOver(context, holder.handleId, (owners) => ({ ...owners, active: holder.attributes }));
      return await withMissing(context, request, machine, { held, assign: (wanted) => assign(wanted, holder) });
    } catch (error) {
      if (!(error instanceof HandleLimitReached) || attempt === ATTEMPTS) throw error;
    }
}

const takeOver = (context: IpamContext, handleId: string, change: (owners: Owners) => Owners) =>
  lockAddresses(context, () => context.ipam.changeOwners(handleId, change, context.signal));

/** The machine's addresses, and new ones where it has none of a family that is wanted. */
async function withMissing(
  context: IpamContext,
  request: IpamRequest,
  machine: Machine,
  given: { readonly held: readonly OwnedAddress[]; readonly assign: (wanted: IpamRequest) => Promise<Assigned> },
): Promise<Assigned> {
  const { held, assign } = given;
  if (held.length === 0) return assign(request);
  const { ip, settings } = request;
  if (ip !== undefined) {
    const ofFamily = held.find(({ address }) => ipVersion(address) === ipVersion(ip));
    if (ofFamily === undefined) return assign({ ip, settings });
    return resultOf([hostCidr(named(context, machine, held, ip))]);
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

/** The pod a machine moves to has what the pod it leaves has, and nothing leads to it before the machine is there. */
async function arrive(context: IpamContext, request: IpamRequest, machine: Machine, holder: Holder): Promise<Assigned> {
  const held = await takeOver(context, holder.handleId, (owners) => ({ ...owners, alternate: holder.attributes }));
  if (held.length === 0)
    throw new CniError(
      INTERNAL,
      `${describe(context, machine)} cannot move: it has no addresses under handle ${holder.handleId}`,
      "was it started when addresses did not persist? start it anew",
    );
  const addresses = request.ip === undefined ? held : [{ address: named(context, machine, held, request.ip) }];
  return { ...resultOf(addresses.map(({ address }) => hostCidr(address))), routes: [], isStillElsewhere: true };
}

/** An address that was asked for by name, if the machine has it. */
function named(context: IpamContext, machine: Machine, held: readonly OwnedAddress[], ip: IpAddress): IpAddress {
  if (held.some(({ address }) => address === ip)) return ip;
  throw new CniError(
    INTERNAL,
    `${describe(context, machine)} keeps ${held.map(({ address }) => address).join(", ")}; it cannot be given ${ip}`,
    "stop it and release what it has (calicoctl ipam release), or ask for that",
  );
}

function machineHolder(context: IpamContext, machine: Machine): Holder {
  const { conf, identity } = context;
  const { name, instanceUid, machineUid, migrationUid } = machine;
  return {
    handleId: machineHandle(conf.name, identity.namespace, name),
    attributes: {
      ...containerHolder(context).attributes,
      [ATTRIBUTE.vmiName]: name,
      [ATTRIBUTE.vmiUid]: instanceUid,
      ...(machineUid === undefined ? {} : { [ATTRIBUTE.vmUid]: machineUid }),
      ...(migrationUid === undefined ? {} : { [ATTRIBUTE.vmimUid]: migrationUid }),
    },
    maxPerHandle: 1,
  };
}

/**
 * The pod is no owner any longer. The addresses stay the machine's while it lives; who comes in between and takes them over
 * keeps them too.
 */
export async function leaveMachine(context: IpamContext): Promise<void> {
  const { conf, identity, ipam, signal } = context;
  const machine = await machineLeft(context);
  if (machine === undefined) return;
  // Owners are noted by their pod, which may have a newer container by now.
  const endpoint = await getEndpoint(context.store, identity, callOptions(context));
  if (endpoint !== undefined && isOfNewerContainer(endpoint, identity)) return;
  const handleId = machineHandle(conf.name, identity.namespace, machine.name);
  await lockAddresses(context, async () => {
    const rest = (labels: Labels | undefined) => (isThis(identity, labels) ? undefined : labels);
    const held = await ipam.changeOwners(
      handleId,
      ({ active, alternate }) => ({ active: rest(active), alternate: rest(alternate) }),
      signal,
    );
    if (held.length === 0 || held.some(isOwned)) return;
    if (!machine.isEnding && persists(await ipam.config(signal))) return;
    const unowned = held.map(({ address }) => ({ address, handleId, onlyUnowned: true }));
    const { error } = await ipam.release(unowned, signal);
    if (error !== undefined && !(error instanceof StaleRelease)) throw error;
  });
}

/** Whether a machine still runs on another host, and is only on its way to this pod. */
export async function isOnItsWay(context: IpamContext, networks: readonly IpNetwork[]): Promise<boolean> {
  for (const { address } of networks)
    try {
      const { handleId = "", alternateAttributes } = await context.ipam.allocationOf(address, context.signal);
      if (isMachineHandle(context.conf.name, handleId) && isThis(context.identity, alternateAttributes)) return true;
    } catch (error) {
      if (!(error instanceof NotAssigned || error instanceof InCooldown)) throw error;
    }
  return false;
}

const persists = ({ kubeVirtVmAddressPersistence }: IpamConfig): boolean => kubeVirtVmAddressPersistence !== "Disabled";

const isThis = ({ namespace, pod }: EndpointIdentity, labels: Labels | undefined): boolean =>
  labels?.[ATTRIBUTE.pod] === pod && labels[ATTRIBUTE.namespace] === namespace;

const isOwned = ({ active = {}, alternate = {} }: Owners): boolean =>
  Object.keys(active).length + Object.keys(alternate).length > 0;

const describe = ({ identity }: IpamContext, { name }: Machine): string => `machine ${identity.namespace}/${name}`;
