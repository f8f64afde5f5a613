// Creates a host with the node's CNI service, with the manifest's account, on a real API server whose audit log counts
// requests.
import type { ChildProcess } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { KubeObject } from "../../src/datastore/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { CniHost, DIST } from "../functional/cni/cni-host.ts";
import { installAccounts } from "./accounts.ts";
import { kubeconfigText } from "./api-server.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type Forwarder, forwardInto } from "../support/host-forwarder.ts";

const CALICO = "/apis/crd.projectcalico.org/v1";
const TOKEN_SECRET = "/api/v1/namespaces/kube-system/secrets/agent-token";

/** A token of the agent's account that is valid as long as a Secret exists. */
async function boundToken(cluster: Cluster): Promise<string> {
  const secret = { apiVersion: "v1", kind: "Secret", metadata: { name: "agent-token" } };
  const { metadata } = await cluster.put<KubeObject>("/api/v1/namespaces/kube-system/secrets", secret);
  const { status } = await cluster.api.json<{ status: { token: string } }>({
    method: "POST",
    path: "/api/v1/namespaces/kube-system/serviceaccounts/calico-node/token",
    body: { spec: { boundObjectRef: { kind: "Secret", apiVersion: "v1", name: "agent-token", uid: metadata.uid } } },
  });
  return status.token;
}

export class ServedHost implements AsyncDisposable {
  private constructor(
    readonly cluster: Cluster,
    readonly host: CniHost,
    readonly conf: Readonly<Record<string, unknown>>,
    readonly forwarder: Forwarder,
    readonly service: ChildProcess,
    readonly agentToken: string,
  ) {}

  /** @param stepTimes file for the times of each step of a request */
  static async create(stepTimes = ""): Promise<ServedHost> {
    const cluster = await startCluster({ namespaces: ["ns1"] });
    const served = await ServedHost.on(cluster, stepTimes);
    served.#own = cluster;
    return served;
  }
  #own: Cluster | undefined;

  /** Creates the host in an existing cluster that has the namespace `ns1`. */
  static async on(cluster: Cluster, stepTimes = ""): Promise<ServedHost> {
    const put = (plural: string, kind: string, name: string, spec: object) =>
      cluster.put(`${CALICO}/${plural}`, { apiVersion: "crd.projectcalico.org/v1", kind, metadata: { name }, spec });
    await put("ippools", "IPPool", "p4", { cidr: "10.65.0.0/16", blockSize: 26 });
    await put("clusterinformations", "ClusterInformation", "default", { datastoreReady: true });
    await put("ipamconfigs", "IPAMConfig", "default", { autoAllocateBlocks: true, strictAffinity: false });
    await cluster.put("/api/v1/nodes", { metadata: { name: "n1" } });
    const host = await CniHost.create();
    mkdirSync(join(host.folder, "lib"), { recursive: true });
    writeFileSync(join(host.folder, "lib/nodename"), "n1"); // as the node agent leaves it
    const forwarder = forwardInto(host, cluster.server.url);
    const accounts = await installAccounts(cluster);
    const agentToken = await boundToken(cluster);
    const agentKubeconfig = join(cluster.server.folder, `agent-${new URL(forwarder.url).port}.kubeconfig`);
    writeFileSync(agentKubeconfig, kubeconfigText(forwarder.url, cluster.server.ca, agentToken), { mode: 0o600 });
    const socket = join(host.folder, "run/cni.sock");
    const child = host.start(join(DIST, "calico"), ["cni-service", "--socket", socket], {
      DATASTORE_TYPE: "kubernetes",
      KUBECONFIG: agentKubeconfig,
      CALICO_CNI_TIMES: stepTimes,
    });
    let log = "";
    child.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
    await eventually(() => log.includes("listens"));
    const conf = {
      name: "k8s-pod-network",
      datastore_type: "kubernetes",
      kubernetes: { kubeconfig: accounts.kubeconfig("calico-cni-plugin", forwarder.url) },
      policy: { type: "k8s" },
      service_socket: socket,
    };
    return new ServedHost(cluster, host, conf, forwarder, child, agentToken);
  }

  /** Revokes the service's token, as the API server does with a pod's token when the pod is deleted. */
  async revokeAgentToken(): Promise<void> {
    const { server } = this.cluster;
    await this.cluster.delete(TOKEN_SECRET);
    const headers = { authorization: `Bearer ${this.agentToken}` };
    const status = async () =>
      (await fetch(`${server.url}/api/v1/nodes/n1`, { headers, tls: { rejectUnauthorized: false } })).status;
    await eventually(async () => (await status()) === 401, 30_000); // the server caches tokens for ten seconds
  }

  /** Creates a pod on the host, and returns the CNI arguments that a runtime would pass. */
  async makePod(
    name: string,
    annotations: Readonly<Record<string, string>> = {},
  ): Promise<{ env: Record<string, string> }> {
    const { metadata } = await this.cluster.put<KubeObject>("/api/v1/namespaces/ns1/pods", {
      metadata: { name, annotations },
      spec: { nodeName: "n1", containers: [{ name: "c", image: "i" }] },
    });
    const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=ns1;K8S_POD_NAME=${name};K8S_POD_UID=${metadata.uid}`;
    return { env: { CNI_ARGS: args } };
  }

  /** Attaches pods until one needs no read request. */
  async warmUp(): Promise<void> {
    for (let i = 0; i < 20; i++) {
      const call = await this.makePod(`warm-${i}`);
      const pod = this.host.pod();
      const before = this.requests().length;
      await this.host.add(pod, { conf: this.conf, ...call });
      const count = this.requests().length - before;
      await this.host.del(pod, { conf: this.conf, ...call });
      if (count <= 3) return;
      await Bun.sleep(100);
    }
    throw new Error("the service still sends read requests");
  }

  /** All requests so far, as `verb path`. A watch is logged when it ends. */
  requests(): string[] {
    return readFileSync(this.cluster.server.auditLog, "utf8")
      .split("\n")
      .filter((line) => line.includes('"username":"system:serviceaccount:kube-system:calico-node"'))
      .map((line) => JSON.parse(line) as { verb: string; requestURI: string })
      .map(({ verb, requestURI }) => `${verb} ${requestURI}`)
      .filter((request) => !request.startsWith("watch "));
  }

  async annotations(pod: string): Promise<Readonly<Record<string, string>>> {
    const { metadata } = await this.cluster.api.get<KubeObject>(`/api/v1/namespaces/ns1/pods/${pod}`);
    return metadata.annotations ?? {};
  }
  /** The number of addresses of each handle. */
  async handles(): Promise<Readonly<Record<string, number>>> {
    const { items } = await this.cluster.api.list(`${CALICO}/ipamhandles`);
    return Object.fromEntries(
      (items as (KubeObject & { spec: { block: Record<string, number> } })[]).map(({ metadata, spec }) => [
        metadata.name,
        Object.values(spec.block).reduce((sum, count) => sum + count, 0),
      ]),
    );
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.forwarder[Symbol.dispose]();
    await this.host[Symbol.asyncDispose]();
    await this.#own?.[Symbol.asyncDispose]();
  }
}
