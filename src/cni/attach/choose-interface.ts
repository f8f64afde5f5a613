// Chooses the host interface of an ADD. A pod's interface is usually named by 44 bits of a hash of its name, as in Calico,
// so the author of a pod can compute a pod name that gives it the interface name of a given other pod. The workload that
// attaches first gets this name. The second one gets a name that nobody could compute before.
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

/** Each is free with a probability of almost 1. */
const ALTERNATIVES = 3;

export interface HostInterface {
  readonly name: string;
  /** Index of an interface of this name, which may be replaced. */
  readonly replaces?: number;
}

/**
 * The usual interface of the workload, or one with another name if another workload that has an endpoint owns the usual one.
 * Reads the datastore only if there is an interface of that name. If the datastore does not answer, the owner is not known,
 * and this fails.
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
      throw new CniError(INTERNAL, `the interface ${name} belongs to ${describe(owner)}, which still exists`);
    log.warn("the interface belongs to another workload; choosing another name", {
      interface: name,
      owner: describe(owner),
    });
  }
}

/**
 * The endpoint of another workload that owns the interface. The alias of the interface names its owner. If it does not
 * (bandwidth limits of earlier versions replaced it, and Calico sets none), or if there is no interface, the owner is a
 * workload whose endpoint has the interface.
 */
async function findOtherOwner(
  context: CniContext,
  name: string,
  link: Link | undefined,
): Promise<WorkloadEndpoint | undefined> {
  const { identity, store } = context;
  const owner = parseInterfaceAlias(link?.alias);
  if (owner !== undefined && isOwn(owner, identity)) return undefined;
  const named = owner === undefined ? undefined : identityOf(owner, identity);
  if (named === undefined) return findClaim(context, name, link);
  return (await findEndpoint(store, named, callOptions(context)))?.endpoint;
}

/**
 * Removes the interface that served the workload's last container under another name. An interface whose alias does not
 * name this workload stays.
 */
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

/** Whether the host has an interface of the workload's usual name, that is, the workload was probably attached before. */
export const hasHostInterface = ({ identity, request }: CniContext): boolean =>
  findLink(hostInterfaceName(identity, request.interfacePrefix)) !== undefined;

function findLink(name: string): Link | undefined {
  using host = openRtnetlink();
  return host.links.get(name);
}

/**
 * The endpoint of another workload of this node that has the interface. On Kubernetes the service finds it in its cache; the
 * plugin has no right to list pods, and finds it by the addresses that are routed to the interface. In other datastores
 * all endpoints are listed, which takes too long for every ADD: without an interface nothing is searched there, and Felix
 * does not give the new interface to the other endpoint, because its alias names this workload.
 */
async function findClaim(
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

/** The pods of this node to which the addresses that are routed to the interface were assigned. */
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
 * The owner on this node; undefined if the alias contains only a hash of it. The interface does not record the namespace of a
 * container outside Kubernetes.
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
