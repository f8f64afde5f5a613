// Takes Calico off a cluster as its manifest says, and looks on every node for what it left.
import type { KubernetesCluster } from "../../src/lab/kubernetes/cluster.ts";
import type { KubernetesHost } from "../../src/lab/kubernetes/host.ts";
import { manifestPath, networkManifest } from "../../src/lab/kubernetes/network.ts";

/** What is ours, by how each tool prints it. */
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
    // Beyond the kernel's own three.
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

/** Interfaces, routes, rules, files and processes of a node that works. */
const LEAST_TRACES = 20;

/** One line per thing left behind. */
export async function uninstall(cluster: KubernetesCluster): Promise<string[]> {
  const apply = manifestPath("uninstall.yaml");
  // Who finds nothing now would find nothing afterwards either.
  for (const { host } of cluster.places)
    if (tracesOn(host).length < LEAST_TRACES) throw new Error(`${host.name}: Calico is not to be seen, though it runs`);
  cluster.kubectl(["delete", "--filename", networkManifest(cluster.lab.options), "--wait=true", "--timeout=180s"]);
  cluster.kubectl(["apply", "--filename", apply]);
  const status = ["rollout", "status", "--namespace=kube-system", "--timeout=180s"];
  cluster.kubectl([...status, "daemonset/calico-uninstall"]);
  cluster.kubectl(["delete", "--filename", apply, "--wait=true"]);
  return cluster.places.flatMap(({ host }) => tracesOn(host));
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
