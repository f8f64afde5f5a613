// Addresses for one container out of Calico's pools: what `calico-ipam` does, called in process by `calico` and as a
// program of its own by anybody.
import type { Datastore, Revision } from "../datastore/index.ts";
import {
  type Also,
  type Assignments,
  containerHandle,
  describeShortage,
  goTimestamp,
  type HandleRelease,
  Ipam,
  type IpamMemory,
  type PodOwner,
  StaleRelease,
  UnknownHandle,
} from "../ipam/index.ts";
import type { lockFile } from "../kernel/index.ts";
import {
  cidrAddress,
  type Cidr,
  hostCidr,
  type IpAddress,
  type IpVersion,
  ipVersion,
  tryParseCidr,
} from "../lib/ip.ts";
import type { Logger } from "../lib/log.ts";
import { type Labels, workloadEndpointName } from "../model/index.ts";
import { CniError, INTERNAL } from "./error.ts";
import { locked } from "./host-lock.ts";
import { type EndpointIdentity, isLauncher, nameFields } from "./identity.ts";
import type { KubernetesApi } from "./kubernetes-api.ts";
import type { IpamSettings, NetConf } from "./net-conf.ts";
import { type CniResult, resultOf } from "./result.ts";

const RELEASE_MS = 30_000;

export interface IpamContext {
  readonly conf: NetConf;
  readonly identity: EndpointIdentity;
  readonly store: Datastore;
  /** The same without the request's deadline, for the way back. */
  readonly untimed?: Datastore;
  readonly ipam: Ipam;
  /** What IPAM, and whoever writes with it, remembers from one request to the next. */
  readonly memory: IpamMemory;
  /** Only asked where the configuration says Kubernetes. */
  readonly kubernetes: () => Promise<KubernetesApi>;
  /** Labels of the pod's namespace, where pools may ask for them. */
  readonly namespaceLabels: () => Promise<Labels | undefined>;
  readonly log: Logger;
  readonly now: () => Date;
  /** Runs one allocation of this process at a time. */
  readonly serialise?: <T>(action: () => Promise<T>, signal: AbortSignal | undefined) => Promise<T>;
  /** When it ends nobody waits any longer: for the turn, the lock, or an answer. */
  readonly signal?: AbortSignal | undefined;
  /** The host's lock, where several requests of a process hold it at once; absent: the file itself. */
  readonly hostLock?: typeof lockFile;
}

export interface IpamRequest {
  /** Exactly this address. */
  readonly ip?: IpAddress;
  /** With the pod's wishes over the configuration's. */
  readonly settings: IpamSettings;
  /** To be stored with the addresses (of all families), where that can be. */
  readonly also?: Also;
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
  /** The revisions of what was stored with them, if it was. */
  readonly also?: readonly Revision[];
  /** How many addresses their handle counts, these included. It may count too many after a crash, never too few. */
  readonly handleCount?: number;
}

/** The same context on a datastore that is, or stands for, its own. */
export function onStore<C extends IpamContext>(context: C, store: Datastore): C {
  const { log, memory } = context;
  return { ...context, store, ipam: new Ipam({ datastore: store, log, memory }) };
}

export async function assignAddresses(context: IpamContext, request: IpamRequest): Promise<Assigned> {
  workloadEndpointName(nameFields(context.identity)); // no addresses for a workload that cannot be named
  const holder = containerHolder(context);
  if (!isLauncher(context.identity)) return assign(context, request, holder);
  const { assignToMachine } = await machineAddresses();
  return assignToMachine(context, request, (wanted, machine) => assign(context, wanted, machine ?? holder));
}

/** Loaded only for pods that may run a machine. */
const machineAddresses = () => import("./machine-addresses.ts");

async function assign(context: IpamContext, request: IpamRequest, holder: Holder): Promise<Assigned> {
  if (request.ip !== undefined) {
    const ip = request.ip;
    const handleCount = await locked(context, () =>
      context.ipam.assignAddress({ address: ip, host: context.identity.node, use: "Workload", ...holder }),
    );
    return { ...resultOf([hostCidr(ip)]), ...(handleCount === undefined ? {} : { handleCount }) };
  }
  const wanted = ([4, 6] as const).filter((v) => (v === 4 ? request.settings.assignIpv4 : request.settings.assignIpv6));
  if (wanted.length === 0) return resultOf([]);
  const pools = new Map<IpVersion, readonly Cidr[]>();
  // A pool that is not there, or of the other family, is told before anything is taken, also when this pod has no use for it.
  for (const version of [4, 6] as const) pools.set(version, await resolvePools(context.store, request, version));
  const namespaceLabels = await context.namespaceLabels();
  const assigned: Assignments[] = [];
  try {
    await locked(context, async () => {
      for (const version of wanted) {
        const before = assigned.flatMap((result) => result.addresses);
        // With the last of them: then all are known. Not when one is missing already; its sibling is asked for all the same,
        // so that a pool's addresses come and go in the original's order.
        const isComplete = version === wanted.at(-1) && before.length === assigned.length;
        const { also } = request;
        assigned.push(
          await context.ipam.autoAssign({
            version,
            count: 1,
            host: context.identity.node,
            use: "Workload",
            pools: pools.get(version) ?? [],
            ...(namespaceLabels === undefined ? {} : { namespaceLabels }),
            ...holder,
            ...(also === undefined || !isComplete ? {} : { also: (addresses) => also([...before, ...addresses]) }),
          }),
        );
      }
    });
    const short = assigned.find((result) => result.addresses.length === 0);
    if (short !== undefined)
      throw new CniError(INTERNAL, `failed to request IPv${short.version} addresses: ${describeShortage(short)}`);
  } catch (error) {
    // What a machine has got it keeps: another of its pods may use it by now.
    if (holder.maxPerHandle === undefined) await giveBack(context, assigned);
    throw error;
  }
  const { also, handleCount } = assigned.at(-1) ?? {};
  return {
    ...resultOf(assigned.flatMap((result) => result.addresses)),
    ...(also === undefined ? {} : { also }),
    ...(handleCount === undefined ? {} : { handleCount }),
  };
}

