// GC: what belongs to this node and network but to no container the runtime still knows is taken away: endpoints,
// addresses, host interfaces. https://www.cni.dev/docs/spec/#gc-clean-up-any-stale-resources
import { openRouteKernel } from "../kernel/index.ts";
import { UnknownHandle } from "../ipam/index.ts";
import { workloadEndpointPrefix } from "../model/index.ts";
import type { CniContext } from "./context.ts";
import { removeHostLink } from "./datapath.ts";
import { deleteEndpoint, type StoredEndpoint, type WorkloadEndpoint } from "./endpoint.ts";
import { CniError, DECODING_FAILURE } from "./error.ts";
import { checkDatastoreReady } from "./gates.ts";
import { CALICO_IPAM } from "./ipam-delegation.ts";

export async function collectGarbage(context: CniContext): Promise<void> {
  const valid = validContainers(context.request.config["cni.dev/valid-attachments"]);
  await checkDatastoreReady(context.store);
  const failures: unknown[] = [];
  const attempt = async (action: () => Promise<void>): Promise<void> => {
    try {
      await action();
    } catch (error) {
      failures.push(error);
    }
  };
  await attempt(() => removeEndpoints(context, valid));
  if (context.conf.ipam.type === CALICO_IPAM) await attempt(() => releaseLeaked(context, valid));
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

/** Endpoints of this node and network whose container is gone. An endpoint without a container was made by others. */
async function removeEndpoints({ store, identity, conf, log }: CniContext, valid: ReadonlySet<string>): Promise<void> {
  const { items } = await store.list({ type: "resource", kind: "WorkloadEndpoint" });
  const prefix = workloadEndpointPrefix({ node: identity.node });
  using host = openRouteKernel();
  for (const stored of items) {
    const endpoint = stored.value as WorkloadEndpoint;
    const { containerID = "", node, orchestrator, profiles = [], interfaceName = "" } = endpoint.spec;
    if (!stored.key.name.startsWith(prefix) || node !== identity.node) continue;
    if (containerID === "" || valid.has(containerID)) continue;
    if (orchestrator !== "k8s" && !profiles.includes(conf.name)) continue; // of another network of this runtime
    log.info("Removing the endpoint of a container that is gone", { endpoint: stored.key.name, containerID });
    const found: StoredEndpoint = { stored, endpoint };
    if ((await deleteEndpoint(store, found)) && interfaceName !== "") removeHostLink(host, interfaceName);
  }
}

/** Addresses under this network's handles, assigned for this node, whose container is gone. */
async function releaseLeaked(
  { store, ipam, identity, conf, log }: CniContext,
  valid: ReadonlySet<string>,
): Promise<void> {
  const { items } = await store.list({ type: "block" });
  const prefix = `${conf.name}.`;
  const leaked = new Set<string>();
  for (const { value } of items)
    for (const { handleId, secondary } of value.attributes) {
      if (handleId === undefined || handleId === null || !handleId.startsWith(prefix)) continue;
      if (secondary?.["node"] === identity.node && !valid.has(handleId.slice(prefix.length))) leaked.add(handleId);
    }
  for (const handle of leaked) {
    log.info("Releasing the addresses of a container that is gone", { handle });
    try {
      await ipam.releaseByHandle(handle);
    } catch (error) {
      if (!(error instanceof UnknownHandle)) throw error;
    }
  }
}
