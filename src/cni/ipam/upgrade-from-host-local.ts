// Implements `calico-ipam -upgrade`, which moves the addresses of a node's pods from host-local to Calico's IPAM. No pod may
// start on the node meanwhile: the plugin is removed from the host and the datastore is marked as not ready. Every step can be
// repeated; the file of a reservation is deleted only after its address was assigned in IPAM.
import { existsSync, readdirSync, readFileSync, rmdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import {
  chooseDatastore,
  configFromEnvironment,
  type Datastore,
  InvalidConfig,
  type KubeApi,
  openDatastore,
  openKubeApi,
  Unauthorized,
} from "../../datastore/index.ts";
import {
  AddressTaken,
  type AssignAddressRequest,
  containerHandle,
  goTimestamp,
  Ipam,
  tunnelAttributeType,
  tunnelHandle,
} from "../../ipam/index.ts";
import { lockFile } from "../../kernel/index.ts";
import { addressPlus, cidrAddress, type IpAddress, ipVersion, tryParseAddress, tryParseCidr } from "../../lib/ip/ip.ts";
import type { Logger } from "../../lib/log/log.ts";
import { stderrLogger } from "../../lib/log/stderr-log.ts";
import { delay } from "../../lib/retry.ts";
import { ignoreUnreadable, readClusterInformation, readNode, withSpecFields } from "../../model/index.ts";
import type { KubernetesNode } from "../kubernetes/api.ts";
import type { Environment } from "../request/request.ts";

const NETWORK = "k8s-pod-network";
const RETRY_MS = 1000;
/** Time for plugins that are already running to finish. */
const RUNNING_PLUGINS_MS = 5000;

export interface UpgradeOptions {
  readonly node: string;
  readonly store: Datastore;
  readonly api: KubeApi;
  readonly log: Logger;
  /** Directory with host-local's reservations of the network. */
  readonly reservations?: string;
  /** Directory of the host's plugins. */
  readonly plugins?: string;
  readonly runningPluginsMs?: number;
}

/** A file of host-local: an address and the container that it is assigned to. */
interface Reservation {
  readonly file: string;
  readonly address: IpAddress;
  readonly containerId: string;
}

export async function upgradeFromHostLocal(options: UpgradeOptions): Promise<void> {
  const { log, store } = options;
  const folder = options.reservations ?? `/var/lib/cni/networks/${NETWORK}`;
  if (!existsSync(folder)) return log.info("no host-local reservations found", { folder });
  await assignTunnelAddress(options);
  if (readReservations(folder).length === 0) {
    removeFolder(folder);
    return;
  }
  await setReady(store, false).catch((error: unknown) => {
    // calico-node's ClusterRole does not allow updates of ClusterInformation. Pods of this node cannot start in any case.
    if (!(error instanceof Unauthorized)) throw error;
    log.warn("not allowed to mark the datastore as not ready; other nodes may assign addresses meanwhile", { error });
  });
  const plugins = options.plugins ?? "/host/opt/cni/bin";
  for (const name of ["calico", "host-local"]) rmSync(join(plugins, name), { force: true });
  await delay(options.runningPluginsMs ?? RUNNING_PLUGINS_MS);
  {
    using _lock = await lockFile(join(folder, "lock"));
    await moveAll(options, readReservations(folder));
  }
  await setReady(store, true);
  removeFolder(folder);
  log.info("moved all host-local addresses to Calico's IPAM", { node: options.node });
}

/** The first address of the pod CIDR is the node's tunnel address; it must not be assigned to a pod. */
async function assignTunnelAddress({ node, store, api, log }: UpgradeOptions): Promise<void> {
  const stored = await store.get({ type: "resource", kind: "Node", name: node });
  if (readNode(stored.value, ignoreUnreadable).tunnels.ipip[4] !== undefined) return;
  const kubernetesNode = (await api.get(`/api/v1/nodes/${encodeURIComponent(node)}`)) as unknown as KubernetesNode;
  const cidr = tryParseCidr(kubernetesNode.spec.podCIDR ?? "");
  if (cidr === undefined || ipVersion(cidr) !== 4) return;
  const address = addressPlus(cidrAddress(cidr), 1);
  await assignOnce(new Ipam({ datastore: store, log }), {
    address,
    host: node,
    handleId: tunnelHandle("ipip", 4, node),
    attributes: { node, type: tunnelAttributeType("ipip", 4) },
  });
}

function readReservations(folder: string): Reservation[] {
  return readdirSync(folder).flatMap((file) => {
    const address = tryParseAddress(file);
    if (address === undefined) return []; // the lock file, or last_reserved_ip
    const containerId = readFileSync(join(folder, file), "utf8").split(/\r?\n/)[0]?.trim() ?? "";
    return [{ file: join(folder, file), address, containerId }];
  });
}

async function moveAll(options: UpgradeOptions, reservations: readonly Reservation[]): Promise<void> {
  const { node, api, store, log } = options;
  const { items } = await api.list("/api/v1/pods", { query: { fieldSelector: `spec.nodeName=${node}` } });
  const pods = new Map(
    items.flatMap((pod) => {
      const ip = (pod as { status?: { podIP?: string } }).status?.podIP;
      return ip === undefined ? [] : [[ip, pod.metadata] as const];
    }),
  );
  const ipam = new Ipam({ datastore: store, log });
  for (const { file, address, containerId } of reservations) {
    const pod = pods.get(address);
    if (pod === undefined || containerId === "")
      log.info("dropped a host-local reservation that no pod uses", { address });
    else
      await assignOnce(ipam, {
        address,
        host: node,
        handleId: containerHandle(NETWORK, containerId),
        attributes: { node, pod: pod.name, namespace: pod.namespace ?? "", timestamp: goTimestamp(new Date()) },
      });
    rmSync(file);
  }
}

/** Succeeds if the handle already has the address, because an earlier run may have been interrupted after this step. */
async function assignOnce(ipam: Ipam, request: AssignAddressRequest & { readonly handleId: string }): Promise<void> {
  try {
    await ipam.assignAddress(request);
  } catch (error) {
    if (!(error instanceof AddressTaken) || error.handleId !== request.handleId) throw error;
  }
}

async function setReady(store: Datastore, isReady: boolean): Promise<void> {
  const stored = await store.get({ type: "resource", kind: "ClusterInformation", name: "default" });
  const before = readClusterInformation(stored.value, ignoreUnreadable);
  if (before.isDatastoreReady === isReady) return;
  const value = withSpecFields(stored.value, { datastoreReady: isReady });
  await store.update({ key: stored.key, value, revision: stored.revision });
}

/** Deletes host-local's bookkeeping files and the folder. Fails if the folder contains other files. */
function removeFolder(folder: string): void {
  for (const name of readdirSync(folder))
    if (name === "lock" || name.startsWith("last_reserved_ip")) rmSync(join(folder, name));
  rmdirSync(folder);
}

/** Retries until the upgrade succeeds, because the node must not start with only some of the addresses moved. */
export async function main(env: Environment): Promise<number> {
  const log = stderrLogger("info");
  const node = env["KUBERNETES_NODE_NAME"] ?? "";
  if (node === "") {
    log.error("KUBERNETES_NODE_NAME is not set");
    return 1;
  }
  let cluster: Pick<UpgradeOptions, "store" | "api">;
  try {
    cluster = await openCluster(env);
  } catch (error) {
    log.error("cannot upgrade from host-local without access to the Kubernetes API", { error });
    return 1;
  }
  for (;;)
    try {
      await upgradeFromHostLocal({ node, ...cluster, log });
      return 0;
    } catch (error) {
      log.warn("upgrade from host-local failed, retrying", { error });
      await delay(RETRY_MS);
    }
}

async function openCluster(env: Environment): Promise<Pick<UpgradeOptions, "store" | "api">> {
  const config = chooseDatastore({ ...configFromEnvironment(env), datastoreType: "kubernetes" }, { env });
  if (config.type !== "kubernetes") throw new InvalidConfig(`the datastore is ${config.type}`);
  return { store: await openDatastore(config), api: await openKubeApi(config, env) };
}
