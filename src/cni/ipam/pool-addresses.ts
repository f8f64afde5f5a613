// Assigns and releases the addresses of one container from Calico's pools: the work of `calico-ipam`, called in process by
// `calico`, and as a program of its own by other plugins.
import type { Revision, Write } from "../../datastore/index.ts";
import {
  type Assignments,
  containerHandle,
  countOf,
  describeShortage,
  type ExtraWrites,
  goTimestamp,
  type HandleRelease,
  type PodOwner,
  StaleRelease,
  UnknownHandle,
} from "../../ipam/index.ts";
import {
  cidrAddress,
  type Cidr,
  hostCidr,
  type IpAddress,
  type IpVersion,
  ipVersion,
  tryParseCidr,
} from "../../lib/ip/ip.ts";
import { quote } from "../../lib/shorten.ts";
import { ignoreUnreadable, type Labels, readPool, workloadEndpointName } from "../../model/index.ts";
import { CniError, INTERNAL } from "../error.ts";
import { callOptions, type IpamContext } from "../context.ts";
import { lockAddresses } from "./host-lock.ts";
import { type EndpointIdentity, mayRunVirtualMachine, nameFields } from "../request/identity.ts";
import type { IpamSettings, NetConf } from "../request/net-conf.ts";
import { type CniResult, resultOf } from "../request/result.ts";

const RELEASE_MS = 30_000;

export interface IpamRequest {
  /** Exactly this address. */
  readonly ip?: IpAddress;
  /** With the pod's wishes over the configuration's. */
  readonly settings: IpamSettings;
  /** Written with the addresses of all families, in one transaction if possible. */
  readonly extraWrites?: ExtraWrites;
}

/** Under whose name addresses are held. */
export interface Holder {
  readonly handleId: string;
  readonly attributes: Labels;
  /** At most so many of a family. */
  readonly maxPerHandle?: number;
}

export interface Assigned extends CniResult {
  /** Another host has the addresses until the machine has moved: no route leads to them here before. */
  readonly isStillElsewhere?: boolean;
  /** The revisions of the extra writes, if they were done. */
  readonly extraRevisions?: readonly Revision[];
  /** How many addresses their handle counts, these included. It may count too many after a crash, never too few. */
  readonly handleCount?: number;
}

export async function assignAddresses(context: IpamContext, request: IpamRequest): Promise<Assigned> {
  workloadEndpointName(nameFields(context.identity)); // no addresses for a workload that cannot be named
  const holder = containerHolder(context);
  if (!mayRunVirtualMachine(context.identity)) return assign(context, request, holder);
  const { assignToMachine } = await machineAddresses();
  return assignToMachine(context, request, (wanted, machine) => assign(context, wanted, machine ?? holder));
}

/** Loaded only for pods that may run a machine. */
const machineAddresses = () => import("./virtual-machine-addresses.ts");

async function assign(context: IpamContext, request: IpamRequest, holder: Holder): Promise<Assigned> {
  const { identity, ipam, signal } = context;
  if (request.ip !== undefined) {
    const ip = request.ip;
    const handleCount = await lockAddresses(context, () =>
      ipam.assignAddress({ address: ip, host: identity.node, use: "Workload", ...holder }, signal),
    );
    return { ...resultOf([hostCidr(ip)]), handleCount };
  }
  const wanted = ([4, 6] as const).filter((v) => (v === 4 ? request.settings.assignIpv4 : request.settings.assignIpv6));
  if (wanted.length === 0) return resultOf([]);
  const pools = new Map<IpVersion, readonly Cidr[]>();
  // A pool that does not exist, or has the other family, is reported before anything is assigned, even if this pod does
  // not use that family.
  for (const version of [4, 6] as const) pools.set(version, await resolvePools(context, request, version));
  const namespaceLabels = await context.namespaceLabels();
  const assigned: Assignments[] = [];
  try {
    await lockAddresses(context, async () => {
      for (const version of wanted) {
        const before = assigned.flatMap((result) => result.addresses);
        // The extra writes belong to the last family, when all addresses are known. If a family got no address, the other
        // one is still assigned, so that a pool's addresses are used in Calico's order.
        const isComplete = version === wanted.at(-1) && before.length === assigned.length;
        const { extraWrites } = request;
        const assignment = {
          version,
          count: 1,
          host: identity.node,
          use: "Workload",
          pools: pools.get(version) ?? [],
          namespaceLabels,
          ...holder,
          handle: assigned.at(-1)?.handle,
          extraWrites:
            extraWrites && isComplete
              ? (addresses: readonly Cidr[]) => extraWrites([...before, ...addresses])
              : undefined,
        } as const;
        assigned.push(await ipam.autoAssign(assignment, signal));
      }
    });
    const short = assigned.find((result) => result.addresses.length === 0);
    if (short !== undefined)
      throw new CniError(INTERNAL, `failed to request IPv${short.version} addresses: ${describeShortage(short)}`);
  } catch (error) {
    // A virtual machine keeps its addresses: another of its pods may use them by now.
    if (holder.maxPerHandle === undefined) await releaseAssigned(context, assigned);
    throw error;
  }
  const { extraRevisions, handle } = assigned.at(-1) ?? {};
  return {
    ...resultOf(assigned.flatMap((result) => result.addresses)),
    extraRevisions,
    handleCount: handle === undefined ? undefined : countOf(handle.value),
  };
}

/**
 * Releases what the container's handle holds beyond the addresses of this ADD. Another ADD for the same container took it,
 * and no DEL followed.
 */
