// Provides a cluster with virtual machines for tests: an in-memory datastore, a fake Kubernetes API, and ADD and DEL of pods
// without network interfaces.
import { type Datastore, openSqliteInMemory } from "../../datastore/index.ts";
import { Ipam } from "../../ipam/index.ts";
import type { IpAddress } from "../../lib/ip/ip.ts";
import { KeyedMutex } from "../../lib/keyed-mutex.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { API_VERSION, type IpamConfig, type KindName, type Labels, type Resource } from "../../model/index.ts";
import type { CniContext } from "../context.ts";
import { INTERNAL, MissingObject } from "../error.ts";
import { type Assigned, assignPoolAddresses, releasePoolAddresses } from "../ipam/pool-addresses.ts";
import type { KubernetesApi } from "../kubernetes/api.ts";
import { parseNetConf } from "../request/net-conf.ts";
import { buildContext } from "../open-context.ts";
import { parseRequest } from "../request/request.ts";
import { noTimes } from "../step-times.ts";

interface Metadata {
  readonly name: string;
  readonly uid: string;
  readonly labels?: Labels;
  readonly deletionTimestamp?: string;
  readonly ownerReferences?: readonly {
    readonly apiVersion: string;
    readonly kind: string;
    readonly name: string;
    readonly uid: string;
    readonly controller?: boolean;
  }[];
}

export interface PodRequest {
  readonly pod: string;
  readonly container?: string;
  readonly node?: string;
  readonly ip?: IpAddress;
  readonly conf?: object;
}

export class VirtualMachineCluster {
  /** By `plural/name`; all are in namespace ns1. */
  readonly objects = new Map<string, { readonly metadata: Metadata; readonly spec?: object }>();
  /** The objects that were read, as `plural/name`. */
  readonly reads: string[] = [];
  readonly ipam: Ipam;
  private constructor(readonly store: Datastore) {
    this.ipam = new Ipam({ datastore: store });
  }

