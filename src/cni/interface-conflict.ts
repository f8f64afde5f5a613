// Refuses an ADD whose host interface belongs to another workload. A pod's interface is named by 44 bits of a hash, so the
// author of a pod can compute a name that gives it the interface of a given other pod.
import { ATTRIBUTE, InCooldown, NotAssigned } from "../ipam/index.ts";
import { type Link, openRouteKernel, RT_TABLE_MAIN } from "../kernel/index.ts";
import { addressBits, cidrAddress, cidrLength, type IpAddress, ipVersion } from "../lib/ip.ts";
import {
  type InterfaceOwner,
  ownsInterface,
  parseInterfaceAlias,
  parseWorkloadEndpointName,
  workloadEndpointPrefix,
} from "../model/index.ts";
import { callOptions, type CniContext } from "./context.ts";
import { findEndpoint, type WorkloadEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { type EndpointIdentity, hostInterfaceName } from "./identity.ts";

/**
 * Passes if no other workload that has an endpoint owns the interface of this name. The alias of the interface names its
 * owner. If it does not (bandwidth limits of earlier versions replaced it, and Calico sets none), or if there is no interface,
 * the owner is a workload whose endpoint has the interface. Reads the datastore only if there is such an interface.
 * @returns the index of the interface, which may be replaced
 */
export async function requireInterface(context: CniContext): Promise<number | undefined> {
  const { identity, request, store } = context;
  const name = hostInterfaceName(identity, request.interfacePrefix);
  const link = findLink(name);
  const owner = parseInterfaceAlias(link?.alias);
  if (owner !== undefined && isOwn(owner, identity)) return link?.index;
  const named = owner === undefined ? undefined : identityOf(owner, identity);
  const other =
    named === undefined
      ? await findClaim(context, name, link)
      : (await findEndpoint(store, named, callOptions(context)))?.endpoint;
  if (other === undefined) return link?.index;
  throw new CniError(
    INTERNAL,
    `the interface ${name} belongs to ${describe(other)}, which still exists`,
    "the names of both give the same interface name: rename one of them, or run it on another node",
  );
}

/** Whether the host has an interface of the workload's name, that is, the workload was attached before. */
export const hasHostInterface = ({ identity, request }: CniContext): boolean =>
  findLink(hostInterfaceName(identity, request.interfacePrefix)) !== undefined;

function findLink(name: string): Link | undefined {
  using host = openRouteKernel();
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
  const pods =
    cache?.endpointsOf(name)?.filter(isOther).map(podOf) ?? (link === undefined ? [] : await routedPods(context, link));
  for (const { namespace, pod } of pods) {
    const other = { ...identity, orchestrator: "k8s", namespace, pod } as const;
    const endpoint = (await findEndpoint(store, other, callOptions(context)))?.endpoint;
    // A pod that is not attached, or finished, has no addresses. Its author cannot write them.
    if (endpoint !== undefined && isOther(endpoint) && (endpoint.spec.ipNetworks ?? []).length > 0) return endpoint;
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
  using host = openRouteKernel();
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
