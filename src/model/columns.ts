// Defines the tables that `calicoctl get` prints for each kind: the columns of the short and the wide table, and the
// text of each cell. It loads no schemas, so that printing a table does not load zod.
import type { KindName } from "./kinds.ts";
import { readTier } from "./readers/tier.ts";
import { ignoreUnreadable } from "./readers/unreadable.ts";
import { specFields } from "./resource-fields.ts";
import type { Resource } from "./resource.ts";
import { UnreadableValue } from "./stored/unreadable-value.ts";

/** Inputs of a cell besides its resource. */
export interface CellContext {
  /** The cluster's AS number, for nodes that have none of their own. */
  readonly defaultAsNumber?: number | "unknown";
}
export interface Column {
  readonly heading: string;
  readonly cell: (resource: Resource, context: CellContext) => string;
}
export interface Table {
  /** All columns that `custom-columns` accepts, in the order of the wide table. */
  readonly columns: readonly Column[];
  readonly short: readonly string[];
  readonly wide: readonly string[];
}

/** Fields as stored. They are not validated, so each cell checks the types of the fields that it uses. */
type Fields = Readonly<Record<string, unknown>>;

const WANTED = {
  string: "text",
  number: "a number",
  "number or text": "a number",
  boolean: "true or false",
  object: "a group of fields",
  list: "a list",
};
type Wanted = keyof typeof WANTED;
const isA = (value: unknown, wanted: Wanted): boolean => {
  const type = Array.isArray(value) ? "list" : typeof value;
  return wanted === "number or text" ? type === "number" || type === "string" : type === wanted;
};

/**
 * Returns the field, or undefined if it is absent.
 * @throws UnreadableValue if the field has another type
 */
function fieldOf(fields: Fields, field: string, wanted: Wanted, where = "spec"): unknown {
  const value = fields[field] ?? undefined;
  if (value === undefined || isA(value, wanted)) return value;
  throw new UnreadableValue(`${where}.${field}: want ${WANTED[wanted]}`);
}
const listAt = (resource: Resource, field: string) =>
  (fieldOf(specFields(resource), field, "list") ?? []) as readonly unknown[];
const groupAt = (resource: Resource, field: string) =>
  fieldOf(specFields(resource), field, "object") as Fields | undefined;
const groupsOf = (list: unknown, where: string): readonly Fields[] =>
  ((list ?? []) as readonly unknown[]).map((item) => {
    if (item === null || !isA(item, "object")) throw new UnreadableValue(`${where}: want groups of fields`);
    return item as Fields;
  });

const at = (heading: string, field: string, absent = "", wanted: Wanted = "string"): Column => ({
  heading,
  cell: (resource) => show(fieldOf(specFields(resource), field, wanted), absent),
});
const flag = (heading: string, field: string, absent = "false") => at(heading, field, absent, "boolean");
const number = (heading: string, field: string, absent: string) => at(heading, field, absent, "number");
/** Old versions of Calico also stored AS numbers as text, such as `1.10`. */
const asNumber = (heading: string, absent: string) => at(heading, "asNumber", absent, "number or text");
const float = (heading: string, field: string): Column => ({
  heading,
  cell: (resource) => {
    const value = fieldOf(specFields(resource), field, "number");
    return value === undefined ? "<nil>" : showFloat(value as number);
  },
});
const joined = (heading: string, field: string, limit = Number.POSITIVE_INFINITY): Column => ({
  heading,
  cell: (resource) => truncate(listAt(resource, field).join(","), limit),
});
const count = (heading: string, field: string): Column => ({
  heading,
  cell: (resource) => String(listAt(resource, field).length),
});
const NAME: Column = { heading: "NAME", cell: (resource) => resource.metadata.name };
const NAMESPACE: Column = { heading: "NAMESPACE", cell: (resource) => resource.metadata.namespace ?? "" };

