// Uninstalls Calico from a cluster as described in docs/kubernetes.md, and searches for remaining pods and traces on nodes.
import { readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { delay } from "../../src/lib/retry.ts";
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import type { KubernetesHost } from "../../src/lab/kubernetes/host.ts";
import { manifestPath, networkManifest } from "../../src/lab/kubernetes/network.ts";

/** Patterns for traces of Calico in the output of each tool. */
const TRACES: readonly { readonly what: string; readonly command: readonly string[]; readonly ours: RegExp }[] = [
  {
    what: "interface",
    command: ["ip", "-o", "link"],
    ours: /\b(cali[0-9a-z]+|vxlan[\w.-]*calico|tunl0|wireguard\.cali)\b/,
  },
  ...(["-4", "-6"] as const).flatMap((family) => [
    {
      what: "route",
      command: ["ip", family, "route", "show", "table", "all"],
      ours: /proto (80|bird|12)\b|dev (cali|vxlan)|^blackhole/,
    },
    // Except for the three default rules of the kernel.
    { what: "rule", command: ["ip", family, "rule"], ours: /^(?!0:|32766:|32767:|$)/ },
    { what: "neighbour", command: ["ip", family, "neigh", "show", "proxy"], ours: /./ },
  ]),
  { what: "nft table", command: ["nft", "list", "tables"], ours: /calico/ },
  { what: "nft rule", command: ["nft", "list", "ruleset"], ours: /cali[-:4d]|calico/ },
  ...["iptables", "iptables-legacy", "ip6tables", "ip6tables-legacy"].map((tool) => ({
    what: `${tool} chain`,
    command: [`${tool}-save`],
    ours: /cali[-:]/,
  })),
  { what: "ipset", command: ["ipset", "list", "-name"], ours: /^cali/ },
  { what: "CNI file", command: ["ls", "-A", "/etc/cni/net.d", "/opt/cni/bin"], ours: /calico/ },
  { what: "file", command: ["ls", "-A", "/var/lib/calico", "/run/calico", "/var/run/calico"], ours: /^(?!\/|ls:|$)./ },
  { what: "process", command: ["ps", "-eo", "args"], ours: /^(\S*\/)?(calico(-[a-z-]+)?|bird6?)( |$)/ },
];

const PAGE = join(import.meta.dir, "../../docs/kubernetes.md");
const MANIFESTS = dirname(manifestPath("uninstall.yaml"));
const PODS_WAIT_MS = 90_000;
/** The minimum number of interfaces, routes, rules, files and processes on a working node. */
const LEAST_TRACES = 20;

/**
 * Runs the commands of docs/kubernetes.md.
 * @returns one line per pod of Calico and per trace on a node that is left
 */
export async function uninstall(cluster: KubernetesCluster): Promise<string[]> {
  // Finding no traces afterwards is meaningful only if some are found before.
  for (const { host } of cluster.places)
    if (tracesOn(host).length < LEAST_TRACES) throw new Error(`${host.name}: found no traces of a running Calico`);
  const network = networkManifest(cluster.lab.options);
  for (const words of documentedCommands(readFileSync(PAGE, "utf8")))
    cluster.kubectl(
      words.map((word) =>
        word === "manifests/calico.yaml" ? network : word.replace(/^manifests\//, () => `${MANIFESTS}/`),
      ),
    );
  // The garbage collector deletes the pods of a deleted workload, and kubelets stop them, some time later.
  const deadline = performance.now() + PODS_WAIT_MS;
  while (remainingPods(cluster).length > 0 && performance.now() < deadline) await delay(500);
  return [...remainingPods(cluster), ...cluster.places.flatMap(({ host }) => tracesOn(host))];
}

/** The kubectl commands under "Uninstall", each as its arguments. */
function documentedCommands(page: string): string[][] {
  const section = page.split(/^## /m).find((part) => part.startsWith("Uninstall\n")) ?? "";
  const commands = [...section.matchAll(/^# kubectl (.*?)(?: +#.*)?$/gm)].map((match) => match[1] ?? "");
  if (commands.length === 0) throw new Error("docs/kubernetes.md shows no commands for uninstalling");
  return commands.map((command) => command.split(/ +/));
}

interface PodList {
  readonly items: readonly { readonly metadata: { readonly name: string; readonly deletionTimestamp?: string } }[];
}

function remainingPods(cluster: KubernetesCluster): string[] {
  const calico = ["calico-node", "calico-kube-controllers", "calico-typha", "calico-uninstall"];
  const selector = `--selector=k8s-app in (${calico.join(",")})`;
  return cluster
    .get<PodList>(["pods", "--namespace=kube-system", selector])
    .items.map(({ metadata: { name, deletionTimestamp } }) =>
      deletionTimestamp === undefined ? `pod ${name}` : `pod ${name}: Terminating`,
    );
}

function tracesOn(host: KubernetesHost): string[] {
  return TRACES.flatMap(({ what, command, ours }) =>
    host
      .run(command)
      .stdout.split("\n")
      .filter((line) => ours.test(line))
      .map((line) => `${host.name}: ${what}: ${line.trim()}`),
  );
}
