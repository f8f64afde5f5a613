// Three namespaces of three pods on a lab, whose policies and labels are set straight in the datastore and whose every
// connection is tried by packets and judged by the evaluator.
import { join } from "node:path";
import { Client, type Datastore, NotFound, openSqlite } from "../../src/datastore/index.ts";
import { PacketProber, type ProbeProtocol, type ProbeTarget } from "../../src/kernel/index.ts";
import { type IpAddress, parseAddress } from "../../src/lib/ip.ts";
import { delay } from "../../src/lib/retry.ts";
import type { KindName, Resource } from "../../src/model/index.ts";
import { entriesFromResources, judge, PolicyState } from "../../src/policy/index.ts";
import { down } from "../../src/lab/down.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../src/lab/options.ts";
import { endpointName } from "../../src/lab/pods.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { addPods, up } from "../../src/lab/up.ts";
import { NAMESPACES, PODS, PORTS, type Step } from "./cases.ts";

export const PROTOCOLS: readonly ProbeProtocol[] = ["tcp", "udp", "sctp"];
const STATE_KINDS: readonly KindName[] = [
  "WorkloadEndpoint",
  "HostEndpoint",
  "NetworkPolicy",
  "GlobalNetworkPolicy",
  "StagedNetworkPolicy",
  "StagedGlobalNetworkPolicy",
  "Tier",
  "Profile",
  "NetworkSet",
  "GlobalNetworkSet",
  "FelixConfiguration",
  "Node",
];
const NUMBER = { tcp: 6, udp: 17, sctp: 132, icmp: 1 } as const;
const AT_ONCE = 250;

export interface Probe {
  readonly from: LabPod;
  readonly to: LabPod;
  readonly address: IpAddress;
  readonly protocol: ProbeProtocol;
  readonly port: number;
}
export interface Disagreement {
  readonly probe: string;
  readonly evaluator: "allow" | "deny";
  readonly packet: string;
  readonly because: string;
}

export class ConformanceCluster implements AsyncDisposable {
  readonly #targets: ReadonlyMap<LabPod, ProbeTarget>;
  readonly #open: Disposable;
  readonly #prober = new PacketProber();
  probes = 0;

  private constructor(
    readonly lab: Lab,
    readonly store: Datastore,
    readonly client: Client,
  ) {
    const open = lab.openPods(lab.record.pods);
    this.#open = open;
    this.#targets = open.targets;
    for (const target of open.targets.values())
      for (const protocol of PROTOCOLS) for (const port of PORTS) this.#prober.listen(target, protocol, port);
  }

  static async start(options: Partial<LabOptions> & { readonly name: string }): Promise<ConformanceCluster> {
    const terminal = openTerminal({ quiet: true });
    const lab = await up({ ...DEFAULT_OPTIONS, podsPerNode: 0, ...options }, terminal);
    try {
      const nodes = lab.plan.nodes.map((node) => node.name);
      addPods(
        lab,
        NAMESPACES.flatMap((namespace, n) =>
          PODS.map((name, p) => ({
            namespace,
            name,
            node: nodes[(n + p) % nodes.length] ?? "node1",
            labels: { pod: name },
          })),
        ),
      );
      const store = await openSqlite(join(lab.folder.shared, "calico.db"));
      const cluster = new ConformanceCluster(lab, store, new Client(store));
      await cluster.#dress({}, {});
      return cluster;
    } catch (error) {
      await down(options.name, terminal);
      throw error;
    }
  }

  addressOf(name: string): string {
    return this.lab.pod(name).addresses.find((address) => !address.includes(":")) ?? "";
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#prober[Symbol.dispose]();
    this.#open[Symbol.dispose]();
    await this.store.close();
    await down(this.lab.folder.name, openTerminal({ quiet: true }));
  }

  /** Makes the step true in the datastore. */
  async take(step: Step): Promise<void> {
    for (const resource of step.apply ?? []) await this.client.apply(resource);
    for (const resource of step.remove ?? []) await this.#remove(resource);
    if (step.podLabels !== undefined || step.namespaceLabels !== undefined)
      await this.#dress(step.podLabels ?? {}, step.namespaceLabels ?? {});
  }

  /** Back to the bare cluster. */
  async undo(steps: readonly Step[]): Promise<void> {
    const resources = steps.flatMap((step) => step.apply ?? []);
    for (const resource of resources.toReversed()) await this.#remove(resource);
    if (steps.some((step) => step.podLabels !== undefined || step.namespaceLabels !== undefined))
      await this.#dress({}, {});
  }

