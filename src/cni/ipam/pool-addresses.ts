// Implements `calico-ipam`: assigns and releases the addresses of one container from Calico's pools. `calico` calls it in
// process; other plugins call it as a program.
import type { Revision, Write } from "../../datastore/index.ts";
import {
  type Assignments,
  containerHandle,
  countOf,
  describeShortage,
  type ExtraWrites,
  goTimestamp,
  type ExpectedPod,
  type HandleRelease,
  type HandleReleaseOptions,
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
  /** Assign exactly this address. */
  readonly ip?: IpAddress;
  /** The configuration, overridden by the pod's and its namespace's annotations. */
  readonly settings: IpamSettings;
  /** Written with the addresses of all families, in one transaction if possible. */
  readonly extraWrites?: ExtraWrites;
}

/** The handle that addresses are assigned to. */
export interface HandleOptions {
  readonly handleId: string;
  readonly attributes: Labels;
  /** Maximum number of the handle's addresses of one family. */
  readonly maxPerHandle?: number;
}

export interface Assigned extends CniResult {
  /** Another host uses the addresses until the virtual machine has migrated; until then this host has no route to them. */
  readonly isMigrating?: boolean;
  /** The revisions of the extra writes, if they were done. */
  readonly extraRevisions?: readonly Revision[];
  /** The handle's address count, including these. After a crash it may be too high, never too low. */
  readonly handleCount?: number;
}

export async function assignPoolAddresses(context: IpamContext, request: IpamRequest): Promise<Assigned> {
  workloadEndpointName(nameFields(context.identity)); // throws if the workload has no valid name, before anything is assigned
  const container = containerHandleOptions(context);
  if (!mayRunVirtualMachine(context.identity)) return assignToHandle(context, request, container);
  const { assignMachineAddresses } = await machineAddresses();
  return assignMachineAddresses(context, request, (part, machine) =>
    assignToHandle(context, part, machine ?? container),
  );
}

/** Loaded only for pods that may run a virtual machine. */
const machineAddresses = () => import("./virtual-machine-addresses.ts");

