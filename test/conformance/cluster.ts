// Runs conformance cases on a lab with three namespaces of three pods: applies policies and labels, in the datastore or with
// kubectl, and compares the result of real packets with the evaluator, for all connections between pods and, if the case
// requires it, hosts.
import { closeSync, openSync } from "node:fs";
import { PacketProber, type ProbeProtocol, type ProbeEndpoint } from "../../src/kernel/index.ts";
import { type IpAddress, ipVersion, parseAddress } from "../../src/lib/ip/ip.ts";
import { delay } from "../../src/lib/retry.ts";
import { entriesFromResources, evaluatePacket, PolicyState } from "../../src/policy/index.ts";
import { down } from "../../src/lab/down.ts";
import type { Lab } from "../../src/lab/lab.ts";
import { DEFAULT_OPTIONS, type LabOptions } from "../../src/lab/options.ts";
import { openTerminal } from "../../src/lab/terminal.ts";
import { addPods, up } from "../../src/lab/up.ts";
import { NAMED_PORTS, NAMESPACES, PODS, PORTS, PROBE_PROTOCOLS, type Scope, type Step } from "./cases.ts";
import { type ClusterEditor, datastoreEditor, kubectlEditor } from "./cluster-editor.ts";

const NUMBER = { tcp: 6, udp: 17, sctp: 132, icmp: 1 } as const;
/** Number of concurrent probes. Allowed connections in the same burst must succeed in time, so a timeout is not caused by load. */
const BURST = 1000;

/** An endpoint of connections: a pod (`x/a`) or a host (`node1`). */
interface End {
  readonly name: string;
  readonly isHost: boolean;
  readonly addresses: readonly IpAddress[];
  readonly target: ProbeEndpoint;
}
export interface Probe {
  readonly from: End;
  readonly to: End;
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
  readonly #ends: readonly End[];
  readonly #open: Disposable;
  readonly #prober = new PacketProber();
  probes = 0;

  private constructor(
    readonly lab: Lab,
    readonly editor: ClusterEditor,
  ) {
    const { ends, ...open } = openEnds(lab);
    this.#ends = ends;
    this.#open = open;
    for (const { target } of ends)
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
      const editor = await (lab.options.datastore === "kubernetes" ? kubectlEditor(lab) : datastoreEditor(lab));
      const cluster = new ConformanceCluster(lab, editor);
      await editor.setLabels({}, {});
      return cluster;
    } catch (error) {
      await down(options.name, terminal);
      throw error;
    }
  }

  /** Address of a pod or a host. */
  addressOf(name: string, version: 4 | 6 = 4): string {
    const end = this.#ends.find((each) => each.name === name);
    const address = end === undefined ? undefined : ofVersion(end, version);
    if (address === undefined) throw new Error(`${name} has no IPv${version} address`);
    return address;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#prober[Symbol.dispose]();
    this.#open[Symbol.dispose]();
    await this.editor[Symbol.asyncDispose]();
    await down(this.lab.folder.name, openTerminal({ quiet: true }));
  }

  /** Applies a step. */
  async applyStep(step: Step): Promise<void> {
    await this.editor.apply(step.apply ?? []);
    await this.editor.remove(step.remove ?? []);
    if (step.podLabels !== undefined || step.namespaceLabels !== undefined)
      await this.editor.setLabels(step.podLabels ?? {}, step.namespaceLabels ?? {});
  }

  /** Restores the cluster without policies. */
  async undo(steps: readonly Step[]): Promise<void> {
    await this.editor.remove(steps.flatMap((step) => step.apply ?? []).toReversed());
    if (steps.some((step) => step.podLabels !== undefined || step.namespaceLabels !== undefined))
      await this.editor.setLabels({}, {});
  }

  /**
   * Probes all connections until packets and evaluator agree, then all of them again: a connection with the same result before
   * and after a change may have been probed before the rules were applied. Each of the two passes may take `withinMs`.
   */
  async compare(withinMs: number, scope: Scope): Promise<Disagreement[]> {
    const state = await this.#state();
    const all = this.#allProbes(scope);
    const expected = new Map(all.map((probe) => [probe, evaluatePacket(state, { packet: packetOf(probe) })]));
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
        probe: `${probe.from.name} → ${probe.to.name} ${probe.protocol} ${probe.port} (${probe.address})`,
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
    for (let i = 0; i < probes.length; i += BURST) {
      const part = probes.slice(i, i + BURST);
      const requests = part.map(({ from, address, protocol, port }) => ({
        from: from.target,
        to: address,
        protocol,
        port,
        ...(from.isHost ? { source: sourceOf(from, address) } : {}), // otherwise the kernel selects it
      }));
      const outcomes = await this.#prober.probe(requests, { timeoutMs });
      this.probes += part.length;
      wrong.push(...part.filter((probe, n) => (outcomes[n]?.result === "reached") !== isAllowed(probe)));
    }
    return wrong;
  }

  /** IPv4 with all protocols and ports; IPv6 with TCP on the first port, or with `everyFamily` like IPv4. */
  #allProbes({ withHosts = false, everyFamily = false }: Scope): Probe[] {
    const ends = this.#ends.filter(({ isHost }) => withHosts || !isHost);
    return ends.flatMap((from) =>
      ends
        .filter((to) => to !== from)
        .flatMap((to) =>
          to.addresses.flatMap((address): Probe[] => {
            if (ipVersion(address) === 6 && !everyFamily)
              return [{ from, to, address, protocol: "tcp", port: PORTS[0] }];
            return PROBE_PROTOCOLS.flatMap((protocol) => PORTS.map((port) => ({ from, to, address, protocol, port })));
          }),
        ),
    );
  }

  async #state(): Promise<PolicyState> {
    return new PolicyState(
      entriesFromResources(await this.editor.resources(), (resource, reason) => {
        throw new Error(`${resource.kind} ${resource.metadata.name}: ${reason}`);
      }),
    );
  }
}

function packetOf(probe: Probe) {
  return {
    source: sourceOf(probe.from, probe.address),
    destination: probe.address,
    protocol: NUMBER[probe.protocol],
    sourcePort: 40000,
    destinationPort: probe.port,
  };
}

function openEnds(lab: Lab): { readonly ends: readonly End[] } & Disposable {
  const pods = lab.openPods(lab.record.pods);
  const hosts: End[] = [];
  const close = () => {
    pods[Symbol.dispose]();
    for (const { target } of hosts) closeSync(target.namespace);
  };
  try {
    for (const { name, interfaces } of lab.plan.nodes) {
      const holder = lab.host(name).holder;
      if (holder === undefined) throw new Error(`host ${name} is down`);
      const addresses = interfaces
        .flatMap((each) => each.addresses)
        .map((text) => parseAddress(text.split("/")[0] ?? ""));
      const namespace = openSync(`/proc/${holder.pid}/ns/net`, "r");
      hosts.push({ name, isHost: true, addresses, target: { namespace, name } });
    }
  } catch (error) {
    close();
    throw error;
  }
  const ends = [...pods.targets].map(([pod, target]): End => {
    const addresses = pod.addresses.map((text) => parseAddress(text));
    return { name: target.name, isHost: false, addresses, target };
  });
  return { ends: [...ends, ...hosts], [Symbol.dispose]: close };
}

const ofVersion = (end: End, version: 4 | 6): IpAddress | undefined =>
  end.addresses.find((address) => ipVersion(address) === version);

function sourceOf(from: End, destination: IpAddress): IpAddress {
  const source = ofVersion(from, ipVersion(destination));
  if (source === undefined) throw new Error(`${from.name} has no address to reach ${destination} from`);
  return source;
}