  /** Tries everything until packets and evaluator agree, or the time is over. */
  async compare(withinMs: number): Promise<Disagreement[]> {
    const state = await this.#state();
    const all = this.#allProbes();
    const expected = new Map(all.map((probe) => [probe, judge(state, { packet: packetOf(probe) })]));
    let wrong = all;
    const deadline = performance.now() + withinMs;
    for (let round = 0; ; round++) {
      wrong = await this.#disagreeing(
        wrong,
        (probe) => expected.get(probe)?.action === "allow",
        round === 0 ? 250 : 500,
      );
      if (wrong.length === 0) return [];
      if (performance.now() > deadline) break;
      await delay(50);
    }
    return wrong.map((probe) => {
      const verdict = expected.get(probe);
      return {
        probe: `${nameOf(probe.from)} → ${nameOf(probe.to)} ${probe.protocol} ${probe.port} (${probe.address})`,
        evaluator: verdict?.action ?? "deny",
        packet: verdict?.action === "allow" ? "does not get through" : "gets through",
        because: verdict?.because ?? "",
      };
    });
  }

  async #disagreeing(
    probes: readonly Probe[],
    isAllowed: (probe: Probe) => boolean,
    timeoutMs: number,
  ): Promise<Probe[]> {
    const wrong: Probe[] = [];
    for (let i = 0; i < probes.length; i += AT_ONCE) {
      const part = probes.slice(i, i + AT_ONCE);
      const requests = part.map(({ from, address, protocol, port }) => ({
        from: this.#target(from),
        to: address,
        protocol,
        port,
      }));
      const outcomes = await this.#prober.probe(requests, { timeoutMs });
      this.probes += part.length;
      wrong.push(...part.filter((probe, n) => (outcomes[n]?.result === "reached") !== isAllowed(probe)));
    }
    return wrong;
  }

  #target(pod: LabPod): ProbeTarget {
    const target = this.#targets.get(pod);
    if (target === undefined) throw new Error(`pod ${nameOf(pod)} has no namespace open`);
    return target;
  }

  /** IPv4 with every protocol and port; IPv6, where there is one, with TCP on the first. */
  #allProbes(): Probe[] {
    const pods = this.lab.record.pods;
    return pods.flatMap((from) =>
      pods
        .filter((to) => to !== from)
        .flatMap((to) =>
          to.addresses.flatMap((text) => {
            const address = parseAddress(text);
            if (text.includes(":")) return [{ from, to, address, protocol: "tcp" as const, port: PORTS[0] }];
            return PROTOCOLS.flatMap((protocol) => PORTS.map((port) => ({ from, to, address, protocol, port })));
          }),
        ),
    );
  }

  async #state(): Promise<PolicyState> {
    const lists = await Promise.all(STATE_KINDS.map((kind) => this.client.list({ kind })));
    const resources = lists.flatMap((list) => list.items as readonly Resource[]);
    return new PolicyState(
      entriesFromResources(resources, (resource, reason) => {
        throw new Error(`${resource.kind} ${resource.metadata.name}: ${reason}`);
      }),
    );
  }

  /** Labels, ports and namespaces as the bare cluster has them, plus what a step asks for. */
  async #dress(
    podLabels: NonNullable<Step["podLabels"]>,
    namespaceLabels: NonNullable<Step["namespaceLabels"]>,
  ): Promise<void> {
    for (const namespace of NAMESPACES) {
      const own = { "projectcalico.org/name": namespace, ns: namespace, ...namespaceLabels[namespace] };
      const labelsToApply = Object.fromEntries(Object.entries(own).map(([key, value]) => [`pcns.${key}`, value]));
      const profile = await this.client.get({ kind: "Profile", name: `kns.${namespace}` });
      await this.client.update({ ...profile, spec: { ...(profile.spec as object), labelsToApply } } as Resource);
    }
    for (const pod of this.lab.record.pods) {
      const name = { kind: "WorkloadEndpoint" as const, name: endpointName(pod), namespace: pod.namespace };
      const endpoint = await this.client.get(name);
      const labels = {
        "projectcalico.org/namespace": pod.namespace,
        "projectcalico.org/orchestrator": "k8s",
        pod: pod.name,
        ns: pod.namespace,
        ...podLabels[nameOf(pod)],
      };
      const ports = PROTOCOLS.flatMap((protocol) =>
        PORTS.map((port) => ({ name: `serve-${port}-${protocol}`, protocol: protocol.toUpperCase(), port })),
      );
      await this.client.update({
        ...endpoint,
        metadata: { ...endpoint.metadata, labels },
        spec: { ...(endpoint.spec as object), ports },
      } as Resource);
    }
  }

  async #remove(resource: Resource): Promise<void> {
    const { name, namespace } = resource.metadata;
    try {
      await this.client.delete({ kind: resource.kind, name, ...(namespace === undefined ? {} : { namespace }) });
    } catch (error) {
      if (!(error instanceof NotFound)) throw error;
    }
  }
}

function packetOf(probe: Probe) {
  const source = probe.from.addresses.find((address) => address.includes(":") === probe.address.includes(":")) ?? "";
  return {
    source: parseAddress(source),
    destination: probe.address,
    protocol: NUMBER[probe.protocol],
    sourcePort: 40000,
    destinationPort: probe.port,
  };
}

const nameOf = (pod: LabPod): string => `${pod.namespace}/${pod.name}`;