  /** @param hasTransactions false simulates the Kubernetes datastore */
  static async create(hasTransactions = true): Promise<VirtualMachineCluster> {
    const store = await openSqliteInMemory();
    if (!hasTransactions) Object.defineProperty(store, "transact", { value: undefined });
    const bench = new VirtualMachineCluster(store);
    await bench.put("ClusterInformation", "default", { datastoreReady: true });
    await bench.put("Node", "n1", {});
    await bench.put("Node", "n2", {});
    await bench.put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26 });
    await bench.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122 });
    return bench;
  }

  async put(kind: KindName, name: string, spec: object, namespace?: string): Promise<void> {
    const metadata = { name, namespace };
    const value = { apiVersion: API_VERSION, kind, metadata, spec } as Resource;
    await this.store.apply({ key: { type: "resource", kind, ...metadata }, value });
  }

  async persistence(value: IpamConfig["kubeVirtVmAddressPersistence"]): Promise<void> {
    await this.ipam.configure(value === undefined ? {} : { kubeVirtVmAddressPersistence: value });
  }

  /**
   * Creates the machine `vm1` and its instance.
   * @param options.alone create only the instance
   * @param options.uid of the instance
   */
  machine(options: { readonly alone?: boolean; readonly uid?: string } = {}): void {
    const { alone = false, uid = "vmi-1" } = options;
    const owner = { apiVersion: "kubevirt.io/v1", kind: "VirtualMachine", name: "vm1", uid: "vm-1", controller: true };
    if (!alone) this.objects.set("virtualmachines/vm1", { metadata: { name: "vm1", uid: "vm-1" } });
    const ownerReferences = alone ? [] : [owner];
    this.objects.set("virtualmachineinstances/vm1", { metadata: { name: "vm1", uid, ownerReferences } });
  }

  /** Marks the machine or its instance as being deleted. */
  end(what: "virtualmachines" | "virtualmachineinstances"): void {
    const { metadata } = this.objects.get(`${what}/vm1`) ?? { metadata: { name: "vm1", uid: "" } };
    this.objects.set(`${what}/vm1`, { metadata: { ...metadata, deletionTimestamp: "2026-01-01T00:00:00Z" } });
  }

  /**
   * Creates a pod of the machine.
   * @param options.migration the migration whose target is this pod
   */
  pod(
    name: string,
    options: { readonly migration?: string; readonly uid?: string; readonly kind?: string } = {},
  ): void {
    const { migration, uid = "vmi-1", kind = "VirtualMachineInstance" } = options;
    const labels: Labels = migration === undefined ? {} : { "kubevirt.io/migrationJobUID": migration };
    const owner = { apiVersion: "kubevirt.io/v1", kind, name: "vm1", uid, controller: true };
    const metadata = { name, uid: `uid-${name}`, labels, ownerReferences: [owner] };
    this.objects.set(`pods/${name}`, { metadata, spec: {} });
  }

  context({ pod, container = `c-${pod}`, node = "n1", conf = {} }: PodRequest): CniContext {
    const stdin = { cniVersion: "1.0.0", name: "net1", type: "calico", nodename: node, nodename_file_optional: true };
    const rest = { policy: { type: "k8s" }, ipam_lock_file: "/dev/null", ipam: { type: "calico-ipam" }, ...conf };
    const env = {
      ...{ CNI_COMMAND: "ADD", CNI_CONTAINERID: container, CNI_IFNAME: "eth0", CNI_PATH: "/none", CNI_NETNS: "/none" },
      CNI_ARGS: `K8S_POD_NAME=${pod};K8S_POD_NAMESPACE=ns1`,
    };
    const request = parseRequest("calico", env, JSON.stringify({ ...stdin, ...rest }));
    return buildContext({
      ...{ request, conf: parseNetConf(request.config), store: this.store, env: {} },
      ...{ signal: undefined, mutex: new KeyedMutex() },
      ...{ log: silentLogger, now: () => new Date("2026-01-01T00:00:00Z"), mark: noTimes },
      kubernetes: async () => this.#api,
      openNetns: () => {
        throw new Error("no kernel here");
      },
    });
  }

  add(request: PodRequest): Promise<Assigned> {
    const context = this.context(request);
    const { ip } = request;
    return assignPoolAddresses(context, { settings: context.conf.ipam, ip });
  }

  /** Like `add`, but returns only the addresses. */
  async addresses(request: PodRequest): Promise<string[]> {
    return (await this.add(request)).ips.map(({ address }) => String(address.address));
  }

  async del(request: PodRequest): Promise<void> {
    await releasePoolAddresses(this.context(request));
  }

  async handles(): Promise<string[]> {
    return (await this.store.list({ type: "ipamHandle" })).items.map(({ key }) => key.handleId).sort();
  }

  /** Returns the pods that own the machine's first address. */
  async owners(): Promise<{ active?: string; alternate?: string }> {
    const [owned] = await this.ipam.updateOwnerAttributes("net1.vmi.ns1.vm1", (owners) => owners);
    const [active, alternate] = [owned?.active?.["pod"], owned?.alternate?.["pod"]];
    return { active, alternate };
  }

  /** Swaps the owners, as Felix does when the migration is complete. */
  async completeMigration(): Promise<void> {
    await this.ipam.updateOwnerAttributes("net1.vmi.ns1.vm1", ({ active, alternate }) => ({
      active: alternate,
      alternate: active,
    }));
  }

  readonly #get = async (plural: string, name: string): Promise<never> => {
    this.reads.push(`${plural}/${name}`);
    const found = this.objects.get(`${plural}/${name}`);
    if (found === undefined) throw new MissingObject(INTERNAL, `${plural} ${JSON.stringify(name)} not found`);
    return found as never;
  };
  readonly #api: KubernetesApi = {
    pod: (_namespace, name) => this.#get("pods", name),
    namespace: async (name) => ({ metadata: { name } }),
    node: (name) => this.#get("nodes", name),
    machine: (_namespace, name) => this.#get("virtualmachines", name),
    machineInstance: (_namespace, name) => this.#get("virtualmachineinstances", name),
    version: async () => ({}),
  };
}
