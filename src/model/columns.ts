// What `calicoctl get` prints of each kind: the columns of its short and wide table, and how a cell reads. Light data:
// no schema is loaded to print a table.
import type { KindName } from "./kinds.ts";
import type { Resource } from "./resource.ts";

/** What a cell may depend on besides its resource. */
export interface CellContext {
  /** The cluster's AS number, for nodes that have none of their own. */
  readonly defaultAsNumber?: number | "unknown";
}
export interface Column {
  readonly heading: string;
  readonly cell: (resource: Resource, context: CellContext) => string;
}
export interface Table {
  /** All headings `custom-columns` knows, in the order of the wide table. */
  readonly columns: readonly Column[];
  readonly short: readonly string[];
  readonly wide: readonly string[];
}

type Fields = Readonly<Record<string, unknown>>;
const specOf = (resource: Resource): Fields => (resource.spec ?? {}) as Fields;

const at = (heading: string, field: string, absent = ""): Column => ({
  heading,
  cell: (resource) => show(specOf(resource)[field], absent),
});
const float = (heading: string, field: string): Column => ({
  heading,
  cell: (resource) => {
    const value = specOf(resource)[field];
    return typeof value === "number" ? showFloat(value) : "<nil>";
  },
});
const joined = (heading: string, field: string, limit = Number.POSITIVE_INFINITY): Column => ({
  heading,
  cell: (resource) => truncate(((specOf(resource)[field] ?? []) as readonly unknown[]).join(","), limit),
});
const count = (heading: string, field: string): Column => ({
  heading,
  cell: (resource) => String(((specOf(resource)[field] ?? []) as readonly unknown[]).length),
});
const NAME: Column = { heading: "NAME", cell: (resource) => resource.metadata.name };
const NAMESPACE: Column = { heading: "NAMESPACE", cell: (resource) => resource.metadata.namespace ?? "" };

/** Text after which a list is cut. */
const LIST_LIMIT = 80;

const policy = [NAME, at("TIER", "tier", "default"), float("ORDER", "order"), at("SELECTOR", "selector")];
const namespacedPolicy = [...policy, NAMESPACE];

const table = (columns: readonly Column[], short: string, wide = short): Table => ({
  columns,
  short: short.split(" "),
  wide: wide.split(" "),
});
const named = table([NAME], "NAME");

const TABLES: Partial<Record<KindName, Table>> = {
  BGPConfiguration: table(
    [
      NAME,
      at("LOGSEVERITY", "logSeverityScreen"),
      at("MESHENABLED", "nodeToNodeMeshEnabled", "-"),
      at("ASNUMBER", "asNumber", "-"),
    ],
    "NAME LOGSEVERITY MESHENABLED ASNUMBER",
  ),
  BGPFilter: table(
    [
      NAME,
      count("NUMEXPORTV4", "exportV4"),
      count("NUMIMPORTV4", "importV4"),
      count("NUMEXPORTV6", "exportV6"),
      count("NUMIMPORTV6", "importV6"),
    ],
    "NAME NUMEXPORTV4 NUMIMPORTV4 NUMEXPORTV6 NUMIMPORTV6",
  ),
  BGPPeer: table(
    [NAME, at("PEERIP", "peerIP"), { heading: "NODE", cell: peerNode }, at("ASN", "asNumber", "0")],
    "NAME PEERIP NODE ASN",
  ),
  CalicoNodeStatus: table([NAME, at("NODE", "node"), joined("CLASSES", "classes")], "NAME NODE", "NAME NODE CLASSES"),
  ClusterInformation: table(
    [
      NAME,
      at("CLUSTERGUID", "clusterGUID"),
      at("CLUSTERTYPE", "clusterType"),
      at("CALICOVERSION", "calicoVersion"),
      at("DATASTOREREADY", "datastoreReady", "<nil>"),
    ],
    "NAME CLUSTERGUID CLUSTERTYPE CALICOVERSION DATASTOREREADY",
  ),
  FelixConfiguration: named,
  GlobalNetworkPolicy: table(policy, "NAME TIER", "NAME TIER ORDER SELECTOR"),
  GlobalNetworkSet: table([NAME, joined("NETS", "nets", LIST_LIMIT)], "NAME", "NAME NETS"),
  HostEndpoint: table(
    [
      NAME,
      at("NODE", "node"),
      at("INTERFACE", "interfaceName"),
      joined("IPS", "expectedIPs"),
      joined("PROFILES", "profiles"),
    ],
    "NAME NODE",
    "NAME NODE INTERFACE IPS PROFILES",
  ),
  IPAMConfiguration: table(
    [
      NAME,
      at("STRICTAFFINITY", "strictAffinity", "false"),
      at("AUTOALLOCATEBLOCKS", "autoAllocateBlocks", "false"),
      at("MAXBLOCKSPERHOST", "maxBlocksPerHost", "0"),
    ],
    "NAME STRICTAFFINITY AUTOALLOCATEBLOCKS",
    "NAME STRICTAFFINITY AUTOALLOCATEBLOCKS MAXBLOCKSPERHOST",
  ),
  IPPool: table(
    [
      NAME,
      at("CIDR", "cidr"),
      at("NAT", "natOutgoing", "false"),
      at("IPIPMODE", "ipipMode"),
      at("VXLANMODE", "vxlanMode"),
      at("DISABLED", "disabled", "false"),
      at("DISABLEBGPEXPORT", "disableBGPExport", "false"),
      at("SELECTOR", "nodeSelector"),
      at("ASSIGNMENTMODE", "assignmentMode", "Automatic"),
    ],
    "NAME CIDR SELECTOR",
    "NAME CIDR NAT IPIPMODE VXLANMODE DISABLED DISABLEBGPEXPORT SELECTOR ASSIGNMENTMODE",
  ),
  IPReservation: table([NAME, joined("CIDRS", "reservedCIDRs", LIST_LIMIT)], "NAME", "NAME CIDRS"),
  KubeControllersConfiguration: named,
  NetworkPolicy: table(namespacedPolicy, "NAME TIER", "NAME TIER ORDER SELECTOR"),
  NetworkSet: table([NAME, joined("NETS", "nets", LIST_LIMIT), NAMESPACE], "NAME", "NAME NETS"),
  Node: table(
    [
      NAME,
      { heading: "ASN", cell: nodeAsNumber },
      bgpAddress("IPV4", "ipv4Address"),
      bgpAddress("IPV6", "ipv6Address"),
    ],
    "NAME",
    "NAME ASN IPV4 IPV6",
  ),
  Profile: table([NAME, { heading: "LABELS", cell: profileLabels }], "NAME", "NAME LABELS"),
  StagedGlobalNetworkPolicy: table(policy, "NAME TIER", "NAME TIER ORDER SELECTOR"),
  StagedKubernetesNetworkPolicy: table(
    [NAME, { heading: "PODSELECTOR", cell: podSelector }, NAMESPACE],
    "NAME",
    "NAME PODSELECTOR",
  ),
  StagedNetworkPolicy: table(namespacedPolicy, "NAME TIER", "NAME TIER ORDER SELECTOR"),
  Tier: table([NAME, float("ORDER", "order")], "NAME ORDER"),
  WorkloadEndpoint: table(
    [
      NAME,
      { heading: "WORKLOAD", cell: workloadName },
      at("NODE", "node"),
      joined("NETWORKS", "ipNetworks"),
      at("INTERFACE", "interfaceName"),
      joined("PROFILES", "profiles"),
      { heading: "NATS", cell: natMappings },
      at("ORCHESTRATOR", "orchestrator"),
      NAMESPACE,
    ],
    "WORKLOAD NODE NETWORKS INTERFACE",
    "NAME WORKLOAD NODE NETWORKS INTERFACE PROFILES NATS",
  ),
};

