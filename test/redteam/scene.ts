// Sets up the lab for the attacks: two nodes with a real API server; namespace `prod` with a database and its clients; namespace
// `evil` with the tenant's pods; and the tenant's account, which may write objects of many kinds in `evil` and nothing else.
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import { apiServerUrl } from "../../src/lab/kubernetes/control-plane.ts";
import { FABRIC } from "../../src/lab/fabric.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import { Lab } from "../../src/lab/lab.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../src/lab/options.ts";
import type { Terminal } from "../../src/lab/terminal.ts";
import { addPods, up } from "../../src/lab/up.ts";
import { parseAddress, type IpAddress } from "../../src/lib/ip/ip.ts";
import { API_VERSION, type Resource } from "../../src/model/index.ts";

export const LAB = "redteam";
export const NEIGHBOUR = "prod";
export const TENANT = "evil";
/** Open on the database to its clients. */
export const DATABASE_PORT = 80;
/** UDP, open on the database to its clients. Attacks use it to check that traffic still passes. */
export const CHECK_PORT = 9100;
const SERVICE_ADDRESS = "10.96.77.77";

/** Shared by all processes of a run. */
export interface Scene {
  readonly server: string;
  readonly ca: string;
  readonly tenantToken: string;
  /** The token of an account with the permissions of kubelets and of the neighbour. */
  readonly kubeletToken: string;
  readonly pods: readonly LabPod[];
  readonly service: string;
}

export interface SceneOptions {
  readonly dataplane: LabOptions["dataplane"];
  readonly ipv6: boolean;
}

const inMonitoring = "kubernetes.io/metadata.name == 'monitoring'";
/**
 * UDP ports of the database that policy opens to other workloads, and the labels with which an object of the tenant pretends to
 * be one of them.
 */
export const CLAIMS: Readonly<
  Record<number, { readonly source: object; readonly labels: Readonly<Record<string, string>> }>
> = {
  9001: { source: { namespaceSelector: inMonitoring }, labels: { "pcns.kubernetes.io/metadata.name": "monitoring" } },
  9002: {
    source: { namespaceSelector: "projectcalico.org/name == 'monitoring'" },
    labels: { "pcns.projectcalico.org/name": "monitoring", "projectcalico.org/orchestrator": "k8s" },
  },
  9003: {
    source: { namespaceSelector: inMonitoring, serviceAccounts: { selector: "role == 'scraper'" } },
    labels: { "pcns.kubernetes.io/metadata.name": "monitoring", "pcsa.role": "scraper" },
  },
  9004: {
    source: { namespaceSelector: inMonitoring, serviceAccounts: { names: ["scraper"] } },
    labels: {
      "pcns.kubernetes.io/metadata.name": "monitoring",
      "projectcalico.org/serviceaccount": "scraper",
    },
  },
  9005: {
    source: { selector: "app == 'scraper'" },
    labels: { "projectcalico.org/namespace": NEIGHBOUR, app: "scraper" },
  },
};
/** UDP, open on the database to the endpoints of the neighbour's service `trusted`. */
export const TRUSTED_SERVICE_PORT = 9009;
export const CLAIM_PORTS = [...Object.keys(CLAIMS).map(Number), TRUSTED_SERVICE_PORT];

/** Starts the lab and creates everything that a run needs. */
export async function buildScene({ dataplane, ipv6 }: SceneOptions, terminal: Terminal): Promise<Lab> {
  const options: LabOptions = {
    ...DEFAULT_OPTIONS,
    ...{ name: LAB, nodes: 2, podsPerNode: 0, datastore: "kubernetes", dataplane, ipv6 },
  };
  const lab = await up(options, terminal);
  const cluster = new KubernetesCluster(lab);
  const pod = (namespace: string, name: string, node: string, labels: Readonly<Record<string, string>>) => ({
    ...{ namespace, name, node, labels },
  });
  addPods(lab, [
    pod(NEIGHBOUR, "db", "node1", { app: "db" }),
    pod(NEIGHBOUR, "client", "node1", { role: "client" }),
    pod(NEIGHBOUR, "remote", "node2", { role: "client" }),
    pod(TENANT, "mallory1", "node1", { app: "mallory" }),
    pod(TENANT, "mallory2", "node2", { app: "mallory" }),
    pod(TENANT, "target", "node1", { role: "target" }), // selected by the tenant's own policies
    pod(TENANT, "careless", "node1", {}), // has invalid annotations, so all its traffic is dropped
  ]);
  cluster.tryKubectl(["create", "namespace", "monitoring"]);
  lab.apply(policies());
  cluster.kubectl(["apply", "--filename=-"], listOf([...accounts(), trustedService()]));
  // The tenant tries to exploit the garbage collection of leaked addresses.
  cluster.kubectl([
    ...["patch", "kubecontrollersconfigurations.crd.projectcalico.org", "default", "--type=merge", "--patch"],
    JSON.stringify({ spec: { controllers: { node: { leakGracePeriod: "10s", reconcilerPeriod: "5s" } } } }),
  ]);
  const token = (account: string, namespace: string) =>
    cluster.kubectl(["create", "token", account, `--namespace=${namespace}`, "--duration=24h"]).trim();
  for (const { name } of lab.plan.nodes) addServiceRule(lab, name);
  const scene: Scene = {
    server: apiServerUrl(cluster.address),
    ca: readFileSync(cluster.authority.certFile, "utf8"),
    tenantToken: token("tenant", TENANT),
    kubeletToken: token("kubelet", "kube-system"),
    pods: lab.record.pods,
    service: SERVICE_ADDRESS,
  };
  writeFileSync(sceneFile(lab), JSON.stringify(scene), { mode: 0o600 });
  return lab;
}

