// Creates two hosts and KubeVirt's kinds on a real API server: pods that run a virtual machine, attached by the plugin
// itself or by the node's service, with Calico's data in Kubernetes or in etcd. The test acts as KubeVirt's controllers.
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Datastore, type KubeObject, openDatastore } from "../../src/datastore/index.ts";
import { Ipam } from "../../src/ipam/index.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import { API_VERSION, type KindName, type Resource } from "../../src/model/index.ts";
import { CniHost, DIST, type Pod, type PluginRun } from "../functional/cni/cni-host.ts";
import { type Accounts, installAccounts } from "./accounts.ts";
import type { Cluster } from "./cluster.ts";
import { type Forwarder, forwardInto } from "../support/host-forwarder.ts";

export interface Way {
  readonly datastore: "kubernetes" | "etcdv3";
  readonly by: "plugin" | "service";
}
type Node = "n1" | "n2";

const KUBEVIRT = "/apis/kubevirt.io/v1/namespaces/ns1";
const PODS = "/api/v1/namespaces/ns1/pods";
export const HANDLE = "k8s-pod-network.vmi.ns1.vm1";

/** Installs the CRDs of virtual machines without a schema, because the plugin reads only metadata. */
export async function installKubeVirt(cluster: Cluster): Promise<void> {
  for (const kind of ["VirtualMachine", "VirtualMachineInstance"]) {
    const plural = `${kind.toLowerCase()}s`;
    await cluster.put("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", {
      metadata: { name: `${plural}.kubevirt.io` },
      spec: {
        group: "kubevirt.io",
        scope: "Namespaced",
        names: { kind, plural, singular: kind.toLowerCase(), listKind: `${kind}List` },
        versions: [
          {
            name: "v1",
            served: true,
            storage: true,
            schema: { openAPIV3Schema: { type: "object", "x-kubernetes-preserve-unknown-fields": true } },
          },
        ],
      },
    });
    await eventually(() =>
      cluster.api.list(`${KUBEVIRT}/${plural}`).then(
        () => true,
        () => false,
      ),
    );
  }
}

export class MachineHosts implements AsyncDisposable {
  readonly #forwarders: Forwarder[] = [];
  readonly #confs = new Map<Node, Record<string, unknown>>();
  readonly hosts: Readonly<Record<Node, CniHost>>;
  readonly ipam: Ipam;
  private constructor(
    readonly cluster: Cluster,
    readonly store: Datastore,
    hosts: readonly [CniHost, CniHost],
  ) {
    this.hosts = { n1: hosts[0], n2: hosts[1] };
    this.ipam = new Ipam({ datastore: store });
  }

  static async create(cluster: Cluster, way: Way): Promise<MachineHosts> {
    const { etcdUrl } = cluster.server;
    const isEtcd = way.datastore === "etcdv3";
    const store = await openDatastore(
      isEtcd ? ({ type: "etcdv3", endpoints: [etcdUrl] } as never) : { ...cluster.config },
      { timeoutMs: 15_000 },
    );
    const self = new MachineHosts(cluster, store, [await CniHost.create(), await CniHost.create()]);
    for (const name of ["n1", "n2"]) {
      await cluster.put("/api/v1/nodes", { metadata: { name } });
      if (isEtcd) await self.#put("Node", name, {});
    }
    await self.#put("ClusterInformation", "default", { datastoreReady: true });
    await self.#put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26 });
    await self.#put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122 });
    const accounts = await installAccounts(cluster, isEtcd ? "calico-etcd.yaml" : "calico-typha.yaml");
    for (const node of ["n1", "n2"] as const) self.#confs.set(node, await self.#prepare(node, way, accounts));
    return self;
  }

