// Whose wire it is, written on the host's end as its alias (`ip link` shows it): what an ADD left that died before
// anything was stored is known by that alone, and finding it needs no right in any datastore.
import type { EndpointIdentity } from "./identity.ts";

export interface WireOwner {
  readonly network: string;
  readonly containerId: string;
  /** Of Kubernetes. */
  readonly pod?: { readonly namespace: string; readonly name: string };
}

const FIRST_WORD = "calico";
/** The kernel keeps no more. */
const MAX_BYTES = 255;

/** `calico NETWORK CONTAINER NAMESPACE/POD`; nothing when that is too long. */
export function wireAlias(network: string, identity: EndpointIdentity): string | undefined {
  const { orchestrator, containerId, namespace, pod } = identity;
  const alias = `${FIRST_WORD} ${network} ${containerId}${orchestrator === "k8s" ? ` ${namespace}/${pod}` : ""}`;
  return Buffer.byteLength(alias) > MAX_BYTES ? undefined : alias;
}

/** Nothing for links that are not ours. */
export function parseWireAlias(alias: string | undefined): WireOwner | undefined {
  const [first, network = "", containerId = "", pod, ...more] = (alias ?? "").split(" ");
  if (first !== FIRST_WORD || network === "" || containerId === "" || more.length > 0) return undefined;
  if (pod === undefined) return { network, containerId };
  const slash = pod.indexOf("/");
  if (slash < 1 || slash === pod.length - 1) return undefined;
  return { network, containerId, pod: { namespace: pod.slice(0, slash), name: pod.slice(slash + 1) } };
}
