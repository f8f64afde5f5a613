// Runs one ADD and one DEL when the CNI service starts, so that the first pod does not wait until the runtime has loaded and
// compiled their code. They run on a datastore in memory and without a network namespace: the ADD assigns addresses, fails
// to open the namespace, and is undone. Nothing is changed in the node's datastore or in the kernel.
import { type Datastore, openSqliteInMemory } from "../../datastore/index.ts";
import { openRtnetlink, type ReceivedRequest, removeLink } from "../../kernel/index.ts";
import { API_VERSION, type KindName, type Resource } from "../../model/index.ts";

const NODE = "warm-up";

/**
 * @param handle handles requests on the given datastore
 * @returns the replies to ADD and DEL
 */
export async function warmUp(
  handle: (store: Datastore, request: ReceivedRequest) => Promise<string>,
): Promise<readonly string[]> {
  const store = await openSqliteInMemory();
  try {
    await put(store, "ClusterInformation", "default", { datastoreReady: true });
    await put(store, "Node", NODE, {});
    await put(store, "IPPool", "pool", { cidr: "192.0.2.0/24", blockSize: 26 });
    const replies = [await handle(store, requestFor("ADD")), await handle(store, requestFor("DEL"))];
    await callKernel();
    return replies;
  } finally {
    await store.close();
  }
}

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
  // Not the host's lock file, which a plugin process may hold.
  const config = { ...conf, ipam_lock_file: "/dev/null", ipam: { type: "calico-ipam" } };
  return { text: `${JSON.stringify({ env })}\n${JSON.stringify(config)}`, isCallerConnected: () => true };
}

/** Requests that change nothing: creating a link that exists, and deleting one that does not exist. */
async function callKernel(): Promise<void> {
  using kernel = openRtnetlink();
  kernel.links.get("lo");
  await kernel.createLinkOffThread({ name: "lo", type: { kind: "veth", peer: { name: "lo" } } }).catch(() => {});
  await removeLink("cali-warm-up");
}