  async #put(kind: KindName, name: string, spec: object): Promise<void> {
    const value = { apiVersion: API_VERSION, kind, metadata: { name }, spec } as Resource;
    await this.store.apply({ key: { type: "resource", kind, name }, value });
  }

  async #prepare(node: Node, way: Way, accounts: Accounts): Promise<Record<string, unknown>> {
    const host = this.hosts[node];
    const forward = (url: string): string => {
      const forwarder = forwardInto(host, url);
      this.#forwarders.push(forwarder);
      return forwarder.url;
    };
    const { server } = this.cluster;
    const api = forward(server.url);
    const etcd = way.datastore === "etcdv3" ? forward(server.etcdUrl).replace("https:", "http:") : "";
    const account = way.by === "service" ? "calico-node" : "calico-cni-plugin";
    const kubeconfig = accounts.kubeconfig(account, api);
    const socket = way.by === "service" ? join(host.folder, "run/cni.sock") : "";
    if (socket !== "") {
      mkdirSync(join(host.folder, "lib"), { recursive: true });
      writeFileSync(join(host.folder, "lib/nodename"), node);
      const child = host.start(join(DIST, "calico"), ["cni-service", "--socket", socket], {
        DATASTORE_TYPE: way.datastore,
        KUBECONFIG: kubeconfig,
        ...(etcd === "" ? {} : { ETCD_ENDPOINTS: etcd }),
      });
      let log = "";
      child.stderr?.on("data", (chunk: Buffer) => (log += chunk.toString()));
      await eventually(() => log.includes("listens"));
    }
    return {
      name: "k8s-pod-network",
      nodename: node,
      datastore_type: way.datastore,
      ...(etcd === "" ? {} : { etcd_endpoints: etcd }),
      // With a service the plugin itself cannot reach the datastore: a success shows that the service was used.
      kubernetes: { kubeconfig: socket === "" ? kubeconfig : "/nowhere" },
      policy: { type: "k8s" },
      service_socket: socket,
      ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" },
    };
  }

  /** Starts the machine `vm1` and returns the UID of its instance. */
  async startMachine(): Promise<string> {
    const machine = await this.cluster.put<KubeObject>(`${KUBEVIRT}/virtualmachines`, {
      apiVersion: "kubevirt.io/v1",
      kind: "VirtualMachine",
      metadata: { name: "vm1", finalizers: ["kubevirt.io/test"] },
    });
    await this.cluster.delete(`${KUBEVIRT}/virtualmachineinstances/vm1`);
    const instance = await this.cluster.put<KubeObject>(`${KUBEVIRT}/virtualmachineinstances`, {
      apiVersion: "kubevirt.io/v1",
      kind: "VirtualMachineInstance",
      metadata: { name: "vm1", ownerReferences: [ownerOf("VirtualMachine", machine.metadata.uid)] },
    });
    return instance.metadata.uid ?? "";
  }

  /** Starts its deletion, which `removeFinalizer` completes. */
  deleteMachine(): Promise<void> {
    return this.cluster.delete(`${KUBEVIRT}/virtualmachines/vm1`);
  }

  async removeFinalizer(): Promise<void> {
    const path = `${KUBEVIRT}/virtualmachines/vm1`;
    const machine = await this.cluster.api.get<KubeObject>(path);
    const metadata = { ...machine.metadata, finalizers: [] };
    await this.cluster.api.json({ method: "PUT", path, body: { ...machine, metadata } });
    await this.cluster.delete(`${KUBEVIRT}/virtualmachineinstances/vm1`);
  }

  /** Creates a pod that runs the machine. @param migration the migration whose target is the pod */
  async launch(
    node: Node,
    instance: string,
    options: {
      readonly name: string;
      readonly migration?: string;
      readonly annotations?: Readonly<Record<string, string>>;
    },
  ): Promise<Launcher> {
    const name = `virt-launcher-vm1-${options.name}`;
    const { metadata } = await this.cluster.put<KubeObject>(PODS, {
      metadata: {
        name,
        ownerReferences: [ownerOf("VirtualMachineInstance", instance)],
        annotations: options.annotations ?? {},
        labels: options.migration === undefined ? {} : { "kubevirt.io/migrationJobUID": options.migration },
      },
      spec: { nodeName: node, containers: [{ name: "c", image: "i" }] },
    });
    const host = this.hosts[node];
    const pod = host.pod();
    const args = `IgnoreUnknown=1;K8S_POD_NAMESPACE=ns1;K8S_POD_NAME=${name};K8S_POD_UID=${metadata.uid}`;
    const call = (command: string, container: Pod = pod): Promise<PluginRun> =>
      host.call(command, container, { conf: { ...this.#confs.get(node) }, env: { CNI_ARGS: args } });
    return { name, pod, call, remove: () => this.cluster.delete(`${PODS}/${name}`) };
  }

  /** The owners of the machine's addresses in IPAM: the active one, then the alternate one. */
  async owners(): Promise<(string | undefined)[][]> {
    const owned = await this.ipam.updateOwnerAttributes(HANDLE, (owners) => owners);
    return owned.map(({ active, alternate }) => [active?.["pod"], alternate?.["pod"]]);
  }

  async handles(): Promise<string[]> {
    return (await this.store.list({ type: "ipamHandle" })).items.map(({ key }) => key.handleId);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const forwarder of this.#forwarders) forwarder[Symbol.dispose]();
    for (const host of Object.values(this.hosts)) await host[Symbol.asyncDispose]();
    await this.store.close();
  }
}

export interface Launcher {
  readonly name: string;
  readonly pod: Pod;
  /** @param container if it is not the pod's first container */
  readonly call: (command: string, container?: Pod) => Promise<PluginRun>;
  readonly remove: () => Promise<void>;
}

const ownerOf = (kind: string, uid: string | undefined) => ({
  apiVersion: "kubevirt.io/v1",
  kind,
  name: "vm1",
  uid,
  controller: true,
});