async function assignToHandle(context: IpamContext, request: IpamRequest, handle: HandleOptions): Promise<Assigned> {
  const { identity, ipam, signal } = context;
  if (request.ip !== undefined) {
    const ip = request.ip;
    const handleCount = await lockAddresses(context, () =>
      ipam.assignAddress({ address: ip, host: identity.node, use: "Workload", ...handle }, signal),
    );
    return { ...resultOf([hostCidr(ip)]), handleCount };
  }
  const versions = ([4, 6] as const).filter((v) =>
    v === 4 ? request.settings.assignIpv4 : request.settings.assignIpv6,
  );
  if (versions.length === 0) return resultOf([]);
  const pools = new Map<IpVersion, readonly Cidr[]>();
  // A pool that does not exist, or has the other family, is reported before anything is assigned, even if this pod does
  // not use that family.
  for (const version of [4, 6] as const) pools.set(version, await resolvePools(context, request, version));
  const namespaceLabels = await context.namespaceLabels();
  const assigned: Assignments[] = [];
  try {
    await lockAddresses(context, async () => {
      for (const version of versions) {
        const before = assigned.flatMap((result) => result.addresses);
        // The extra writes are done with the last family, when all addresses are known. If a family got no address, the
        // other one is still assigned, so that a pool's addresses are used in the same order as in Calico.
        const isComplete = version === versions.at(-1) && before.length === assigned.length;
        const { extraWrites } = request;
        const assignment = {
          version,
          count: 1,
          host: identity.node,
          use: "Workload",
          pools: pools.get(version) ?? [],
          namespaceLabels,
          ...handle,
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
    if (handle.maxPerHandle === undefined) await releaseAssigned(context, assigned);
    throw error;
  }
  const { extraRevisions, handle: stored } = assigned.at(-1) ?? {};
  return {
    ...resultOf(assigned.flatMap((result) => result.addresses)),
    extraRevisions,
    handleCount: stored === undefined ? undefined : countOf(stored.value),
  };
}

/** Releases the addresses of an earlier ADD for the same container that was not followed by a DEL. */
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

/** Releases the addresses of a failed ADD: a pod gets the addresses of all families or none. */
async function releaseAssigned({ ipam, log }: IpamContext, assigned: readonly Assignments[]): Promise<void> {
  const addresses = assigned.flatMap((result) => result.addresses).map((cidr) => ({ address: cidrAddress(cidr) }));
  if (addresses.length === 0) return;
  try {
    await ipam.release(addresses, AbortSignal.timeout(RELEASE_MS));
  } catch (error) {
    log.error("could not release the addresses of a failed ADD; DEL will release them", { error });
  }
}

/** The handle ID that very old versions of Calico used. */
const legacyHandle = (identity: EndpointIdentity): string =>
  identity.orchestrator === "k8s" ? `${identity.namespace}.${identity.pod}` : identity.containerId;

/**
 * The pod that addresses of the legacy handle must belong to. A pod's author chooses `namespace.pod`, and other handle IDs have
 * the same form (`network.containerID`, a tunnel's with a node's domain name). The old versions recorded no attributes; their
 * allocations are released only if the handle cannot be that of a container of this network.
 */
function legacyHandlePod(conf: NetConf, { orchestrator, namespace, pod }: EndpointIdentity): ExpectedPod | undefined {
  // Outside Kubernetes the legacy handle is the container's ID, which the runtime chooses.
  return orchestrator === "k8s" ? { namespace, pod, acceptNoAttributes: namespace !== conf.name } : undefined;
}

/**
 * Releases all addresses of the container. It is not an error if it has none. A virtual machine keeps its addresses.
 * @param extraWrites written in the same transaction if possible
 * @returns whether the extra writes were done
 */
export async function releasePoolAddresses(
  context: IpamContext,
  extraWrites: readonly Write[] = [],
): Promise<HandleRelease["extraWrites"]> {
  const { conf, identity, ipam, signal } = context;
  const release = async (handle: string, options: HandleReleaseOptions): Promise<HandleRelease["extraWrites"]> => {
    try {
      return (await ipam.releaseByHandleWith(handle, options, signal)).extraWrites;
    } catch (error) {
      if (error instanceof UnknownHandle) return "notWritten";
      if (options.expectedPod === undefined || !(error instanceof StaleRelease)) throw error;
      context.log.warn("did not release a handle: it has an address of another workload", { handle, error });
      return "notWritten";
    }
  };
  const outcome = await lockAddresses(context, async () => {
    const [, result] = await Promise.all([
      release(legacyHandle(identity), { expectedPod: legacyHandlePod(conf, identity) }),
      release(containerHandle(conf.name, identity.containerId), { extraWrites }),
    ]);
    return result;
  });
  if (mayRunVirtualMachine(identity)) await (await machineAddresses()).removeFromOwners(context);
  return outcome;
}

export function containerHandleOptions({ conf, identity, now }: IpamContext): HandleOptions {
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
    throw new CniError(INTERNAL, `ipam.ipv${version}_pools: ${other} is not an IPv${version} pool`);
  return cidrs;
}

/** @param names each the CIDR or the name of a pool */
async function findPools(context: IpamContext, names: readonly string[]): Promise<readonly Cidr[]> {
  const parsed = names.map((name) => (name.includes("/") ? tryParseCidr(name) : undefined));
  if (!parsed.includes(undefined)) return parsed.flatMap((cidr) => cidr ?? []);
  const { items } = await context.store.list({ type: "resource", kind: "IPPool" }, callOptions(context));
  return names.map((name, i) => {
    const cidr = parsed[i];
    if (cidr !== undefined) return cidr;
    const pool = items.find((item) => item.key.name === name);
    const found = pool === undefined ? undefined : readPool(pool.value, ignoreUnreadable)?.cidr;
    if (found === undefined)
      throw new CniError(INTERNAL, `error parsing pool ${quote(name)}: neither a CIDR nor the name of an IPPool`);
    return found;
  });
}
