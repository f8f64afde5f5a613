// Implements GC: removes endpoints, interfaces and addresses of this node and network whose container is not in the runtime's
// list of valid attachments. The runtime runs no ADD or DEL meanwhile.
// https://www.cni.dev/docs/spec/#gc-clean-up-any-stale-resources
import { openRtnetlink, removeLink } from "../../kernel/index.ts";
import { isMachineHandle, UnknownHandle } from "../../ipam/index.ts";
import { type InterfaceOwner, parseInterfaceAlias, workloadEndpointPrefix } from "../../model/index.ts";
import type { CniContext } from "../context.ts";
import { usesGrpcDataplane } from "../request/dataplane-options.ts";
import { deleteEndpoint, getEndpoint, type StoredEndpoint, type WorkloadEndpoint } from "./endpoint.ts";
import { CniError, DECODING_FAILURE } from "../error.ts";
import { checkDatastoreReady } from "./readiness.ts";
import { CALICO_IPAM } from "../ipam/ipam-plugin.ts";

/** A host interface whose container does not exist any more. */
interface StaleInterface {
  readonly name: string;
  readonly owner: InterfaceOwner;
}
/** A handle whose container does not exist any more. */
interface LeakedHandle {
  readonly handle: string;
  readonly pod?: InterfaceOwner["pod"];
}

export async function collectGarbage(context: CniContext): Promise<void> {
  const valid = validContainers(context.request.config["cni.dev/valid-attachments"]);
  await checkDatastoreReady(context.store);
  const interfaces = findStaleInterfaces(context, valid);
  const leaked = context.conf.ipam.type === CALICO_IPAM ? await findLeakedHandles(context, valid) : [];
  const failures: unknown[] = [];
  const attempt = async (action: () => Promise<void>): Promise<void> => {
    try {
      await action();
    } catch (error) {
      failures.push(error);
    }
  };
  await attempt(async () => {
    const endpoints = await readEndpoints(context, [
      ...interfaces.map(({ owner }) => owner.pod),
      ...leaked.map((l) => l.pod),
    ]);
    const kept = await removeEndpoints(context, valid, endpoints);
    for (const { name, owner } of interfaces) {
      if (kept.has(name)) continue;
      context.log.info("removing a stale interface", { interface: name, ...owner });
      await removeLink(name);
    }
  });
  await attempt(() => releaseLeaked(context, leaked));
  if (failures.length > 0) throw failures[0];
}

function validContainers(attachments: unknown): ReadonlySet<string> {
  if (!Array.isArray(attachments))
    throw new CniError(DECODING_FAILURE, "cni.dev/valid-attachments: want a list of {containerID, ifname}");
  return new Set(
    attachments.map((attachment: unknown) => {
      const id = (attachment as { containerID?: unknown } | null)?.containerID;
      if (typeof id !== "string")
        throw new CniError(DECODING_FAILURE, "cni.dev/valid-attachments: containerID is missing");
      return id;
    }),
  );
}

function findStaleInterfaces({ conf }: CniContext, valid: ReadonlySet<string>): StaleInterface[] {
  using host = openRtnetlink();
  return host.links.list().flatMap(({ name, alias }) => {
    const owner = parseInterfaceAlias(alias);
    return owner === undefined || owner.network !== conf.name || valid.has(owner.containerId) ? [] : [{ name, owner }];
  });
}

/** Returns handles of this network with addresses of this node. A virtual machine's handle does not depend on its containers. */
async function findLeakedHandles(
  { store, identity, conf }: CniContext,
  valid: ReadonlySet<string>,
): Promise<LeakedHandle[]> {
  const { items } = await store.list({ type: "block" });
  const prefix = `${conf.name}.`;
  const leaked = new Map<string, LeakedHandle>();
  for (const { value } of items)
    for (const { handleId, secondary } of value.attributes) {
      if (handleId === undefined || handleId === null || !handleId.startsWith(prefix)) continue;
      if (isMachineHandle(conf.name, handleId)) continue;
      if (secondary?.["node"] !== identity.node || valid.has(handleId.slice(prefix.length))) continue;
      const { namespace, pod: name } = secondary;
      leaked.set(handleId, {
        handle: handleId,
        pod: namespace === undefined || name === undefined ? undefined : { namespace, name },
      });
    }
  return [...leaked.values()];
}