/** Longer lists are truncated to this number of characters. */
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
      flag("MESHENABLED", "nodeToNodeMeshEnabled", "-"),
      asNumber("ASNUMBER", "-"),
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
    [NAME, at("PEERIP", "peerIP"), { heading: "NODE", cell: peerNode }, asNumber("ASN", "0")],
    "NAME PEERIP NODE ASN",
  ),
  CalicoNodeStatus: table([NAME, at("NODE", "node"), joined("CLASSES", "classes")], "NAME NODE", "NAME NODE CLASSES"),
  ClusterInformation: table(
    [
      NAME,
      at("CLUSTERGUID", "clusterGUID"),
      at("CLUSTERTYPE", "clusterType"),
      at("CALICOVERSION", "calicoVersion"),
      flag("DATASTOREREADY", "datastoreReady", "<nil>"),
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
      flag("STRICTAFFINITY", "strictAffinity"),
      flag("AUTOALLOCATEBLOCKS", "autoAllocateBlocks"),
      number("MAXBLOCKSPERHOST", "maxBlocksPerHost", "0"),
    ],
    "NAME STRICTAFFINITY AUTOALLOCATEBLOCKS",
    "NAME STRICTAFFINITY AUTOALLOCATEBLOCKS MAXBLOCKSPERHOST",
  ),
  IPPool: table(
    [
      NAME,
      at("CIDR", "cidr"),
      flag("NAT", "natOutgoing"),
      at("IPIPMODE", "ipipMode"),
      at("VXLANMODE", "vxlanMode"),
      flag("DISABLED", "disabled"),
      flag("DISABLEBGPEXPORT", "disableBGPExport"),
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

/** Returns undefined for kinds that are never listed. */
export const tableOf = (kind: KindName): Table | undefined => TABLES[kind];

/** Sorts tiers by their order. Other kinds keep the order of the datastore, by namespace and name. */
export function sortRows(kind: KindName, resources: readonly Resource[]): readonly Resource[] {
  if (kind !== "Tier") return resources;
  const order = (resource: Resource) => readTier(resource, ignoreUnreadable).order ?? Number.POSITIVE_INFINITY;
  return resources.toSorted((a, b) => order(a) - order(b) || (a.metadata.name < b.metadata.name ? -1 : 1));
}

function show(value: unknown, absent: string): string {
  if (value === undefined || value === null) return absent;
  return String(value);
}

/** Formats a floating-point number as in Go: `1e+06` from one million on. */
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
  const spec = specFields(resource);
  return show(fieldOf(spec, "node", "string") ?? fieldOf(spec, "nodeSelector", "string"), "(global)");
}

function nodeAsNumber(resource: Resource, context: CellContext): string {
  const bgp = groupAt(resource, "bgp");
  if (bgp === undefined) return "";
  return show(fieldOf(bgp, "asNumber", "number or text", "spec.bgp"), `(${context.defaultAsNumber ?? 64512})`);
}

function bgpAddress(heading: string, field: string): Column {
  const cell = (resource: Resource) => show(fieldOf(groupAt(resource, "bgp") ?? {}, field, "string", "spec.bgp"), "");
  return { heading, cell };
}

function profileLabels(resource: Resource): string {
  const labels = groupAt(resource, "labelsToApply") ?? {};
  return Object.keys(labels)
    .sort()
    .map((key) => `${key}=${String(labels[key])}`)
    .join(",");
}

function podSelector(resource: Resource): string {
  const selector = groupAt(resource, "podSelector") ?? {};
  const where = "spec.podSelector";
  const matchLabels = (fieldOf(selector, "matchLabels", "object", where) ?? {}) as Fields;
  const labels = Object.entries(matchLabels).map(([key, value]) => `${key}=${String(value)}`);
  const inside = `${where}.matchExpressions`;
  const expressions = groupsOf(fieldOf(selector, "matchExpressions", "list", where), inside).map((expression) => {
    const values = fieldOf(expression, "values", "list", inside) as readonly unknown[] | undefined;
    return `${expression["key"]} ${expression["operator"]}${values === undefined ? "" : ` (${values.join(",")})`}`;
  });
  return [...labels.sort(), ...expressions].join(",");
}

function workloadName(resource: Resource): string {
  const spec = specFields(resource);
  return show(fieldOf(spec, "workload", "string") ?? fieldOf(spec, "pod", "string"), "");
}

function natMappings(resource: Resource): string {
  const nats = groupsOf(listAt(resource, "ipNATs"), "spec.ipNATs");
  return nats.map((nat) => `${nat["externalIP"]}->${nat["internalIP"]}`).join(",");
}
