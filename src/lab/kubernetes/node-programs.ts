// Configures and starts the programs of a node: containerd with Debian's runc, the kubelet, and kube-proxy. The configuration is
// in the node's folder, which is mounted at /etc/kubernetes.
import { copyFileSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { baseEnvironment } from "../host.ts";
import type { LabOptions } from "../options.ts";
import { type Authority } from "./authority.ts";
import { apiServerUrl, CLUSTER_DOMAIN, DNS_SERVICE_ADDRESS } from "./control-plane.ts";
import type { KubernetesHost } from "./host.ts";
import { PAUSE_IMAGE } from "./image-names.ts";
import { type ProgramName, programPath } from "./programs.ts";

const ETC = "/etc/kubernetes";
const RUNTIME_SOCKET = "/run/containerd/containerd.sock";

export interface NodePlace {
  readonly host: KubernetesHost;
  readonly address: string;
  readonly apiServerAddress: string;
}

export function configureNode(
  { host, address, apiServerAddress }: NodePlace,
  authority: Authority,
  options: LabOptions,
) {
  const write = (file: string, value: object | string) =>
    writeFileSync(join(host.disk, "etc", file), typeof value === "string" ? value : JSON.stringify(value, null, 2), {
      mode: 0o600,
    });
  const copy = (from: string, file: string) => copyFileSync(from, join(host.disk, "etc", file));
  const server = apiServerUrl(apiServerAddress);
  const kubelet = {
    name: `kubelet-${host.name}`,
    commonName: `system:node:${host.name}`,
    organization: "system:nodes",
    alternativeNames: [`IP:${address}`, `DNS:${host.name}`],
  };
  const { certFile, keyFile } = authority.issue(kubelet);
  copy(authority.certFile, "ca.crt");
  copy(certFile, "kubelet.crt");
  copy(keyFile, "kubelet.key");
  copy(authority.kubeconfig(server, kubelet), "kubelet.kubeconfig");
  copy(authority.kubeconfig(server, { name: "kube-proxy", commonName: "system:kube-proxy" }), "kube-proxy.kubeconfig");
  write("containerd.toml", containerdConfig());
  write("kubelet.json", kubeletConfig());
  write("kube-proxy.json", proxyConfig(options));
}

export function startRuntime(host: KubernetesHost): void {
  start(host, "containerd", ["--config", `${ETC}/containerd.toml`]);
}

export function startKubelet({ host, address }: NodePlace): void {
  const flags = { config: `${ETC}/kubelet.json`, kubeconfig: `${ETC}/kubelet.kubeconfig` };
  start(host, "kubelet", words({ ...flags, "hostname-override": host.name, "node-ip": address }));
  start(host, "kube-proxy", words({ config: `${ETC}/kube-proxy.json`, "hostname-override": host.name }));
}

/** Whether containerd responds. */
export function isRuntimeReady(host: KubernetesHost): boolean {
  return host.run([programPath("ctr"), "version"]).code === 0;
}

export function importImage(host: KubernetesHost, archive: string): void {
  const result = host.run([programPath("ctr"), "--namespace", "k8s.io", "images", "import", "--local", archive]);
  if (result.code !== 0) throw new Error(`${host.name}: cannot import ${archive}: ${result.stderr.trim()}`);
}

function start(host: KubernetesHost, name: ProgramName, args: readonly string[]): void {
  if (host.program(name) !== undefined) return;
  // containerd finds its shim, and the kubelet its helpers, on PATH.
  const path = `${dirname(programPath("containerd"))}:${baseEnvironment()["PATH"]}`;
  host.startProgram(name, [programPath(name), ...args], { PATH: path });
}

const words = (flags: Readonly<Record<string, string>>): string[] =>
  Object.entries(flags).map(([flag, value]) => `--${flag}=${value}`);

/** `restrict_oom_score_adj`: without CAP_SYS_RESOURCE, runc fails when it lowers a score. */
function containerdConfig(): string {
  return `version = 3
root = "/var/lib/containerd"
state = "/run/containerd"

[grpc]
  address = "${RUNTIME_SOCKET}"

[plugins."io.containerd.cri.v1.images"]
  snapshotter = "overlayfs"
  [plugins."io.containerd.cri.v1.images".pinned_images]
    sandbox = "${PAUSE_IMAGE}"

[plugins."io.containerd.cri.v1.runtime"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  [plugins."io.containerd.cri.v1.runtime".cni]
    bin_dirs = ["/opt/cni/bin"]
    conf_dir = "/etc/cni/net.d"
  [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
      SystemdCgroup = false
`;
}

function kubeletConfig(): object {
  return {
    apiVersion: "kubelet.config.k8s.io/v1beta1",
    kind: "KubeletConfiguration",
    authentication: {
      anonymous: { enabled: false },
      webhook: { enabled: true },
      x509: { clientCAFile: `${ETC}/ca.crt` },
    },
    authorization: { mode: "Webhook" },
    tlsCertFile: `${ETC}/kubelet.crt`,
    tlsPrivateKeyFile: `${ETC}/kubelet.key`,
    containerRuntimeEndpoint: `unix://${RUNTIME_SOCKET}`,
    clusterDNS: [DNS_SERVICE_ADDRESS],
    clusterDomain: CLUSTER_DOMAIN,
    cgroupDriver: "cgroupfs",
    failCgroupV1: false,
    failSwapOn: false,
    // The disk is shared with the machine, and deleted images cannot be pulled again.
    evictionHard: { "memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%" },
    imageGCHighThresholdPercent: 100,
  };
}

/** Does not change conntrack limits, which apply to the whole machine. */
function proxyConfig(options: LabOptions): object {
  return {
    apiVersion: "kubeproxy.config.k8s.io/v1alpha1",
    kind: "KubeProxyConfiguration",
    mode: options.dataplane === "nft" ? "nftables" : "iptables",
    clientConnection: { kubeconfig: `${ETC}/kube-proxy.kubeconfig` },
    conntrack: { maxPerCore: 0, min: 0 },
  };
}