export const openScene = (lab: Lab): Scene => JSON.parse(readFileSync(sceneFile(lab), "utf8")) as Scene;
const sceneFile = (lab: Lab): string => join(lab.folder.path, "redteam.json");

/** Returns the command line that runs a program in a namespace from which the API server can be reached. */
export const inFabric = (lab: Lab, command: readonly string[]): string[] => [
  "nsenter",
  `--net=/run/netns/${lab.folder.namespace(FABRIC)}`,
  "--",
  ...command,
];

export function addressOf(pod: Pick<LabPod, "addresses">, version: 4 | 6): IpAddress | undefined {
  const found = pod.addresses.find((address) => address.includes(":") === (version === 6));
  return found === undefined ? undefined : parseAddress(found);
}

/** Returns the node's address in the network of the nodes. */
export function nodeAddress(lab: Lab, node: string, version: 4 | 6 = 4): IpAddress | undefined {
  const { interfaces } = lab.plan.nodes.find(({ name }) => name === node) ?? { interfaces: [] };
  const network = interfaces[0]?.addresses.find((address) => address.includes(":") === (version === 6));
  return network === undefined ? undefined : parseAddress(network.replace(/\/.*/, ""));
}

/** The policy of the database: it accepts its clients and those of CLAIMS. No workload may connect to a client. */
function policies(): Resource[] {
  const rule = (protocol: "TCP" | "UDP", port: number, source: object) => ({
    ...{ action: "Allow", protocol, source, destination: { ports: [port] } },
  });
  const policy = (name: string, spec: object): Resource => ({
    apiVersion: API_VERSION,
    kind: "NetworkPolicy",
    metadata: { name, namespace: NEIGHBOUR },
    spec: { tier: "default", order: 100, types: ["Ingress"], ...spec },
  });
  const clients = { selector: "role == 'client'" };
  return [
    policy("default.database", {
      selector: "app == 'db'",
      ingress: [
        rule("TCP", DATABASE_PORT, clients),
        rule("UDP", CHECK_PORT, clients),
        { action: "Allow", protocol: "ICMP", source: clients },
        { action: "Allow", protocol: "ICMPv6", source: clients },
        ...Object.entries(CLAIMS).map(([port, { source }]) => rule("UDP", Number(port), source)),
        { action: "Allow", protocol: "UDP", source: { services: { name: "trusted", namespace: NEIGHBOUR } } },
      ],
    }),
    policy("default.clients", { selector: "role == 'client'", ingress: [] }),
  ];
}

/** The tenant may write what the role `edit` of Kubernetes allows, endpoint slices, and the namespaced kinds of Calico. */
function accounts(): object[] {
  const account = (name: string, namespace: string) => ({
    ...{ apiVersion: "v1", kind: "ServiceAccount", metadata: { name, namespace } },
  });
  const rbac = { apiVersion: "rbac.authorization.k8s.io/v1" };
  const subject = (name: string, namespace: string) => [{ kind: "ServiceAccount", name, namespace }];
  const allOf = (apiGroup: string, ...resources: string[]) => ({ apiGroups: [apiGroup], resources, verbs: ["*"] });
  const roleRef = (kind: string, name: string) => ({ apiGroup: "rbac.authorization.k8s.io", kind, name });
  return [
    account("tenant", TENANT),
    account("kubelet", "kube-system"),
    {
      ...rbac,
      kind: "Role",
      metadata: { name: "tenant", namespace: TENANT },
      rules: [
        allOf("", "pods", "services", "endpoints", "configmaps", "secrets", "serviceaccounts", "serviceaccounts/token"),
        allOf("networking.k8s.io", "networkpolicies"),
        allOf("discovery.k8s.io", "endpointslices"),
        allOf("crd.projectcalico.org", "networkpolicies", "networksets"),
        allOf("crd.projectcalico.org", "stagednetworkpolicies", "stagedkubernetesnetworkpolicies"),
      ],
    },
    {
      ...{ ...rbac, kind: "RoleBinding", metadata: { name: "tenant", namespace: TENANT } },
      ...{ subjects: subject("tenant", TENANT), roleRef: roleRef("Role", "tenant") },
    },
    {
      ...{ ...rbac, kind: "ClusterRoleBinding", metadata: { name: "lab-kubelet" } },
      ...{ subjects: subject("kubelet", "kube-system"), roleRef: roleRef("ClusterRole", "cluster-admin") },
    },
  ];
}

const trustedService = (): object => ({
  apiVersion: "v1",
  kind: "Service",
  metadata: { name: "trusted", namespace: NEIGHBOUR },
  spec: { ports: [{ port: TRUSTED_SERVICE_PORT, protocol: "UDP" }] },
});

const listOf = (items: readonly object[]): string => JSON.stringify({ apiVersion: "v1", kind: "List", items });

/** Adds the NAT rule for the neighbour's service, as kube-proxy would. */
function addServiceRule(lab: Lab, node: string): void {
  const database = addressOf(lab.pod(`${NEIGHBOUR}/db`), 4);
  const rule = `ip daddr ${SERVICE_ADDRESS} tcp dport ${DATABASE_PORT} dnat to ${database}:${DATABASE_PORT}`;
  const text = `add table ip service; delete table ip service; table ip service { chain c { type nat hook prerouting priority dstnat; ${rule}; }; }`;
  const { code, stderr } = lab.host(node).run(["nft", text]);
  if (code !== 0) throw new Error(`no service on ${node}: ${stderr}`);
}
