// Lists the kubectl commands of `cluster diags` and the files for their output. Secrets are listed by name only, so that
// their data never leaves the cluster.
import { isSubdomain } from "../../model/index.ts";

export interface Collect {
  /** Relative to the top directory of the archive. */
  readonly file: string;
  /** Arguments of kubectl. */
  readonly args: readonly string[];
}

/** The namespaces of Calico for all ways of installation. */
const CALICO_NAMESPACES = ["kube-system", "calico-system", "calico-apiserver", "tigera-operator"];

const CALICO_RESOURCES = [
  "bgpconfigurations",
  "bgpfilters",
  "bgppeers",
  "blockaffinities",
  "caliconodestatuses",
  "clusterinformations",
  "felixconfigurations",
  "globalnetworkpolicies",
  "globalnetworksets",
  "hostendpoints",
  "ipamblocks",
  "ipamconfigs",
  "ipamhandles",
  "ippools",
  "ipreservations",
  "kubecontrollersconfigurations",
  "networkpolicies",
  "networksets",
  "stagedglobalnetworkpolicies",
  "stagedkubernetesnetworkpolicies",
  "stagednetworkpolicies",
  "tiers",
];

const KUBERNETES_RESOURCES: readonly { readonly name: string; readonly namespaced: boolean }[] = [
  { name: "nodes", namespaced: false },
  { name: "namespaces", namespaced: false },
  { name: "customresourcedefinitions", namespaced: false },
  { name: "networkpolicies.networking.k8s.io", namespaced: true },
  { name: "services", namespaced: true },
  { name: "endpointslices", namespaced: true },
  { name: "pods", namespaced: true },
  { name: "deployments", namespaced: true },
  { name: "daemonsets", namespaced: true },
  { name: "events", namespaced: true },
];

export function clusterCollects(): Collect[] {
  const resource = (name: string, namespaced: boolean): Collect[] => {
    const scope = namespaced ? ["--all-namespaces"] : [];
    return [
      { file: `cluster/${name}.txt`, args: ["get", name, ...scope, "-o", "wide"] },
      { file: `cluster/${name}.yaml`, args: ["get", name, ...scope, "-o", "yaml"] },
    ];
  };
  return [
    { file: "cluster/version.txt", args: ["version", "-o", "yaml"] },
    { file: "cluster/api-resources.txt", args: ["api-resources"] },
    ...KUBERNETES_RESOURCES.flatMap(({ name, namespaced }) => resource(name, namespaced)),
    ...CALICO_RESOURCES.map((name) => ({
      file: `calico/${name}.yaml`,
      args: ["get", `${name}.crd.projectcalico.org`, "--all-namespaces", "-o", "yaml"],
    })),
    ...CALICO_NAMESPACES.map((namespace) => ({
      file: `cluster/secret-names-${namespace}.txt`,
      args: ["get", "secrets", "-n", namespace, "-o", "custom-columns=NAME:.metadata.name,TYPE:.type"],
    })),
  ];
}

export interface Pod {
  readonly namespace: string;
  readonly name: string;
  readonly node: string;
  readonly app: string;
  readonly containers: readonly string[];
}

const CALICO_APPS = new Set([
  "calico-node",
  "calico-typha",
  "calico-kube-controllers",
  "calico-apiserver",
  "tigera-operator",
]);
const app = (labels: Readonly<Record<string, string>> = {}) =>
  labels["k8s-app"] ?? labels["name"] ?? labels["app"] ?? "";

/** Returns the pods of Calico in the output of `kubectl get pods -A -o json`. */
export function calicoPods(list: unknown): Pod[] {
  const items = (list as { readonly items?: readonly unknown[] }).items ?? [];
  return items.flatMap((item) => {
    const { metadata, spec } = item as {
      readonly metadata: {
        readonly name: string;
        readonly namespace: string;
        readonly labels?: Record<string, string>;
      };
      readonly spec: { readonly nodeName?: string; readonly containers?: readonly { readonly name: string }[] };
    };
    const role = app(metadata.labels);
    if (!CALICO_APPS.has(role)) return [];
    const containers = (spec.containers ?? []).map((container) => container.name);
    const node = spec.nodeName ?? "";
    // The names become arguments of kubectl and file names, so pods with names that Kubernetes does not allow are skipped.
    const names = [metadata.namespace, metadata.name, node || "n", ...containers];
    if (!names.every((name) => typeof name === "string" && isSubdomain(name))) return [];
    return [{ namespace: metadata.namespace, name: metadata.name, node, app: role, containers }];
  });
}

/** Returns at most `limit` pods of each application, those on the nodes in `focus` first. */
export function choosePods(pods: readonly Pod[], focus: readonly string[], limit: number): Pod[] {
  const rank = (pod: Pod) => (focus.includes(pod.node) ? 0 : 1);
  const counts = new Map<string, number>();
  return pods
    .toSorted((a, b) => rank(a) - rank(b) || (a.name < b.name ? -1 : 1))
    .filter((pod) => {
      const count = counts.get(pod.app) ?? 0;
      counts.set(pod.app, count + 1);
      return count < limit;
    });
}

/** Commands that run in the calico-node pods. If a tool is not installed there, the file contains the error. */
const NODE_COMMANDS: readonly { readonly file: string; readonly command: readonly string[] }[] = [
  { file: "ip-address.txt", command: ["ip", "-d", "address"] },
  { file: "ip-route.txt", command: ["ip", "route", "show", "table", "all"] },
  { file: "ip6-route.txt", command: ["ip", "-6", "route", "show", "table", "all"] },
  { file: "ip-rule.txt", command: ["ip", "rule"] },
  { file: "ip-neighbour.txt", command: ["ip", "neighbour"] },
  { file: "nft.txt", command: ["nft", "-n", "-a", "list", "ruleset"] },
  { file: "iptables.txt", command: ["iptables-save", "-c"] },
  { file: "ip6tables.txt", command: ["ip6tables-save", "-c"] },
  { file: "ipset.txt", command: ["ipset", "list"] },
  { file: "bird.txt", command: ["birdcl", "-s", "/var/run/calico/bird.ctl", "show", "protocols", "all"] },
  { file: "bird-routes.txt", command: ["birdcl", "-s", "/var/run/calico/bird.ctl", "show", "route", "all"] },
  { file: "bird6.txt", command: ["birdcl", "-s", "/var/run/calico/bird6.ctl", "show", "protocols", "all"] },
];

export function podCollects(pod: Pod, since: string | undefined): Collect[] {
  const folder = `nodes/${pod.node || "unscheduled"}/${pod.name}`;
  const where = ["-n", pod.namespace];
  const age = since === undefined ? [] : [`--since=${since}`];
  return [
    { file: `${folder}/describe.txt`, args: ["describe", "pod", pod.name, ...where] },
    ...pod.containers.flatMap((container) => [
      { file: `${folder}/${container}.log`, args: ["logs", pod.name, ...where, "-c", container, ...age] },
      {
        file: `${folder}/${container}.previous.log`,
        args: ["logs", pod.name, ...where, "-c", container, "--previous", ...age],
      },
    ]),
    ...(pod.app === "calico-node"
      ? NODE_COMMANDS.map(({ file, command }) => ({
          file: `${folder}/${file}`,
          args: ["exec", pod.name, ...where, "-c", "calico-node", "--", ...command],
        }))
      : []),
  ];
}
