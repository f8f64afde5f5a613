// Runs an address collector for unit tests, with an in-memory datastore, an in-memory Kubernetes API and a manual clock.
import { Client, type Datastore, Informer, openSqliteInMemory } from "../../datastore/index.ts";
import { Ipam, readAllocations } from "../../ipam/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { createLogger, formatText } from "../../lib/log/log.ts";
import { MetricsRegistry } from "../../lib/metrics.ts";
import type { Resource } from "../../model/index.ts";
import { DatastoreCache } from "../datastore-cache.ts";
import { AddressCollector } from "../ipam-gc/collector.ts";
import { AllocationIndex } from "../ipam-gc/allocation-index.ts";
import { KubeVirt } from "../ipam-gc/virtual-machines.ts";
import { AddressMetrics } from "../ipam-gc/metrics.ts";
import { podFacts } from "../ipam-gc/pod-facts.ts";
import type { KubernetesNode } from "../nodes/kubernetes-name.ts";
import { FakeKube } from "./fake-kube.ts";

export const MINUTE = 60_000;

export class CollectorFixture implements AsyncDisposable {
  readonly kube = new FakeKube();
  readonly registry = new MetricsRegistry();
  readonly lines: string[] = [];
  nowMs = Date.now();
  readonly #stop = new AbortController();
  #running: Promise<unknown> = Promise.resolve();
  #collector: AddressCollector | undefined;

  static async create(): Promise<CollectorFixture> {
    const store = await openSqliteInMemory();
    const fixture = new CollectorFixture(store);
    await fixture.client.ensureInitialized();
    await fixture.pool("p4", "10.65.0.0/16");
    return fixture;
  }

  readonly client: Client;
  readonly ipam: Ipam;
  private constructor(readonly store: Datastore) {
    this.client = new Client(store);
    this.ipam = new Ipam({ datastore: store, nowMs: () => this.nowMs });
  }

  async pool(name: string, cidr: string): Promise<void> {
    await this.client.create(resource("IPPool", name, { cidr, blockSize: 28, nodeSelector: "all()" }));
  }

  /** Creates a Calico Node and its Kubernetes Node. @param kubernetes null = only the Calico Node */
  async node(name: string, kubernetes: string | null = name): Promise<void> {
    const orchRefs = kubernetes === null ? [] : [{ orchestrator: "k8s", nodeName: kubernetes }];
    await this.client.create(resource("Node", name, { orchRefs }));
    if (kubernetes !== null) this.kube.put(`/api/v1/nodes/${kubernetes}`);
  }

  pod(name: string, node: string, ip: string | undefined, more: object = {}, annotations: object = {}): void {
    this.kube.put(`/api/v1/namespaces/ns1/pods/${name}`, {
      metadata: { annotations },
      spec: { nodeName: node, containers: [{ name: "c", image: "i" }] },
      status: { phase: "Running", ...(ip === undefined ? {} : { podIP: ip, podIPs: [{ ip }] }), ...more },
    });
  }

  /** Assigns one address. */
  async assign(host: string, pod: string, attributes: Record<string, string> = {}, handleId = `net.${pod}`) {
    const { addresses } = await this.ipam.autoAssign({
      version: 4,
      count: 1,
      host,
      use: "Workload",
      handleId,
      attributes: { node: host, namespace: "ns1", pod, ...attributes },
    });
    return (addresses[0] ?? "").replace(/\/.*/, "") as IpAddress;
  }

  async tunnel(host: string): Promise<IpAddress> {
    const attributes = { node: host, type: "vxlanTunnelAddress" };
    const { addresses } = await this.ipam.autoAssign({
      version: 4,
      count: 1,
      host,
      use: "Tunnel",
      handleId: `vxlan-tunnel-addr-${host}`,
      attributes,
    });
    return (addresses[0] ?? "").replace(/\/.*/, "") as IpAddress;
  }

  start(graceMs: number | undefined): void {
    const { store, kube, ipam, registry } = this;
    const log = createLogger({ level: "debug", write: (record) => void this.lines.push(formatText(record)) });
    const cache = new DatastoreCache({ store, log, batchMs: 1 });
    const pods = new Informer({ api: kube.api, path: "/api/v1/pods", keep: podFacts });
    const kubernetesNodes = new Informer<KubernetesNode>({
      api: kube.api,
      path: "/api/v1/nodes",
      keep: ({ metadata }) => ({ labels: metadata.labels ?? {} }),
    });
    const index = new AllocationIndex();
    const metrics = new AddressMetrics(registry, cache, index);
    const collector = new AddressCollector({
      index,
      cache,
      store,
      ipam,
      api: kube.api,
      pods,
      kubernetesNodes,
      virtualMachines: new KubeVirt(kube.api),
      graceMs,
      log,
      now: () => this.nowMs,
      onReleased: (allocation) => metrics.onReleased(allocation),
    });
    this.#collector = collector;
    const { signal } = this.#stop;
    this.#running = Promise.all([collector, pods, kubernetesNodes, cache].map((part) => part.run(signal)));
  }

  /** Advances the clock and waits for a full scan. */
  async scan(ms = 0): Promise<void> {
    this.nowMs += ms;
    await this.#collector?.scanAll();
  }

  async allocated(): Promise<string[]> {
    return (await readAllocations(this.store)).map(({ address }) => address as string).sort();
  }
  async blocksOf(host: string): Promise<Cidr[]> {
    const { items } = await this.store.list({ type: "blockAffinity", affinityType: "host", host });
    return items.map(({ key }) => key.cidr).sort();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running;
    await this.store.close();
  }
}

export const resource = (kind: Resource["kind"], name: string, spec: object): Resource =>
  ({ apiVersion: "projectcalico.org/v3", kind, metadata: { name }, spec }) as Resource;
