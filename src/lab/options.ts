// Defines and validates the options of a lab. Names are used for namespaces, folders and interfaces.

export const TOPOLOGIES = ["switch", "racks", "reflectors", "dual-nic"] as const;
export const BACKENDS = ["bird", "vxlan"] as const;
export const DATAPLANES = ["nft", "iptables"] as const;
export const DATASTORES = ["sqlite", "etcd", "kubernetes"] as const;

export interface LabOptions {
  readonly name: string;
  readonly nodes: number;
  readonly podsPerNode: number;
  readonly topology: (typeof TOPOLOGIES)[number];
  readonly backend: (typeof BACKENDS)[number];
  readonly dataplane: (typeof DATAPLANES)[number];
  readonly datastore: (typeof DATASTORES)[number];
  /** Hosts run a real kubelet and container runtime. Otherwise calico-node runs directly on the hosts. */
  readonly kubelets: boolean;
  readonly ipv6: boolean;
  /** Agents connect to Typha. Only with kubelets. Absent if false, as in labs of earlier versions. */
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

/** The command line is well-formed, but the lab does not support the request. Printed as one line; the exit code is 2. */
export class InvalidRequest extends Error {
  override readonly name = "InvalidRequest";
}

export const MAX_NODES = 100;
export const MAX_PODS_PER_NODE = 200;

/** The flags of `calico lab up`. */
export interface LabRequest {
  readonly name?: string;
  readonly nodes?: number;
  readonly pods?: number;
  readonly topology?: LabOptions["topology"];
  readonly backend?: LabOptions["backend"];
  readonly dataplane?: LabOptions["dataplane"];
  readonly datastore?: LabOptions["datastore"];
  readonly kubernetes?: boolean;
  readonly ipv6?: boolean;
  readonly typha?: boolean;
}

/** Options that are not requested are those of the existing lab, or have their defaults. */
export function resolveLabOptions(request: LabRequest, existing: LabOptions | undefined = undefined): LabOptions {
  const kubelets = request.kubernetes === true || existing?.kubelets === true;
  const defaults = existing ?? { ...DEFAULT_OPTIONS, podsPerNode: kubelets ? 0 : DEFAULT_OPTIONS.podsPerNode };
  const options: LabOptions = {
    name: labName(request.name ?? defaults.name),
    nodes: request.nodes ?? defaults.nodes,
    podsPerNode: request.pods ?? defaults.podsPerNode,
    topology: request.topology ?? defaults.topology,
    backend: request.backend ?? defaults.backend,
    dataplane: request.dataplane ?? defaults.dataplane,
    datastore: kubelets ? "kubernetes" : (request.datastore ?? defaults.datastore),
    kubelets,
    ipv6: request.ipv6 === true || defaults.ipv6,
    ...((request.typha === true || defaults.typha === true) && { typha: true }),
  };
  if (kubelets) checkKubeletOptions(options, request);
  else if (options.typha === true) throw new InvalidRequest("--typha: requires --kubernetes");
  return options;
}

/** In a lab with real kubelets, all hosts are on one IPv4 network. */
function checkKubeletOptions(options: LabOptions, { datastore = "kubernetes" }: LabRequest): void {
  if (datastore !== "kubernetes")
    throw new InvalidRequest(`--kubernetes with --datastore ${datastore}: use only one of them`);
  if (options.topology !== "switch") throw new InvalidRequest("--topology: --kubernetes supports only switch");
  if (options.ipv6) throw new InvalidRequest("--ipv6: --kubernetes supports only IPv4");
  if (options.typha === true && options.backend !== "bird")
    throw new InvalidRequest("--typha: supports only --backend bird");
}

export function labName(name: string): string {
  if (!/^[a-z][a-z0-9]{0,9}$/.test(name))
    throw new InvalidRequest(`lab name ${JSON.stringify(name)}: want a letter and at most nine more letters or digits`);
  return name;
}
