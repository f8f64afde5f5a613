// Starts the programs of a lab's hosts: the real calico-node, BIRD on routers, and etcd if it is the datastore. Each has only
// the environment that an operator would set.
import { existsSync, realpathSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import type { LabFolder } from "./folder.ts";
import { FABRIC } from "./fabric.ts";
import { baseEnvironment, LabHost } from "./host.ts";
import type { LabOptions } from "./options.ts";
import { type LabPlan, type PlannedNode, type PlannedRouter, POD_CIDR } from "./plan.ts";
import { findProcess, startProcess } from "./process.ts";

/** Administrator's kubeconfig on nodes with a kubelet. */
const NODE_KUBECONFIG = "/etc/kubernetes/admin.kubeconfig";
/** The shared folder, as mounted in each host. */
const SHARED = "/var/lib/calico/datastore";
export const SQLITE_PATH = `${SHARED}/calico.db`;
export const ADMIN_KUBECONFIG = "admin.kubeconfig";
/** @param node the only node whose objects the token may write; absent if the account is not limited to a node */
export const accountKubeconfig = (account: string, node?: string): string =>
  `${account}${node === undefined ? "" : `.${node}`}.kubeconfig`;
const ETCD_PORT = 2379;

/** Path of a program of this build: next to the executable, or in dist/ if run from source. */
export function rolePath(role: string): string {
  const folders = [dirname(realpathSync(process.execPath)), join(import.meta.dir, "../../dist")];
  const path = folders.map((folder) => join(folder, role)).find((candidate) => existsSync(candidate));
  if (path === undefined) throw new Error(`${role} is not built; make build`);
  return path;
}

/** Environment variables that select the datastore. */
export function datastoreEnvironment(options: LabOptions, plan: LabPlan): Record<string, string> {
  if (options.datastore === "sqlite") return { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: SQLITE_PATH };
  if (options.datastore === "kubernetes")
    return {
      DATASTORE_TYPE: "kubernetes",
      KUBECONFIG: options.kubelets ? NODE_KUBECONFIG : `${SHARED}/${ADMIN_KUBECONFIG}`,
    };
  return { DATASTORE_TYPE: "etcdv3", ETCD_ENDPOINTS: `http://${controlAddress(plan)}:${ETCD_PORT}` };
}

/** The same for a program with its own service account in the manifest. */
export const kubernetesAccount = (account: string, node?: string): { DATASTORE_TYPE: string; KUBECONFIG: string } => ({
  DATASTORE_TYPE: "kubernetes",
  KUBECONFIG: `${SHARED}/${accountKubeconfig(account, node)}`,
});

const controlAddress = (plan: LabPlan): string => (plan.control.addresses[0] ?? "").split("/")[0] ?? "";

export function nodeEnvironment(options: LabOptions, plan: LabPlan, node: PlannedNode): Record<string, string> {
  const vxlan = options.backend === "vxlan" ? "Always" : "Never";
  return {
    ...(options.datastore === "kubernetes"
      ? kubernetesAccount("calico-node", node.name)
      : datastoreEnvironment(options, plan)),
    NODENAME: node.name,
    CALICO_NETWORKING_BACKEND: options.backend,
    CALICO_IPV4POOL_CIDR: POD_CIDR.v4,
    CALICO_IPV4POOL_IPIP: "Never",
    CALICO_IPV4POOL_VXLAN: vxlan,
    CALICO_IPV4POOL_NAT_OUTGOING: "false",
    ...(options.ipv6
      ? { CALICO_IPV6POOL_CIDR: POD_CIDR.v6, CALICO_IPV6POOL_VXLAN: vxlan, FELIX_IPV6SUPPORT: "true" }
      : { FELIX_IPV6SUPPORT: "false" }),
    CLUSTER_TYPE: "lab",
    FELIX_NFTABLESMODE: options.dataplane === "nft" ? "Enabled" : "Disabled",
    FELIX_HEALTHENABLED: "true",
    FELIX_LOGSEVERITYSCREEN: "info",
    FELIX_USAGEREPORTINGENABLED: "false",
    CALICO_DISABLE_FILE_LOGGING: "true",
    ...node.environment,
  };
}

/** @param settings variables set by `calico lab set` */
export function startNode(
  folder: LabFolder,
  options: LabOptions,
  plan: LabPlan,
  node: PlannedNode,
  settings: Readonly<Record<string, string>> = {},
): void {
  const host = new LabHost(folder, node.name);
  if (host.program("calico-node") !== undefined) return;
  host.startProgram("calico-node", [rolePath("calico-node")], {
    ...nodeEnvironment(options, plan, node),
    ...settings,
  });
}

export function startRouter(folder: LabFolder, router: PlannedRouter): void {
  const host = new LabHost(folder, router.name);
  if (host.program("bird") !== undefined) return;
  const config = join(folder.shared, `${router.name}.conf`);
  writeFileSync(config, routerConfig(router));
  const inside = `${SHARED}/${router.name}.conf`;
  host.startProgram("bird", ["bird", "-f", "-c", inside, "-s", "/run/bird.ctl"], {});
}

export function startEtcd(folder: LabFolder, plan: LabPlan): void {
  if (findProcess(folder, "etcd") !== undefined) return;
  const url = `http://${controlAddress(plan)}:${ETCD_PORT}`;
  const peer = "http://127.0.0.1:2380"; // the loopback of the fabric's namespace
  const command = ["etcd", "--data-dir", join(folder.path, "etcd"), "--listen-client-urls", url];
  const more = ["--advertise-client-urls", url, "--listen-peer-urls", peer, "--initial-advertise-peer-urls", peer];
  const rest = ["--initial-cluster", `default=${peer}`, "--unsafe-no-fsync", "--log-level", "error"];
  startProcess(
    folder,
    "etcd",
    ["nsenter", `--net=/run/netns/${folder.namespace(FABRIC)}`, "--", ...command, ...more, ...rest],
    baseEnvironment(),
  );
}

/** Configuration of a top-of-rack router: eBGP to each neighbour, all learned routes are announced. */
function routerConfig(router: PlannedRouter): string {
  const neighbours = router.neighbours.map(({ address, asNumber }, i) => {
    const family = address.includes(":") ? "ipv6" : "ipv4";
    return `protocol bgp peer${i + 1} {
  local as ${router.asNumber};
  neighbor ${address} as ${asNumber};
  ${family} { import all; export all; next hop self; };
  graceful restart on;
}
`;
  });
  return `router id ${router.routerId};
protocol device { scan time 2; }
protocol direct { ipv4; ipv6; }
protocol kernel kernel4 { ipv4 { export all; }; merge paths on; }
protocol kernel kernel6 { ipv6 { export all; }; merge paths on; }
${neighbours.join("")}`;
}