/**
 * Releases what the container's handle holds beyond the addresses of this ADD. Another ADD for the same container took it,
 * and no DEL followed.
 */
export async function releaseSurplus(context: IpamContext, { ips, handleCount = 0 }: Assigned): Promise<void> {
  const { conf, identity, ipam, log } = context;
  if (handleCount <= ips.length || isLauncher(identity)) return;
  const handleId = containerHandle(conf.name, identity.containerId);
  const kept = new Set(ips.map(({ address }) => address.address));
  await locked(context, async () => {
    const surplus = (await ipam.addressesOfHandle(handleId)).filter((address) => !kept.has(address));
    if (surplus.length === 0) return;
    const { error } = await ipam.release(surplus.map((address) => ({ address, handleId })));
    if (error !== undefined) throw error;
    log.info("released the addresses of an earlier ADD for the same container", { handle: handleId, surplus });
  });
}

/** All or nothing: a pod with one family of two would look healthy and not be. */
async function giveBack({ ipam, log }: IpamContext, assigned: readonly Assignments[]): Promise<void> {
  const addresses = assigned.flatMap((result) => result.addresses).map((cidr) => ({ address: cidrAddress(cidr) }));
  if (addresses.length === 0) return;
  try {
    await ipam.release(addresses, AbortSignal.timeout(RELEASE_MS));
  } catch (error) {
    log.error("Could not give back the addresses of a failed ADD; its DEL will", { error });
  }
}

/** Very old versions kept addresses under another handle. */
export const legacyHandle = (identity: EndpointIdentity): string =>
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
 * Gives back all addresses of the container; having none is fine. A machine's it leaves to the machine.
 * @param also to be written with that, where the datastore can; the result tells what became of it
 */
export async function releaseAddresses(
  context: IpamContext,
  signal?: AbortSignal,
  also?: Also,
): Promise<HandleRelease["others"]> {
  const { conf, identity, ipam } = context;
  const release = async (
    handle: string,
    options: { readonly also?: Also | undefined; readonly owner?: PodOwner | undefined },
  ): Promise<HandleRelease["others"]> => {
    try {
      return (await ipam.releaseByHandleWith(handle, options, signal)).others;
    } catch (error) {
      if (error instanceof UnknownHandle) return "left";
      if (options.owner === undefined || !(error instanceof StaleRelease)) throw error;
      context.log.warn("did not release a handle that holds another workload's address", { handle, error });
      return "left";
    }
  };
  const outcome = await locked(context, async () => {
    // Both are looked up at once.
    const handles = [
      release(legacyHandle(identity), { owner: legacyOwner(conf, identity) }),
      release(containerHandle(conf.name, identity.containerId), { also }),
    ];
    const [, others = "left"] = await Promise.all(handles);
    return others;
  });
  if (isLauncher(identity)) await (await machineAddresses()).leaveMachine(context, signal);
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

async function resolvePools(store: Datastore, request: IpamRequest, version: IpVersion): Promise<readonly Cidr[]> {
  const cidrs = await findPools(store, poolsOf(request, version));
  const other = cidrs.find((cidr) => ipVersion(cidr) !== version);
  if (other !== undefined)
    throw new CniError(INTERNAL, `ipam.ipv${version}_pools: ${other} is no pool of IPv${version} addresses`);
  return cidrs;
}

/** Pools are named by CIDR or by name. */
async function findPools(store: Datastore, names: readonly string[]): Promise<readonly Cidr[]> {
  const given = names.map((name) => (name.includes("/") ? tryParseCidr(name) : undefined));
  if (!given.includes(undefined)) return given.flatMap((cidr) => cidr ?? []);
  const { items } = await store.list({ type: "resource", kind: "IPPool" });
  return names.map((name, i) => {
    const cidr = given[i];
    if (cidr !== undefined) return cidr;
    const pool = items.find((item) => item.key.name === name);
    const found = tryParseCidr(String((pool?.value.spec as { cidr?: unknown } | undefined)?.cidr));
    if (found === undefined)
      throw new CniError(
        INTERNAL,
        `error parsing pool ${JSON.stringify(name)}: neither a CIDR nor the name of an IPPool`,
      );
    return found;
  });
}
