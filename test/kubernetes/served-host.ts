// A host with the node's CNI service, as the manifest's account, on a real API server that counts its requests.
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { KubeObject } from "../../src/datastore/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { CniHost, DIST } from "../functional/cni/cni-host.ts";
import { installAccounts } from "./accounts.ts";
import { type Cluster, startCluster } from "./cluster.ts";
import { type Forwarder, forwardInto } from "./host-forwarder.ts";

const CALICO = "/apis/crd.projectcalico.org/v1";

export class ServedHost implements AsyncDisposable {
  private constructor(
    readonly cluster: Cluster,
    readonly host: CniHost,
    readonly conf: Readonly<Record<string, unknown>>,
    readonly forwarder: Forwarder,
  ) {}

  /** @param stepTimes where the service writes down when each step of a request was done */
  static async create(stepTimes = ""): Promise<ServedHost> {
    const cluster = await startCluster({ namespaces: ["ns1"] });
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
    const kubeconfig = (await installAccounts(cluster)).kubeconfig("calico-node", forwarder.url);
    const socket = join(host.folder, "run/cni.sock");
    const child = host.start(join(DIST, "calico"), ["cni-service", "--socket", socket], {
      DATASTORE_TYPE: "kubernetes",
      KUBECONFIG: kubeconfig,
      CALICO_CNI_TIMES: stepTimes,
    });
    let log = "";
    child.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
    await eventually(() => log.includes("listens"));
    const conf = {
      name: "k8s-pod-network",
      datastore_type: "kubernetes",
      kubernetes: { kubeconfig },
      policy: { type: "k8s" },
      service_socket: socket,
    };
    return new ServedHost(cluster, host, conf, forwarder);
  }

  /** A pod on the host; what a runtime would say of it. */
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

  /** Attaches pods until one costs no reading. */
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
    throw new Error("the service does not get warm");
  }

  /** All so far, as `verb path`. Watches are told when they end. */
  requests(): string[] {
    return readFileSync(this.cluster.server.auditLog, "utf8")
      .split("\n")
      .filter((line) => line.includes('"username":"system:serviceaccount:kube-system:calico-node"'))
      .map((line) => JSON.parse(line) as { verb: string; requestURI: string })
      .map(({ verb, requestURI }) => `${verb} ${requestURI}`)
      .filter((request) => !request.startsWith("watch "));
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.forwarder[Symbol.dispose]();
    await this.host[Symbol.asyncDispose]();
    await this.cluster[Symbol.asyncDispose]();
  }
}
