// etcd, the API server, the controller manager and the scheduler of a lab, in the namespace that holds the wires.
import { join } from "node:path";
import type { LabFolder } from "../folder.ts";
import { FABRIC } from "../fabric.ts";
import { baseEnvironment } from "../host.ts";
import { findProcess, startProcess } from "../process.ts";
import { joined, makeGroups } from "./cgroups.ts";
import { type Authority, type Subject } from "./authority.ts";
import { type ProgramName, programPath } from "./programs.ts";

const SERVICE_CIDR = "10.96.0.0/16";
const SERVICE_ADDRESS = "10.96.0.1";
/** Given out by the controller manager to nodes; Calico has its own pools and takes no notice. */
const NODE_CIDRS = "10.64.0.0/16";
const API_PORT = 6443;
const ETCD = "http://127.0.0.1:2379";
const PEER = "http://127.0.0.1:2380";

export const ADMIN: Subject = { name: "admin", commonName: "lab-admin", organization: "system:masters" };

export const apiServerUrl = (address: string): string => `https://${address}:${API_PORT}`;

/** etcd and the API server, unless they run. */
export function startApiServer(
  folder: LabFolder,
  authority: Authority,
  address: string,
  more: Readonly<Record<string, string>> = {},
): void {
  start(folder, "etcd", "etcd", {
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
  startBuilt(folder, "kube-apiserver", {
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

/** Who works on what the API server holds. They wait for it ten seconds at most: it must answer already. */
export function startManagers(folder: LabFolder, authority: Authority, address: string): void {
  const signing = authority.signingKey();
  const kubeconfig = (name: string) =>
    authority.kubeconfig(apiServerUrl(address), { name, commonName: `system:${name}` });
  startBuilt(folder, "kube-controller-manager", {
    kubeconfig: kubeconfig("kube-controller-manager"),
    "leader-elect": "false",
    "allocate-node-cidrs": "true",
    "cluster-cidr": NODE_CIDRS,
    "service-cluster-ip-range": SERVICE_CIDR,
    "root-ca-file": authority.certFile,
    "service-account-private-key-file": signing,
    "use-service-account-credentials": "true",
  });
  startBuilt(folder, "kube-scheduler", { kubeconfig: kubeconfig("kube-scheduler"), "leader-elect": "false" });
}

function startBuilt(folder: LabFolder, name: ProgramName, flags: Readonly<Record<string, string>>): void {
  start(folder, name, programPath(name), flags);
}

function start(folder: LabFolder, name: string, program: string, flags: Readonly<Record<string, string>>): void {
  if (findProcess(folder, name) !== undefined) return;
  const words = Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);
  // A group of its own, or nodes, which have theirs, get all of a busy machine's time and wait for the API server in vain.
  const command = joined(makeGroups(folder.namespace(FABRIC)), inFabric(folder, [program, ...words]));
  startProcess(folder, name, command, baseEnvironment());
}

/** The command line that runs a command beside the API server. */
export function inFabric(folder: LabFolder, command: readonly string[]): readonly [string, ...string[]] {
  return ["nsenter", `--net=/run/netns/${folder.namespace(FABRIC)}`, "--", ...command];
}
