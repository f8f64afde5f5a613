// What a lab is asked to be. Names become namespaces, folders and interfaces, so they are checked here, once.

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

/** The command line is well-formed, but the lab cannot do it. Reported in one line; the exit code is 2. */
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
  const usual = existing ?? { ...DEFAULT_OPTIONS, podsPerNode: kubelets ? 0 : DEFAULT_OPTIONS.podsPerNode };
  const options: LabOptions = {
    name: labName(request.name ?? usual.name),
    nodes: request.nodes ?? usual.nodes,
    podsPerNode: request.pods ?? usual.podsPerNode,
    topology: request.topology ?? usual.topology,
    backend: request.backend ?? usual.backend,
    dataplane: request.dataplane ?? usual.dataplane,
    datastore: kubelets ? "kubernetes" : (request.datastore ?? usual.datastore),
    kubelets,
    ipv6: request.ipv6 === true || usual.ipv6,
    ...((request.typha === true || usual.typha === true) && { typha: true }),
  };
  if (kubelets) refuseForKubelets(options, request);
  else if (options.typha === true) throw new InvalidRequest("--typha: only with --kubernetes");
  return options;
}

/** In a lab with real kubelets, all hosts are on one IPv4 network. */
function refuseForKubelets(options: LabOptions, { datastore = "kubernetes" }: LabRequest): void {
  if (datastore !== "kubernetes")
    throw new InvalidRequest(`--kubernetes with --datastore ${datastore}: want one of them`);
  if (options.topology !== "switch") throw new InvalidRequest("--topology: with --kubernetes there is only switch");
  if (options.ipv6) throw new InvalidRequest("--ipv6: with --kubernetes there is only IPv4");
  if (options.typha === true && options.backend !== "bird")
    throw new InvalidRequest("--typha: its manifest has only --backend bird");
}

export function labName(name: string): string {
  if (!/^[a-z][a-z0-9]{0,9}$/.test(name))
    throw new InvalidRequest(`lab name ${JSON.stringify(name)}: want a letter and at most nine more letters or digits`);
  return name;
}
