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
  { what: "route", command: ["ip", "route", "show", "table", "all"], ours: /proto (80|bird|12)\b|dev (cali|vxlan)/ },
  { what: "nft table", command: ["nft", "list", "tables"], ours: /calico/ },
  { what: "iptables chain", command: ["iptables-save"], ours: /cali[-:]/ },
  { what: "iptables (legacy) chain", command: ["iptables-legacy-save"], ours: /cali[-:]/ },
  { what: "ipset", command: ["ipset", "list", "-name"], ours: /^cali4/ },
  { what: "CNI file", command: ["ls", "/etc/cni/net.d", "/opt/cni/bin"], ours: /calico/ },
  { what: "file", command: ["ls", "/var/lib/calico", "/run/calico"], ours: /^(?!\/|ls:|$)./ },
];

/** One line per thing left behind. */
export async function uninstall(cluster: KubernetesCluster): Promise<string[]> {
  const apply = manifestPath("uninstall.yaml");
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