/** The kind's table; nothing for kinds that are never listed. */
export const tableOf = (kind: KindName): Table | undefined => TABLES[kind];

/** The order rows come in: tiers by their order, all others as the datastore has them, by namespace and name. */
export function sortRows(kind: KindName, resources: readonly Resource[]): readonly Resource[] {
  if (kind !== "Tier") return resources;
  const order = (resource: Resource) => (specOf(resource)["order"] as number | undefined) ?? Number.POSITIVE_INFINITY;
  return resources.toSorted((a, b) => order(a) - order(b) || (a.metadata.name < b.metadata.name ? -1 : 1));
}

function show(value: unknown, absent: string): string {
  if (value === undefined || value === null) return absent;
  return String(value);
}

/** A floating-point number as Go prints it: `1e+06` from a million on. */
export function showFloat(value: number): string {
  const exponent = value === 0 ? 0 : Number(value.toExponential().split("e")[1]);
  if (exponent >= -4 && exponent < 6) return String(value);
  const [digits, power] = value.toExponential().split("e");
  const size = Math.abs(Number(power));
  return `${digits}e${Number(power) < 0 ? "-" : "+"}${size < 10 ? "0" : ""}${size}`;
}

function truncate(text: string, limit: number): string {
  return text.length > limit ? `${text.slice(0, limit - 3)}...` : text;
}

function peerNode(resource: Resource): string {
  const { node, nodeSelector } = specOf(resource);
  return show(node ?? nodeSelector, "(global)");
}

function nodeAsNumber(resource: Resource, context: CellContext): string {
  const bgp = specOf(resource)["bgp"] as Fields | undefined;
  if (bgp === undefined) return "";
  return bgp["asNumber"] === undefined ? `(${context.defaultAsNumber ?? 64512})` : String(bgp["asNumber"]);
}

function bgpAddress(heading: string, field: string): Column {
  return { heading, cell: (resource) => show((specOf(resource)["bgp"] as Fields | undefined)?.[field], "") };
}

function profileLabels(resource: Resource): string {
  const labels = (specOf(resource)["labelsToApply"] ?? {}) as Fields;
  return Object.keys(labels)
    .sort()
    .map((key) => `${key}=${String(labels[key])}`)
    .join(",");
}

function podSelector(resource: Resource): string {
  const selector = (specOf(resource)["podSelector"] ?? {}) as {
    readonly matchLabels?: Fields;
    readonly matchExpressions?: readonly {
      readonly key: string;
      readonly operator: string;
      readonly values?: readonly string[];
    }[];
  };
  const labels = Object.entries(selector.matchLabels ?? {}).map(([key, value]) => `${key}=${String(value)}`);
  const expressions = (selector.matchExpressions ?? []).map(
    ({ key, operator, values }) => `${key} ${operator}${values === undefined ? "" : ` (${values.join(",")})`}`,
  );
  return [...labels.sort(), ...expressions].join(",");
}

function workloadName(resource: Resource): string {
  const { pod, workload } = specOf(resource);
  return show(workload ?? pod, "");
}

function natMappings(resource: Resource): string {
  const nats = (specOf(resource)["ipNATs"] ?? []) as readonly {
    readonly internalIP: string;
    readonly externalIP: string;
  }[];
  return nats.map((nat) => `${nat.externalIP}->${nat.internalIP}`).join(",");
}
