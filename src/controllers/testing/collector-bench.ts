// An address collector with everything around it, for unit tests: a datastore in memory, an API in memory, and a clock
// that stands still until it is moved.
import { Client, type Datastore, Informer, openSqliteInMemory } from "../../datastore/index.ts";
import { Ipam, readAllocations } from "../../ipam/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip.ts";
import { createLogger, formatText } from "../../lib/log.ts";
import { MetricsRegistry } from "../../lib/metrics.ts";
import type { Resource } from "../../model/index.ts";
import { Feed } from "../feed.ts";
import { AddressCollector } from "../ipam-gc/collector.ts";
import { Ledger } from "../ipam-gc/ledger.ts";
import { KubeVirtMachines } from "../ipam-gc/machines.ts";
import { AddressMetrics } from "../ipam-gc/metrics.ts";
import { podFacts } from "../ipam-gc/pod-facts.ts";
import type { KubernetesNode } from "../nodes/kubernetes-name.ts";
import { FakeKube } from "./fake-kube.ts";

export const MINUTE = 60_000;

export class CollectorBench implements AsyncDisposable {
  readonly kube = new FakeKube();
  readonly registry = new MetricsRegistry();
  readonly lines: string[] = [];
  nowMs = Date.now();
  readonly #stop = new AbortController();
  #running: Promise<unknown> = Promise.resolve();
  #collector: AddressCollector | undefined;

  static async create(): Promise<CollectorBench> {
    const store = await openSqliteInMemory();
    const bench = new CollectorBench(store);
    await bench.client.ensureInitialized();
    await bench.pool("p4", "10.65.0.0/16");
    return bench;
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

  /** A node of ours and of Kubernetes; null = of ours alone. */
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

  /** Gives out one address. */
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
    const feed = new Feed({ store, log, batchMs: 1 });
    const pods = new Informer({ api: kube.api, path: "/api/v1/pods", keep: podFacts });
    const kubernetesNodes = new Informer<KubernetesNode>({
      api: kube.api,
      path: "/api/v1/nodes",
      keep: ({ metadata }) => ({ labels: metadata.labels ?? {} }),
    });
    const ledger = new Ledger();
    const metrics = new AddressMetrics(registry, feed, ledger);
    const collector = new AddressCollector({
      ledger,
      feed,
      store,
      ipam,
      api: kube.api,
      pods,
      kubernetesNodes,
      machines: new KubeVirtMachines(kube.api),
      graceMs,
      log,
      now: () => this.nowMs,
      onReleased: (allocation) => metrics.onReleased(allocation),
    });
    this.#collector = collector;
    const { signal } = this.#stop;
    this.#running = Promise.all([collector, pods, kubernetesNodes, feed].map((part) => part.run(signal)));
  }

  /** Moves the clock and has everything looked at. */
  async pass(ms = 0): Promise<void> {
    this.nowMs += ms;
    await this.#collector?.scanned();
  }

  async held(): Promise<string[]> {
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
