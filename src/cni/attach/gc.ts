// GC: what belongs to this node and network but to no container the runtime still knows is taken away: endpoints,
// wires, addresses. The runtime adds and deletes nothing meanwhile.
// https://www.cni.dev/docs/spec/#gc-clean-up-any-stale-resources
import { openRtnetlink, removeLink } from "../../kernel/index.ts";
import { isMachineHandle, UnknownHandle } from "../../ipam/index.ts";
import { type InterfaceOwner, parseInterfaceAlias, workloadEndpointPrefix } from "../../model/index.ts";
import type { CniContext } from "../context.ts";
import { isForeign } from "../request/dataplane-options.ts";
import { deleteEndpoint, getEndpoint, type StoredEndpoint, type WorkloadEndpoint } from "./endpoint.ts";
import { CniError, DECODING_FAILURE } from "../error.ts";
import { checkDatastoreReady } from "./readiness.ts";
import { CALICO_IPAM } from "../ipam/delegation.ts";

/** A host interface whose container is gone. */
interface StaleWire {
  readonly name: string;
  readonly owner: InterfaceOwner;
}
/** Addresses whose container is gone. */
interface LeakedHandle {
  readonly handle: string;
  readonly pod?: InterfaceOwner["pod"];
}

export async function collectGarbage(context: CniContext): Promise<void> {
  const valid = validContainers(context.request.config["cni.dev/valid-attachments"]);
  await checkDatastoreReady(context.store);
  const wires = findStaleWires(context, valid);
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
      ...wires.map(({ owner }) => owner.pod),
      ...leaked.map((l) => l.pod),
    ]);
    const kept = await removeEndpoints(context, valid, endpoints);
    for (const { name, owner } of wires) {
      if (kept.has(name)) continue;
      context.log.info("Removing the interface of a container that is gone", { interface: name, ...owner });
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

function findStaleWires({ conf }: CniContext, valid: ReadonlySet<string>): StaleWire[] {
  using host = openRtnetlink();
  return host.links.list().flatMap(({ name, alias }) => {
    const owner = parseInterfaceAlias(alias);
    return owner === undefined || owner.network !== conf.name || valid.has(owner.containerId) ? [] : [{ name, owner }];
  });
}

/** Under this network's handles, assigned for this node. A machine's are its own, whatever became of its containers. */
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
 * The endpoints that may be garbage. In the Kubernetes API an endpoint is its pod: the plugin's account may get a pod but
 * not list them, and a large cluster should not be listed anyway; which pods to look at the wires and addresses say.
 */
async function readEndpoints(
  { store, identity }: CniContext,
  pods: readonly InterfaceOwner["pod"][],
): Promise<StoredEndpoint[]> {
  if (store.name !== "kubernetes") {
    const { items } = await store.list({ type: "resource", kind: "WorkloadEndpoint" });
    return items.map((stored) => ({ stored, endpoint: stored.value as WorkloadEndpoint }));
  }
  const wanted = new Map(pods.flatMap((pod) => (pod === undefined ? [] : [[`${pod.namespace}/${pod.name}`, pod]])));
  const found: StoredEndpoint[] = [];
  for (const { namespace, name } of wanted.values()) {
    const whose = { ...identity, orchestrator: "k8s", namespace, pod: name, endpoint: "eth0" } as const;
    const endpoint = await getEndpoint(store, whose, {});
    if (endpoint !== undefined) found.push(endpoint);
  }
  return found;
}

/** Those whose container is gone, with their interfaces. The names of the interfaces of all others. */
async function removeEndpoints(
  { store, identity, conf, log }: CniContext,
  valid: ReadonlySet<string>,
  endpoints: readonly StoredEndpoint[],
): Promise<ReadonlySet<string>> {
  const kept = new Set<string>();
  const prefix = workloadEndpointPrefix({ node: identity.node });
  for (const found of endpoints) {
    const { containerID = "", node, orchestrator, profiles = [], interfaceName = "" } = found.endpoint.spec;
    const isOurs = node === identity.node && found.stored.key.name.startsWith(prefix);
    // Without a container it was made by others; outside Kubernetes it may be of another network of this runtime.
    const isAttachment = containerID !== "" && (orchestrator === "k8s" || profiles.includes(conf.name));
    if (!isOurs || !isAttachment || valid.has(containerID)) {
      kept.add(interfaceName);
      continue;
    }
    log.info("Removing the endpoint of a container that is gone", { endpoint: found.stored.key.name, containerID });
    if (!(await deleteEndpoint(store, found, {}))) kept.add(interfaceName);
    else if (!isForeign(conf) && servesEndpoint(interfaceName, found.endpoint)) await removeLink(interfaceName);
  }
  return kept;
}

/**
 * Whether the interface is that of the endpoint's container. The endpoint of a pod that is not attached has the interface
 * name that is computed from the pod's name, which may be the interface of another pod.
 */
function servesEndpoint(interfaceName: string, { spec }: WorkloadEndpoint): boolean {
  if (interfaceName === "") return false;
  using host = openRtnetlink();
  const owner = parseInterfaceAlias(host.links.get(interfaceName)?.alias);
  return owner === undefined ? (spec.ipNetworks ?? []).length > 0 : owner.containerId === spec.containerID;
}

async function releaseLeaked({ ipam, log }: CniContext, leaked: readonly LeakedHandle[]): Promise<void> {
  for (const { handle } of leaked) {
    log.info("Releasing the addresses of a container that is gone", { handle });
    try {
      await ipam.releaseByHandle(handle);
    } catch (error) {
      if (!(error instanceof UnknownHandle)) throw error;
    }
  }
}
