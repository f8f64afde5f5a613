// Starts etcd, the API server, the controller manager and the scheduler of a lab.
import { join } from "node:path";
import type { LabFolder } from "../folder.ts";
import { baseEnvironment } from "../host.ts";
import { findProcess, startProcess } from "../process.ts";
import { runInGroups, createGroups } from "./cgroups.ts";
import { type Authority, type Subject } from "./authority.ts";
import { type ProgramName, programPath } from "./programs.ts";

const SERVICE_CIDR = "10.96.0.0/16";
const SERVICE_ADDRESS = "10.96.0.1";
/** Address of the Service kube-dns, which kubelets write to the resolv.conf of pods. */
export const DNS_SERVICE_ADDRESS = "10.96.0.10";
export const CLUSTER_DOMAIN = "cluster.local";
/** Assigned to nodes by the controller manager; Calico uses its own pools instead. */
const NODE_CIDRS = "10.64.0.0/16";
const API_PORT = 6443;
const ETCD = "http://127.0.0.1:2379";
const PEER = "http://127.0.0.1:2380";

export const ADMIN: Subject = { name: "admin", commonName: "lab-admin", organization: "system:masters" };

export const apiServerUrl = (address: string): string => `https://${address}:${API_PORT}`;

/** Where the control plane of a lab runs. */
export interface ControlPlane {
  readonly folder: LabFolder;
  readonly authority: Authority;
  /** Address of the API server. */
  readonly address: string;
  /** Name of the network namespace. */
  readonly namespace: string;
}

/** Starts etcd and the API server, unless they run. */
export function startApiServer(plane: ControlPlane, more: Readonly<Record<string, string>> = {}): void {
  const { folder, authority, address } = plane;
  start(plane, "etcd", "etcd", {
    "data-dir": join(folder.path, "etcd"),
    "listen-client-urls": ETCD,
    "advertise-client-urls": ETCD,
    "listen-peer-urls": PEER,
    "initial-advertise-peer-urls": PEER,
    "initial-cluster": `default=${PEER}`,
    "unsafe-no-fsync": "true",
    "log-level": "error",
  });
  const server = authority.issue({
    name: "apiserver",
    commonName: "kube-apiserver",
    alternativeNames: [
      ...[address, SERVICE_ADDRESS, "127.0.0.1"].map((ip) => `IP:${ip}`),
      ...["kubernetes", "kubernetes.default", "kubernetes.default.svc", "localhost"].map((name) => `DNS:${name}`),
    ],
  });
  const toKubelets = authority.issue({
    name: "apiserver-kubelet-client",
    commonName: "kube-apiserver",
    organization: "system:masters",
  });
  const signing = authority.signingKey();
  startBuilt(plane, "kube-apiserver", {
    "etcd-servers": ETCD,
    "advertise-address": address,
    "bind-address": "0.0.0.0",
    "secure-port": String(API_PORT),
    "authorization-mode": "Node,RBAC",
    "enable-admission-plugins": "NodeRestriction",
    "allow-privileged": "true",
    "client-ca-file": authority.certFile,
    "tls-cert-file": server.certFile,
    "tls-private-key-file": server.keyFile,
    "kubelet-certificate-authority": authority.certFile,
    "kubelet-client-certificate": toKubelets.certFile,
    "kubelet-client-key": toKubelets.keyFile,
    "kubelet-preferred-address-types": "InternalIP",
    "service-cluster-ip-range": SERVICE_CIDR,
    "service-account-issuer": "https://kubernetes.default.svc",
    "service-account-key-file": signing,
    "service-account-signing-key-file": signing,
    v: "1",
    ...more,
  });
}

/** Starts the controller manager and the scheduler. They wait at most ten seconds for the API server, so it must already respond. */
export function startControllerManagerAndScheduler(plane: ControlPlane): void {
  const { authority, address } = plane;
  const signing = authority.signingKey();
  const kubeconfig = (name: string) =>
    authority.kubeconfig(apiServerUrl(address), { name, commonName: `system:${name}` });
  startBuilt(plane, "kube-controller-manager", {
    kubeconfig: kubeconfig("kube-controller-manager"),
    "leader-elect": "false",
    "allocate-node-cidrs": "true",
    "cluster-cidr": NODE_CIDRS,
    "service-cluster-ip-range": SERVICE_CIDR,
    "root-ca-file": authority.certFile,
    "service-account-private-key-file": signing,
    "use-service-account-credentials": "true",
  });
  startBuilt(plane, "kube-scheduler", { kubeconfig: kubeconfig("kube-scheduler"), "leader-elect": "false" });
}

function startBuilt(plane: ControlPlane, name: ProgramName, flags: Readonly<Record<string, string>>): void {
  start(plane, name, programPath(name), flags);
}

function start(plane: ControlPlane, name: string, program: string, flags: Readonly<Record<string, string>>): void {
  const { folder } = plane;
  if (findProcess(folder, name) !== undefined) return;
  const words = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
  // In its own control group; otherwise the nodes, which have their own groups, would use all CPU time of a busy machine.
  const group = createGroups(folder.namespace("control"));
  startProcess(folder, name, runInGroups(group, inNamespace(plane, [program, ...words])), baseEnvironment());
}

/** Returns the command line that runs a command in a network namespace. */
export function inNamespace(
  { namespace }: Pick<ControlPlane, "namespace">,
  command: readonly string[],
): readonly [string, ...string[]] {
  return ["nsenter", `--net=/run/netns/${namespace}`, "--", ...command];
}
