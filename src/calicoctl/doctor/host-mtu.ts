// Checks that no interface of the host has a larger MTU than the path to other nodes allows.
import { MTU_SETTINGS, type MtuSetting } from "../resources/mtu-settings.ts";
import type { ClusterFacts, HostFacts, HostLink } from "./facts.ts";
import { type Finding, formatList, patchCommand } from "./finding.ts";

/** The interface of each tunnel, the setting of its MTU, and the pool mode that uses it. */
const TUNNELS: readonly { link: string; setting: MtuSetting; pool: "vxlanMode" | "ipipMode" | undefined }[] = [
  { link: "vxlan.calico", setting: "vxlanMTU", pool: "vxlanMode" },
  { link: "vxlan-v6.calico", setting: "vxlanMTUV6", pool: "vxlanMode" },
  { link: "tunl0", setting: "ipipMTU", pool: "ipipMode" },
  { link: "wireguard.cali", setting: "wireguardMTU", pool: undefined },
  { link: "wg-v6.cali", setting: "wireguardMTUV6", pool: undefined },
];

export function* mtuFaults(cluster: ClusterFacts, host: HostFacts): Generator<Finding> {
  const path = smallestPath(cluster, host);
  if (path === undefined) return;
  let forPods = path.mtu;
  let because = `the path MTU is ${path.mtu} (${path.where})`;
  const pods = host.links.filter((link) => link.name.startsWith("cali") && link.isUp);
  /** Links whose MTU a finding about a setting explains. */
  const explained = new Set<HostLink>();
  for (const { link: name, setting, pool } of TUNNELS) {
    const link = host.links.find((each) => each.name === name);
    if (link?.isUp !== true || !isUsed(cluster, pool)) continue;
    const { overhead } = MTU_SETTINGS[setting];
    const limit = path.mtu - overhead;
    if (limit < forPods) {
      forPods = limit;
      because = `the path MTU is ${path.mtu} (${path.where}), less ${overhead} of ${link.name}`;
    }
    const configured = configuredMtu(cluster, host.node, setting);
    if (configured !== undefined && configured.mtu > limit) {
      const tooLarge = [link, ...pods].filter(({ mtu }) => mtu > limit && mtu <= configured.mtu);
      for (const each of tooLarge) explained.add(each);
      yield settingFault(host, { setting, ...configured, limit, link: name }, [
        ...(tooLarge.length === 0 ? [] : [formatList(tooLarge.map((each) => `${each.name} has MTU ${each.mtu}`))]),
        `the path to other nodes allows ${path.mtu} (${path.where}), the tunnel adds ${overhead}`,
      ]);
    } else if (link.mtu > limit)
      yield mtuFault(host, [link], limit, setting, [
        `${link.name} has MTU ${link.mtu}`,
        `the path to other nodes allows ${path.mtu} (${path.where}), the tunnel adds ${overhead}`,
      ]);
  }
  const tooLarge = pods.filter((link) => link.mtu > forPods && !explained.has(link));
  if (tooLarge.length > 0)
    yield mtuFault(host, tooLarge, forPods, "mtu", [
      `${formatList(tooLarge.map(({ name, mtu }) => `${name} has MTU ${mtu}`))}`,
      because,
    ]);
}

/** Returns the MTU that a FelixConfiguration sets for this node, or undefined if Felix detects it. */
function configuredMtu(
  { felix }: ClusterFacts,
  node: string,
  setting: MtuSetting,
): { readonly configuration: string; readonly mtu: number } | undefined {
  for (const configuration of [`node.${node}`, "default"]) {
    const mtu = felix.get(configuration)?.[setting];
    if (typeof mtu === "number") return mtu > 0 ? { configuration, mtu } : undefined;
  }
  return undefined;
}

function settingFault(
  host: HostFacts,
  given: {
    readonly configuration: string;
    readonly setting: MtuSetting;
    readonly mtu: number;
    readonly limit: number;
    readonly link: string;
  },
  evidence: readonly string[],
): Finding {
  const { configuration, setting, mtu, limit, link } = given;
  return {
    id: "mtu",
    severity: "error",
    object: `FelixConfiguration(${configuration})`,
    problem: `FelixConfiguration.${setting} is ${mtu}, but packets from ${host.node} through ${link} can have at most ${limit} bytes`,
    cause: `Felix sets this MTU on pods and on ${link}: connections open, and then hang at the first large packet`,
    evidence: [`FelixConfiguration(${configuration}) spec.${setting} is ${mtu}`, ...evidence],
    fix: `${patchCommand("felixconfiguration", configuration, { [setting]: 0 })}, which lets Felix detect it; then restart the pods`,
    node: host.node,
    interface: link,
    setting: `FelixConfiguration(${configuration}) spec.${setting}: ${limit}`,
  };
}

function mtuFault(
  host: HostFacts,
  links: readonly HostLink[],
  limit: number,
  setting: MtuSetting | "mtu",
  evidence: readonly string[],
): Finding {
  const isPods = setting === "mtu";
  const names = formatList(links.map(({ name }) => name));
  return {
    id: "mtu",
    severity: "error",
    object: `host ${host.node}`,
    problem: `${names} on ${host.node} ${links.length === 1 ? "has" : "have"} MTU ${Math.max(...links.map(({ mtu }) => mtu))}, but the path to other nodes allows ${limit}`,
    cause:
      "larger packets are dropped, or fragmented if that is allowed: connections open and then hang at the first large packet",
    evidence,
    fix: isPods
      ? `set mtu ${limit} in the CNI configuration (or 0 to use /var/lib/calico/mtu) and restart the pods`
      : `set ${setting}: ${limit} in FelixConfiguration default, or 0 to let Felix detect it`,
    node: host.node,
    interface: links[0]?.name ?? "",
    setting: isPods ? `mtu: ${limit}` : `FelixConfiguration(default) spec.${setting}: ${limit}`,
  };
}

const isUsed = (cluster: ClusterFacts, mode: "vxlanMode" | "ipipMode" | undefined): boolean =>
  mode === undefined || cluster.pools.some((pool) => pool[mode] !== "Never");

/** Returns the smallest MTU of the link with the Node's address and of the paths to other nodes. */
function smallestPath(cluster: ClusterFacts, host: HostFacts) {
  const node = cluster.nodes.get(host.node);
  const own = host.links.find((link) =>
    link.networks.some(
      ({ address }) => address === node?.networks[4]?.address || address === node?.networks[6]?.address,
    ),
  );
  const paths = [...host.pathMtu].map(([name, mtu]) => ({ mtu, where: `to node ${name}` }));
  if (own !== undefined) paths.push({ mtu: own.mtu, where: own.name });
  return paths.sort((a, b) => a.mtu - b.mtu)[0];
}
