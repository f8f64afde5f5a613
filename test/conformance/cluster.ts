// Three namespaces of three pods on a lab, whose policies and labels are set straight in the datastore or by kubectl, and
// whose every connection is tried by packets and judged by the evaluator.
import { PacketProber, type ProbeProtocol, type ProbeTarget } from "../../src/kernel/index.ts";
import { type IpAddress, parseAddress } from "../../src/lib/ip.ts";
import { delay } from "../../src/lib/retry.ts";
import { entriesFromResources, judge, PolicyState } from "../../src/policy/index.ts";
import { down } from "../../src/lab/down.ts";
import type { LabPod } from "../../src/lab/folder.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../src/lab/options.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { addPods, up } from "../../src/lab/up.ts";
import { NAMED_PORTS, NAMESPACES, PODS, PORTS, PROBE_PROTOCOLS, type Step } from "./cases.ts";
import { datastoreHand, type Hand, kubectlHand } from "./hands.ts";

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
    readonly hand: Hand,
  ) {
    const open = lab.openPods(lab.record.pods);
    this.#open = open;
    this.#targets = open.targets;
    for (const target of open.targets.values())
      for (const protocol of PROBE_PROTOCOLS) for (const port of PORTS) this.#prober.listen(target, protocol, port);
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
            ports: NAMED_PORTS,
          })),
        ),
      );
      const hand = await (lab.options.datastore === "kubernetes" ? kubectlHand(lab) : datastoreHand(lab));
      const cluster = new ConformanceCluster(lab, hand);
      await hand.dress({}, {});
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
    await this.hand[Symbol.asyncDispose]();
    await down(this.lab.folder.name, openTerminal({ quiet: true }));
  }

  /** Makes the step true. */
  async take(step: Step): Promise<void> {
    await this.hand.apply(step.apply ?? []);
    await this.hand.remove(step.remove ?? []);
    if (step.podLabels !== undefined || step.namespaceLabels !== undefined)
      await this.hand.dress(step.podLabels ?? {}, step.namespaceLabels ?? {});
  }

  /** Back to the bare cluster. */
  async undo(steps: readonly Step[]): Promise<void> {
    await this.hand.remove(steps.flatMap((step) => step.apply ?? []).toReversed());
    if (steps.some((step) => step.podLabels !== undefined || step.namespaceLabels !== undefined))
      await this.hand.dress({}, {});
  }

  /**
   * Tries everything until packets and evaluator agree, then everything once more: a cell that is the same before and
   * after a change may have agreed before the rules were there. Each may take so long.
   */
  async compare(withinMs: number): Promise<Disagreement[]> {
    const state = await this.#state();
    const all = this.#allProbes();
    const expected = new Map(all.map((probe) => [probe, judge(state, { packet: packetOf(probe) })]));
    const isAllowed = (probe: Probe) => expected.get(probe)?.action === "allow";
    let deadline = performance.now() + withinMs;
    let hasAgreed = false;
    let wrong = all;
    for (let isLastPass = false; ; ) {
      wrong = await this.#disagreeing(wrong, isAllowed, wrong === all ? 250 : 500);
      if (wrong.length === 0) {
        if (isLastPass) return [];
        if (!hasAgreed) deadline = performance.now() + withinMs;
        hasAgreed = isLastPass = true;
        wrong = all;
        continue;
      }
      isLastPass = false;
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
            return PROBE_PROTOCOLS.flatMap((protocol) => PORTS.map((port) => ({ from, to, address, protocol, port })));
          }),
        ),
    );
  }

  async #state(): Promise<PolicyState> {
    return new PolicyState(
      entriesFromResources(await this.hand.resources(), (resource, reason) => {
        throw new Error(`${resource.kind} ${resource.metadata.name}: ${reason}`);
      }),
    );
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
