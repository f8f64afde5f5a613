// What a lab is asked to be. Names become namespaces, folders and interfaces, so they are checked here, once.

export const TOPOLOGIES = ["switch", "racks", "reflectors", "dual-nic"] as const;
const BACKENDS = ["bird", "vxlan"] as const;
const DATAPLANES = ["nft", "iptables"] as const;
const DATASTORES = ["sqlite", "etcd", "kubernetes"] as const;

export interface LabOptions {
  readonly name: string;
  readonly nodes: number;
  readonly podsPerNode: number;
  readonly topology: (typeof TOPOLOGIES)[number];
  readonly backend: (typeof BACKENDS)[number];
  readonly dataplane: (typeof DATAPLANES)[number];
  readonly datastore: (typeof DATASTORES)[number];
  /** Hosts are nodes with a real kubelet and container runtime; else calico-node runs on them as it is. */
  readonly kubelets: boolean;
  readonly ipv6: boolean;
  /** Nodes follow the cluster through Typha. Only with kubelets. Absent if false, as in labs of earlier versions. */
  readonly typha?: true;
}

export const DEFAULT_OPTIONS: LabOptions = {
  name: process.env["CALICO_LAB"] ?? "lab",
  nodes: 3,
  podsPerNode: 3,
  topology: "switch",
  backend: "bird",
  dataplane: "nft",
  datastore: "sqlite",
  kubelets: false,
  ipv6: false,
};

export class UsageError extends Error {
  override readonly name = "UsageError";
}

const MAX_NODES = 100;

/** Checked options from command-line words; what is absent is as in the lab that stands, or keeps its default. */
export function parseLabOptions(
  given: Readonly<Record<string, string | boolean | undefined>>,
  standing: LabOptions | undefined = undefined,
): LabOptions {
  const kubelets = given["kubernetes"] === true || standing?.kubelets === true;
  const usual = standing ?? { ...DEFAULT_OPTIONS, podsPerNode: kubelets ? 0 : DEFAULT_OPTIONS.podsPerNode };
  const options: LabOptions = {
    name: labName(text(given, "name") ?? usual.name),
    nodes: count(given, "nodes", usual.nodes, 1, MAX_NODES),
    podsPerNode: count(given, "pods", usual.podsPerNode, 0, 200),
    topology: oneOf(given, "topology", TOPOLOGIES, usual.topology),
    backend: oneOf(given, "backend", BACKENDS, usual.backend),
    dataplane: oneOf(given, "dataplane", DATAPLANES, usual.dataplane),
    datastore: kubelets ? "kubernetes" : oneOf(given, "datastore", DATASTORES, usual.datastore),
    kubelets,
    ipv6: given["ipv6"] === true || usual.ipv6,
    ...((given["typha"] === true || usual.typha === true) && { typha: true }),
  };
  if (kubelets) refuseForKubelets(options, given);
  else if (options.typha === true) throw new UsageError("--typha: only with --kubernetes");
  return options;
}

/** What a lab with real kubelets does not do: its hosts stand on one network. */
function refuseForKubelets(options: LabOptions, given: Readonly<Record<string, string | boolean | undefined>>): void {
  const datastore = text(given, "datastore") ?? "kubernetes";
  if (datastore !== "kubernetes") throw new UsageError(`--kubernetes with --datastore ${datastore}: want one of them`);
  if (options.topology !== "switch") throw new UsageError("--topology: with --kubernetes there is only switch");
  if (options.ipv6) throw new UsageError("--ipv6: with --kubernetes there is only IPv4");
  if (options.typha === true && options.backend !== "bird")
    throw new UsageError("--typha: its manifest has only --backend bird");
}

export function labName(name: string): string {
  if (!/^[a-z][a-z0-9]{0,9}$/.test(name))
    throw new UsageError(`lab name ${JSON.stringify(name)}: want a letter and at most nine more letters or digits`);
  return name;
}

function text(given: Readonly<Record<string, string | boolean | undefined>>, option: string): string | undefined {
  const value = given[option];
  return typeof value === "string" ? value : undefined;
}

function count(
  given: Readonly<Record<string, string | boolean | undefined>>,
  option: string,
  fallback: number,
  min: number,
  max: number,
): number {
  const value = text(given, option);
  if (value === undefined) return fallback;
  const number = /^\d+$/.test(value) ? Number(value) : Number.NaN;
  if (!(number >= min && number <= max))
    throw new UsageError(`--${option} ${value}: want a number from ${min} to ${max}`);
  return number;
}

function oneOf<T extends string>(
  given: Readonly<Record<string, string | boolean | undefined>>,
  option: string,
  choices: readonly T[],
  fallback: T,
): T {
  const value = text(given, option);
  if (value === undefined) return fallback;
  const choice = choices.find((c) => c === value);
  if (choice === undefined) throw new UsageError(`--${option} ${value}: want ${choices.join(", ")}`);
  return choice;
}
