// The first ADD of a service would take several times as long as the others: code that never ran, a connection that is not
// open, answers that are not remembered. So it is rehearsed when the service starts, on a datastore in memory and without a
// pod, and the node's datastore is asked what is the same for every pod. Nothing is changed, there or in the kernel.
import { type Datastore, NotFound, openSqliteInMemory, type Recall } from "../datastore/index.ts";
import { openRouteKernel, type ReceivedRequest, removeLink } from "../kernel/index.ts";
import { API_VERSION, type KindName, type Resource } from "../model/index.ts";
import { checkDatastoreReady } from "./gates.ts";

export interface RehearsalOptions {
  readonly store: Datastore;
  /** Learns what every pod will ask. */
  readonly recall: Recall;
  /** Does what is asked on that datastore. */
  readonly answer: (store: Datastore, request: ReceivedRequest) => Promise<string>;
  readonly signal: AbortSignal;
}

/** What was answered on stage. */
export async function rehearse({ store, recall, answer, signal }: RehearsalOptions): Promise<readonly string[]> {
  const asked = recall.attempt(store, (learning) => askInAdvance(learning, signal));
  asked.catch(() => {}); // awaited below
  const stage = await openSqliteInMemory();
  try {
    await put(stage, "ClusterInformation", "default", { datastoreReady: true });
    await put(stage, "Node", NODE, {});
    await put(stage, "IPPool", "pool", { cidr: "192.0.2.0/24", blockSize: 26 });
    // Addresses and endpoint are stored, the pod's namespace is missing, all is taken back. Then a DEL.
    const replies = [await answer(stage, requestFor("ADD")), await answer(stage, requestFor("DEL"))];
    await askKernel();
    await asked;
    return replies;
  } finally {
    await stage.close();
  }
}

async function askInAdvance(store: Datastore, signal: AbortSignal): Promise<void> {
  await checkDatastoreReady(store, signal);
  for (const kind of ["IPPool", "IPReservation"] as const) await store.list({ type: "resource", kind }, { signal });
  await store.get({ type: "ipamConfig" }, { signal }).catch((error: unknown) => {
    if (!(error instanceof NotFound)) throw error;
  });
}

const NODE = "rehearsal";

async function put(store: Datastore, kind: KindName, name: string, spec: object): Promise<void> {
  const value = { apiVersion: API_VERSION, kind, metadata: { name }, spec } as Resource;
  await store.apply({ key: { type: "resource", kind, name }, value });
}

function requestFor(command: string): ReceivedRequest {
  const env = {
    CNI_COMMAND: command,
    CNI_CONTAINERID: NODE,
    CNI_NETNS: "/var/run/netns/none",
    CNI_IFNAME: "eth0",
    CNI_PATH: "/opt/cni/bin",
  };
  const conf = { cniVersion: "1.0.0", name: NODE, type: "calico", nodename: NODE, nodename_file_optional: true };
  const config = { ...conf, ipam: { type: "calico-ipam" } };
  return { text: `${JSON.stringify({ env })}\n${JSON.stringify(config)}`, isAwaited: () => true };
}

/** A link that is there cannot be made again, and one that is not there not be removed. */
async function askKernel(): Promise<void> {
  using kernel = openRouteKernel();
  kernel.links.get("lo");
  await kernel.createLinkAside({ name: "lo", type: { kind: "veth", peer: { name: "lo" } } }).catch(() => {});
  await removeLink("cali-rehearsal");
}