export async function releaseSurplus(context: IpamContext, { ips, handleCount = 0 }: Assigned): Promise<void> {
  const { conf, identity, ipam, log, signal } = context;
  if (handleCount <= ips.length || mayRunVirtualMachine(identity)) return;
  const handleId = containerHandle(conf.name, identity.containerId);
  const kept = new Set(ips.map(({ address }) => address.address));
  await lockAddresses(context, async () => {
    const surplus = (await ipam.addressesOfHandle(handleId, signal)).filter((address) => !kept.has(address));
    if (surplus.length === 0) return;
    const { error } = await ipam.release(
      surplus.map((address) => ({ address, handleId })),
      signal,
    );
    if (error !== undefined) throw error;
    log.info("released the addresses of an earlier ADD for the same container", { handle: handleId, surplus });
  });
}

/** All or nothing: a pod with one of two families would look healthy without being so. */
async function releaseAssigned({ ipam, log }: IpamContext, assigned: readonly Assignments[]): Promise<void> {
  const addresses = assigned.flatMap((result) => result.addresses).map((cidr) => ({ address: cidrAddress(cidr) }));
  if (addresses.length === 0) return;
  try {
    await ipam.release(addresses, AbortSignal.timeout(RELEASE_MS));
  } catch (error) {
    log.error("could not release the addresses of a failed ADD; its DEL will", { error });
  }
}

/** Very old versions kept addresses under another handle. */
const legacyHandle = (identity: EndpointIdentity): string =>
  identity.orchestrator === "k8s" ? `${identity.namespace}.${identity.pod}` : identity.containerId;

/**
 * The pod to which an address under the legacy handle must belong. A pod's author chooses `namespace.pod`, and other handles
 * have the same form (`network.containerID`, a tunnel's with a node's domain name). The old versions recorded no attributes;
 * their allocations are released only if the handle cannot be that of a container of this network.
 */
function legacyOwner(conf: NetConf, { orchestrator, namespace, pod }: EndpointIdentity): PodOwner | undefined {
  // Outside Kubernetes the legacy handle is the container's ID, which the runtime chooses.
  return orchestrator === "k8s" ? { namespace, pod, orNoAttributes: namespace !== conf.name } : undefined;
}

/**
 * Releases all addresses of the container; having none is not an error. Those of a virtual machine stay with the machine.
 * @param extraWrites done in the same transaction if possible; the result tells what happened to them
 */
export async function releaseAddresses(
  context: IpamContext,
  extraWrites: readonly Write[] = [],
): Promise<HandleRelease["extraWrites"]> {
  const { conf, identity, ipam, signal } = context;
  const release = async (
    handle: string,
    options: { readonly extraWrites?: readonly Write[]; readonly owner?: PodOwner },
  ): Promise<HandleRelease["extraWrites"]> => {
    try {
      return (await ipam.releaseByHandleWith(handle, options, signal)).extraWrites;
    } catch (error) {
      if (error instanceof UnknownHandle) return "notWritten";
      if (options.owner === undefined || !(error instanceof StaleRelease)) throw error;
      context.log.warn("did not release a handle that holds another workload's address", { handle, error });
      return "notWritten";
    }
  };
  const outcome = await lockAddresses(context, async () => {
    const [, result] = await Promise.all([
      release(legacyHandle(identity), { owner: legacyOwner(conf, identity) }),
      release(containerHandle(conf.name, identity.containerId), { extraWrites }),
    ]);
    return result;
  });
  if (mayRunVirtualMachine(identity)) await (await machineAddresses()).leaveMachine(context);
  return outcome;
}

export function containerHolder({ conf, identity, now }: IpamContext): Holder {
  const { orchestrator, node, pod, namespace, containerId } = identity;
  return {
    handleId: containerHandle(conf.name, containerId),
    attributes: {
      ...(orchestrator === "k8s" ? { namespace } : {}),
      node,
      ...(orchestrator === "k8s" ? { pod } : {}),
      timestamp: goTimestamp(now()),
    },
  };
}

const poolsOf = ({ settings }: IpamRequest, version: IpVersion): readonly string[] =>
  version === 4 ? settings.ipv4Pools : settings.ipv6Pools;

async function resolvePools(context: IpamContext, request: IpamRequest, version: IpVersion): Promise<readonly Cidr[]> {
  const cidrs = await findPools(context, poolsOf(request, version));
  const other = cidrs.find((cidr) => ipVersion(cidr) !== version);
  if (other !== undefined)
    throw new CniError(INTERNAL, `ipam.ipv${version}_pools: ${other} is no pool of IPv${version} addresses`);
  return cidrs;
}

/** Pools are named by CIDR or by name. */
async function findPools(context: IpamContext, names: readonly string[]): Promise<readonly Cidr[]> {
  const given = names.map((name) => (name.includes("/") ? tryParseCidr(name) : undefined));
  if (!given.includes(undefined)) return given.flatMap((cidr) => cidr ?? []);
  const { items } = await context.store.list({ type: "resource", kind: "IPPool" }, callOptions(context));
  return names.map((name, i) => {
    const cidr = given[i];
    if (cidr !== undefined) return cidr;
    const pool = items.find((item) => item.key.name === name);
    const found = pool === undefined ? undefined : readPool(pool.value, ignoreUnreadable)?.cidr;
    if (found === undefined)
      throw new CniError(INTERNAL, `error parsing pool ${quote(name)}: neither a CIDR nor the name of an IPPool`);
    return found;
  });
}
