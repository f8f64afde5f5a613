// Chooses the host interface of an ADD. The name of a pod's interface usually contains 44 bits of a hash of the pod's name, as
// in Calico, so the author of a pod can find a pod name that results in the interface name of another pod. The workload that
// attaches first gets this name. The second one gets a name that cannot be predicted.
import { ATTRIBUTE, InCooldown, NotAssigned } from "../../ipam/index.ts";
import { type Link, openRtnetlink, removeLink, RT_TABLE_MAIN } from "../../kernel/index.ts";
import { addressBits, cidrAddress, cidrLength, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import {
  type InterfaceOwner,
  ownsInterface,
  parseInterfaceAlias,
  parseWorkloadEndpointName,
  workloadEndpointPrefix,
} from "../../model/index.ts";
import { callOptions, type CniContext } from "../context.ts";
import { findEndpoint, type WorkloadEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "../error.ts";
import { alternativeInterfaceName, type EndpointIdentity, hostInterfaceName } from "../request/identity.ts";

/** Number of alternative names that are tried. Each is free with a probability of almost 1. */
const ALTERNATIVES = 3;

export interface HostInterface {
  readonly name: string;
  /** Index of an existing interface of this name, which may be replaced. */
  readonly replaces?: number;
}

/**
 * Returns the usual interface of the workload, or one with another name if another workload that has an endpoint owns the usual
 * one. Fails if the datastore must be read to determine the owner and does not respond.
 */
export async function chooseInterface(context: CniContext): Promise<HostInterface> {
  const { identity, request, log } = context;
  const { interfacePrefix } = request;
  for (let attempt = 0; ; attempt++) {
    const name =
      attempt === 0
        ? hostInterfaceName(identity, interfacePrefix)
        : alternativeInterfaceName(identity, interfacePrefix, attempt);
    const link = findLink(name);
    const owner = await findOtherOwner(context, name, link);
    if (owner === undefined) return { name, ...(link === undefined ? {} : { replaces: link.index }) };
    if (attempt === ALTERNATIVES)
      throw new CniError(INTERNAL, `interface ${name} belongs to ${describe(owner)}, which still exists`);
    log.warn("the interface belongs to another workload; choosing another name", {
      interface: name,
      owner: describe(owner),
    });
  }
}

/**
 * Returns the endpoint of another workload that owns the interface. The alias of the interface names its owner. If it does not
 * (earlier versions replaced it when they set bandwidth limits, and Calico sets none), or if there is no interface, the owner
 * is a workload whose endpoint has the interface.
 */
async function findOtherOwner(
  context: CniContext,
  name: string,
  link: Link | undefined,
): Promise<WorkloadEndpoint | undefined> {
  const { identity, store } = context;
  const owner = parseInterfaceAlias(link?.alias);
  if (owner !== undefined && isOwn(owner, identity)) return undefined;
  const ownerIdentity = owner === undefined ? undefined : identityOf(owner, identity);
  if (ownerIdentity === undefined) return findEndpointWithInterface(context, name, link);
  return (await findEndpoint(store, ownerIdentity, callOptions(context)))?.endpoint;
}

/** Removes the interface of the workload's previous container, if it has another name and its alias names this workload. */
export async function removePreviousInterface(
  { identity }: CniContext,
  previous: WorkloadEndpoint | undefined,
  chosen: string,
): Promise<void> {
  const name = previous?.spec.interfaceName ?? "";
  if (name === "" || name === chosen) return;
  const owner = parseInterfaceAlias(findLink(name)?.alias);
  if (owner !== undefined && isOwn(owner, identity)) await removeLink(name);
}

/** True if the host has an interface of the workload's usual name, so that the workload was probably attached before. */
export const hasHostInterface = ({ identity, request }: CniContext): boolean =>
  findLink(hostInterfaceName(identity, request.interfacePrefix)) !== undefined;

function findLink(name: string): Link | undefined {
  using host = openRtnetlink();
  return host.links.get(name);
}

/**
 * Returns the endpoint of another workload of this node that has the interface. On Kubernetes the service finds it in its cache.
 * The plugin is not allowed to list pods; it finds the endpoint by the addresses that are routed to the interface. In other
 * datastores all endpoints are listed. That takes too long for every ADD, so it is done only if the interface exists; if not,
 * Felix does not use the new interface for the other endpoint, because its alias names this workload.
 */
async function findEndpointWithInterface(
  context: CniContext,
  name: string,
  link: Link | undefined,
): Promise<WorkloadEndpoint | undefined> {
  const { cache, identity, store } = context;
  const isOther = (endpoint: WorkloadEndpoint): boolean => !isOwnEndpoint(endpoint, identity);
  if (store.name !== "kubernetes") {
    if (link === undefined) return undefined;
    const namePrefix = workloadEndpointPrefix({ node: identity.node });
    const query = { type: "resource", kind: "WorkloadEndpoint", namePrefix } as const;
    const { items } = await store.list(query, callOptions(context));
    const endpoints = items.map(({ value }) => value as WorkloadEndpoint);
    return endpoints.find((endpoint) => endpoint.spec.interfaceName === name && isOther(endpoint));
  }
  const cached = cache?.endpointsOf(name)?.filter(isOther).map(podOf);
  const pods = cached ?? (link === undefined ? [] : await routedPods(context, link));
  for (const { namespace, pod } of pods) {
    const other = { ...identity, orchestrator: "k8s", namespace, pod } as const;
    const endpoint = (await findEndpoint(store, other, callOptions(context)))?.endpoint;
    if (endpoint === undefined || !isOther(endpoint)) continue;
    if (cached !== undefined && endpoint.spec.interfaceName !== name) continue; // it was attached again since
    // A pod that is not attached, or finished, has no addresses. Its author cannot write them.
    if ((endpoint.spec.ipNetworks ?? []).length > 0) return endpoint;
  }
  return undefined;
}

interface PodName {
  readonly namespace: string;
  readonly pod: string;
}

const podOf = ({ metadata, spec }: WorkloadEndpoint): PodName => ({
  namespace: metadata.namespace ?? "",
  pod: spec.pod ?? "",
});

/** Returns the pods of this node that own the addresses which are routed to the interface. */
async function routedPods({ identity, ipam }: CniContext, link: Link): Promise<PodName[]> {
  const pods: PodName[] = [];
  for (const address of routedAddresses(link))
    try {
      const {
        [ATTRIBUTE.namespace]: namespace,
        [ATTRIBUTE.pod]: pod,
        [ATTRIBUTE.node]: node,
      } = (await ipam.allocationOf(address)).attributes;
      if (namespace !== undefined && pod !== undefined && node === identity.node) pods.push({ namespace, pod });
    } catch (error) {
      if (!(error instanceof NotAssigned || error instanceof InCooldown)) throw error;
    }
  return pods;
}

function routedAddresses({ index }: Link): IpAddress[] {
  using host = openRtnetlink();
  return ([4, 6] as const)
    .flatMap((version) => host.routes.list({ version, table: RT_TABLE_MAIN }))
    .filter(({ link, destination }) => link === index && isSingle(destination))
    .map(({ destination }) => cidrAddress(destination));
}

const isSingle = (destination: Parameters<typeof cidrAddress>[0]): boolean =>
  cidrLength(destination) === addressBits(ipVersion(cidrAddress(destination)));

function isOwn(owner: InterfaceOwner, { orchestrator, namespace, pod, containerId }: EndpointIdentity): boolean {
  return ownsInterface(owner, orchestrator, `${namespace}/${orchestrator === "k8s" ? pod : containerId}`);
}

function isOwnEndpoint({ metadata }: WorkloadEndpoint, identity: EndpointIdentity): boolean {
  const { orchestrator, namespace, pod, containerId } = identity;
  const name = parseWorkloadEndpointName(metadata.name);
  const workload = orchestrator === "k8s" ? pod : containerId;
  return metadata.namespace === namespace && name?.orchestrator === orchestrator && name.workload === workload;
}

/**
 * Returns the identity of the owner; undefined if the alias contains only a hash of it. The alias does not contain the namespace
 * of a container outside Kubernetes.
 */
function identityOf(owner: InterfaceOwner, identity: EndpointIdentity): EndpointIdentity | undefined {
  const { pod, podHash, containerId } = owner;
  if (podHash !== undefined) return undefined;
  if (pod !== undefined)
    return { ...identity, orchestrator: "k8s", namespace: pod.namespace, pod: pod.name, containerId };
  const namespace = identity.orchestrator === "cni" ? identity.namespace : "default";
  return { ...identity, orchestrator: "cni", namespace, pod: "", containerId };
}

function describe({ metadata, spec }: WorkloadEndpoint): string {
  if (spec.orchestrator === "k8s") return `pod ${metadata.namespace}/${spec.pod}`;
  return spec.orchestrator === "cni" ? `container ${spec.containerID}` : `the endpoint ${metadata.name}`;
}
