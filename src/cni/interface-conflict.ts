// Refuses an ADD whose host interface belongs to another workload. A pod's interface is named by 44 bits of a hash, so the
// author of a pod can compute a name that gives it the interface of a given other pod.
import { type Link, openRouteKernel } from "../kernel/index.ts";
import { type InterfaceOwner, ownsInterface, parseInterfaceAlias } from "../model/index.ts";
import { callOptions, type CniContext } from "./context.ts";
import { findEndpoint } from "./endpoint.ts";
import { CniError, INTERNAL } from "./error.ts";
import { type EndpointIdentity, hostInterfaceName } from "./identity.ts";

/**
 * Passes if the host has no interface of this name, or one without an owner, of this workload, or of a workload that no
 * longer has an endpoint. Reads the datastore only if the interface names another workload.
 * @returns the index of the interface, which may be replaced
 */
export async function requireInterface(context: CniContext): Promise<number | undefined> {
  const { identity, request, store } = context;
  const name = hostInterfaceName(identity, request.interfacePrefix);
  const link = findLink(name);
  const owner = parseInterfaceAlias(link?.alias);
  if (owner === undefined || isOwn(owner, identity)) return link?.index;
  if ((await findEndpoint(store, identityOf(owner, identity), callOptions(context))) === undefined) return link?.index;
  const { pod, containerId } = owner;
  const other = pod === undefined ? `container ${containerId}` : `pod ${pod.namespace}/${pod.name}`;
  throw new CniError(
    INTERNAL,
    `the interface ${name} belongs to ${other}, which still exists`,
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

function isOwn(owner: InterfaceOwner, { orchestrator, namespace, pod, containerId }: EndpointIdentity): boolean {
  return ownsInterface(owner, orchestrator, `${namespace}/${orchestrator === "k8s" ? pod : containerId}`);
}

/** The owner on this node. The interface does not record the namespace of a container outside Kubernetes. */
function identityOf({ pod, containerId }: InterfaceOwner, identity: EndpointIdentity): EndpointIdentity {
  if (pod !== undefined)
    return { ...identity, orchestrator: "k8s", namespace: pod.namespace, pod: pod.name, containerId };
  const namespace = identity.orchestrator === "cni" ? identity.namespace : "default";
  return { ...identity, orchestrator: "cni", namespace, pod: "", containerId };
}