/**
 * Returns the endpoints that may be stale. In the Kubernetes datastore an endpoint is its pod. The plugin's account may get but
 * not list pods, and listing a large cluster would be slow, so only the given pods are read.
 */
async function readEndpoints(
  { store, identity }: CniContext,
  pods: readonly InterfaceOwner["pod"][],
): Promise<StoredEndpoint[]> {
  if (store.name !== "kubernetes") {
    const { items } = await store.list({ type: "resource", kind: "WorkloadEndpoint" });
    return items.map((stored) => ({ stored, endpoint: stored.value as WorkloadEndpoint }));
  }
  const uniquePods = new Map(pods.flatMap((pod) => (pod === undefined ? [] : [[`${pod.namespace}/${pod.name}`, pod]])));
  const found: StoredEndpoint[] = [];
  for (const { namespace, name } of uniquePods.values()) {
    const podIdentity = { ...identity, orchestrator: "k8s", namespace, pod: name, endpoint: "eth0" } as const;
    const endpoint = await getEndpoint(store, podIdentity, {});
    if (endpoint !== undefined) found.push(endpoint);
  }
  return found;
}

/**
 * Deletes the endpoints whose container does not exist any more, with their interfaces.
 * @returns the interface names of all other endpoints
 */
async function removeEndpoints(
  { store, identity, conf, log }: CniContext,
  valid: ReadonlySet<string>,
  endpoints: readonly StoredEndpoint[],
): Promise<ReadonlySet<string>> {
  const kept = new Set<string>();
  const prefix = workloadEndpointPrefix({ node: identity.node });
  for (const found of endpoints) {
    const { containerID = "", node, orchestrator, profiles = [], interfaceName = "" } = found.endpoint.spec;
    const isOfThisNode = node === identity.node && found.stored.key.name.startsWith(prefix);
    // An endpoint without a container was not created by a CNI plugin. Outside Kubernetes it may belong to another network.
    const isAttachment = containerID !== "" && (orchestrator === "k8s" || profiles.includes(conf.name));
    if (!isOfThisNode || !isAttachment || valid.has(containerID)) {
      kept.add(interfaceName);
      continue;
    }
    log.info("deleting a stale endpoint", { endpoint: found.stored.key.name, containerID });
    if (!(await deleteEndpoint(store, found, {}))) kept.add(interfaceName);
    else if (!usesGrpcDataplane(conf) && servesEndpoint(interfaceName, found.endpoint)) await removeLink(interfaceName);
  }
  return kept;
}

/**
 * True if the interface belongs to the endpoint's container. The endpoint of a pod that is not attached has the interface name
 * that is computed from the pod's name, which may be the interface of another pod.
 */
function servesEndpoint(interfaceName: string, { spec }: WorkloadEndpoint): boolean {
  if (interfaceName === "") return false;
  using host = openRtnetlink();
  const owner = parseInterfaceAlias(host.links.get(interfaceName)?.alias);
  return owner === undefined ? (spec.ipNetworks ?? []).length > 0 : owner.containerId === spec.containerID;
}

async function releaseLeaked({ ipam, log }: CniContext, leaked: readonly LeakedHandle[]): Promise<void> {
  for (const { handle } of leaked) {
    log.info("releasing the addresses of a stale container", { handle });
    try {
      await ipam.releaseByHandle(handle);
    } catch (error) {
      if (!(error instanceof UnknownHandle)) throw error;
    }
  }
}
