// Checks that no interface of the host accepts packets that the path to other nodes does not carry.
import { MTU_SETTINGS, type MtuSetting } from "../resources/mtu-settings.ts";
import type { ClusterFacts, HostFacts, HostLink } from "./facts.ts";
import { type Finding, listed, patch } from "./finding.ts";

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
  let because = `${path.mtu} bytes on the way (${path.where})`;
  const pods = host.links.filter((link) => link.name.startsWith("cali") && link.isUp);
  /** Links whose MTU a finding about a setting explains. */
  const explained = new Set<HostLink>();
  for (const { link: name, setting, pool } of TUNNELS) {
    const link = host.links.find((each) => each.name === name);
    if (link?.isUp !== true || !isUsed(cluster, pool)) continue;
    const { overhead } = MTU_SETTINGS[setting];
    const most = path.mtu - overhead;
    if (most < forPods) {
      forPods = most;
      because = `${path.mtu} on the way (${path.where}) less ${overhead} of ${link.name}`;
    }
    const configured = configuredMtu(cluster, host.node, setting);
    if (configured !== undefined && configured.mtu > most) {
      const tooLarge = [link, ...pods].filter(({ mtu }) => mtu > most && mtu <= configured.mtu);
      for (const each of tooLarge) explained.add(each);
      yield settingFault(host, { setting, ...configured, most, link: name }, [
        ...(tooLarge.length === 0 ? [] : [listed(tooLarge.map((each) => `${each.name} has MTU ${each.mtu}`))]),
        `the path to other nodes carries ${path.mtu} (${path.where}), the tunnel adds ${overhead}`,
      ]);
    } else if (link.mtu > most)
      yield mtuFault(host, [link], most, setting, [
        `${link.name} has MTU ${link.mtu}`,
        `the way to other nodes carries ${path.mtu} (${path.where}), the tunnel adds ${overhead}`,
      ]);
  }
  const tooLarge = pods.filter((link) => link.mtu > forPods && !explained.has(link));
  if (tooLarge.length > 0)
    yield mtuFault(host, tooLarge, forPods, "mtu", [
      `${listed(tooLarge.map(({ name, mtu }) => `${name} has MTU ${mtu}`))}`,
      because,
    ]);
}

/** The MTU that a FelixConfiguration sets for this node; undefined where Felix detects it. */
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
    readonly most: number;
    readonly link: string;
  },
  evidence: readonly string[],
): Finding {
  const { configuration, setting, mtu, most, link } = given;
  return {
    id: "mtu",
    severity: "error",
    object: `FelixConfiguration(${configuration})`,
    problem: `FelixConfiguration.${setting} is ${mtu}, but from ${host.node} packets of at most ${most} bytes fit through ${link}`,
    cause: `Felix gives this MTU to pods and to ${link}: connections open, and then hang at the first large packet`,
    evidence: [`FelixConfiguration(${configuration}) spec.${setting} is ${mtu}`, ...evidence],
    fix: `${patch("felixconfiguration", configuration, { [setting]: 0 })}, which lets Felix detect it; then restart the pods`,
    node: host.node,
    interface: link,
    setting: `FelixConfiguration(${configuration}) spec.${setting}: ${most}`,
  };
}

function mtuFault(
  host: HostFacts,
  links: readonly HostLink[],
  most: number,
  setting: MtuSetting | "mtu",
  evidence: readonly string[],
): Finding {
  const isPods = setting === "mtu";
  const names = listed(links.map(({ name }) => name));
  return {
    id: "mtu",
    severity: "error",
    object: `host ${host.node}`,
    problem: `${names} on ${host.node} ${links.length === 1 ? "takes" : "take"} packets of ${Math.max(...links.map(({ mtu }) => mtu))} bytes, of which the way to other nodes carries ${most}`,
    cause:
      "packets that do not fit are dropped, or cut where that is allowed: connections open and then hang at the first large answer",
    evidence,
    fix: isPods
      ? `set mtu ${most} in the CNI configuration (or let it be 0, then /var/lib/calico/mtu counts) and start the pods again`
      : `set ${setting}: ${most} in FelixConfiguration default, or 0 to let it be found`,
    node: host.node,
    interface: links[0]?.name ?? "",
    setting: isPods ? `mtu: ${most}` : `FelixConfiguration(default) spec.${setting}: ${most}`,
  };
}

const isUsed = (cluster: ClusterFacts, mode: "vxlanMode" | "ipipMode" | undefined): boolean =>
  mode === undefined || cluster.pools.some((pool) => pool[mode] !== "Never");

/** The link the Node's address is on, or a narrower way to some other node. */
function smallestPath(cluster: ClusterFacts, host: HostFacts) {
  const node = cluster.nodes.get(host.node);
  const own = host.links.find((link) =>
    link.networks.some(
      ({ address }) => address === node?.networks[4]?.address || address === node?.networks[6]?.address,
    ),
  );
  const ways = [...host.pathMtu].map(([name, mtu]) => ({ mtu, where: `to node ${name}` }));
  if (own !== undefined) ways.push({ mtu: own.mtu, where: own.name });
  return ways.sort((a, b) => a.mtu - b.mtu)[0];
}
