// Provides a host in a network namespace with a dataplane, workloads in their own namespaces, and another host on its network.
//
//   pod a ─ cali… ┐
//   pod b ─ cali… ┼─ host ─ eth0 ── eth0 ─ outside
//   …             ┘   192.0.2.10/24    192.0.2.99
import { execFileSync } from "node:child_process";
import { rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { DataplaneMessage, DataplaneReport, ProtoWorkloadEndpoint } from "../../../src/calc/index.ts";
import {
  type DataplaneFacts,
  type DataplaneParameters,
  LinuxDataplane,
  type LinuxKernel,
  type RulesKernel,
} from "../../../src/dataplane/index.ts";
import type { SweepTargets } from "../../../src/dataplane/cleanup/sweeper.ts";
import { detectFeatures } from "../../../src/dataplane/iptables/detect.ts";
import { ConfigEngine } from "../../../src/felix/config/index.ts";
import {
  Iptables,
  type IptablesStore,
  Ipsets,
  LegacyTableFingerprints,
  watchGratuitousArp,
  NetworkNamespace,
  Nft,
  openConntrack,
  openNeighbourResponder,
  openRtnetlink,
  openTrafficControl,
  PacketProber,
  type ProbeOutcome,
  type ProbeProtocol,
  type ProbeEndpoint,
  procSysctls,
  withNamespace,
} from "../../../src/kernel/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { createLogger, formatText } from "../../../src/lib/log/log.ts";
import type { TestNamespace } from "../kernel/test-namespace.ts";
import { workload } from "./messages.ts";

export * from "./messages.ts";
import { ip, TestSpaces } from "./spaces.ts";

export type Backend = "nftables" | "legacy" | "nft";
export const BACKENDS: readonly Backend[] = ["nftables", "legacy", "nft"];
export const MTU_FILE = join(tmpdir(), `calico-test-mtu-${process.pid}`);

export interface Pod {
  readonly name: string;
  readonly interfaceName: string;
  readonly v4: IpAddress;
  readonly v6: IpAddress;
  readonly target: ProbeEndpoint;
}

/** A node without tunnels. */
export const PLAIN_FACTS: DataplaneFacts = {
  hostname: "node-a",
  ipipEnabled: false,
  vxlanEnabled: false,
  vxlanEnabledV6: false,
  noEncapNeeded: false,
  ipvs: false,
};

/** Returns Felix's parameters with some values set. */
export function parametersOf(settings: Readonly<Record<string, string>> = {}): DataplaneParameters {
  const engine = new ConfigEngine({ exists: () => true, findExecutable: (name) => name }, { hostname: "node-a" });
  engine.update({ "environment variable": settings });
  return engine.resolved.config;
}

export class DataplaneHost implements AsyncDisposable {
  /** The timeout of one apply; emulated machines need longer. */
  static patienceMs = 20_000;
  readonly backend: Backend;
  readonly namespace: TestNamespace;
  readonly #spaces = new TestSpaces();
  readonly #disposables: Disposable[] = [];
  readonly prober = new PacketProber();
  readonly reports: DataplaneReport[] = [];
  /** VMs that migrated from other nodes. */
  readonly arrivals: string[] = [];
  /** Log lines of the dataplane: level, message, fields. */
  readonly lines: string[] = [];
  /** Wraps the kernel of dataplanes that are started later. */
  wrapKernel: (kernel: LinuxKernel) => LinuxKernel = (kernel) => kernel;
  readonly pods = new Map<string, Pod>();
  readonly outside: ProbeEndpoint;
  readonly hostTarget: ProbeEndpoint;
  readonly handle: NetworkNamespace;
  #dataplane: LinuxDataplane | undefined;
  #stop = new AbortController();
  #running: Promise<void> = Promise.resolve();
  /** The start time of the last completed apply. */
  #roundStartedAt = 0;
  #settings: Readonly<Record<string, string>>;

  private constructor(backend: Backend, settings: Readonly<Record<string, string>>) {
    this.backend = backend;
    this.#settings = settings;
    this.namespace = this.#spaces.make("dph");
    this.handle = this.#spaces.open(this.namespace);
    const peer = this.#spaces.make("dpo");
    const { name } = this.namespace;
    ip(name, `link add eth0 type veth peer name eth0 netns ${peer.name}`);
    this.inside(() => {
      procSysctls.write(["net", "ipv4", "ip_forward"], 1);
      procSysctls.write(["net", "ipv6", "conf", "all", "forwarding"], 1);
      procSysctls.write(["net", "ipv4", "conf", "all", "rp_filter"], 0);
    });
    ip(
      name,
      "addr add 192.0.2.10/24 dev eth0",
      "addr add 2001:db8::10/64 dev eth0 nodad",
      "link set eth0 up",
      // Without a default route, the kernel does not answer ARP requests by proxy.
      "route add default via 192.0.2.99",
    );
    ip(
      peer.name,
      "addr add 192.0.2.99/24 dev eth0",
      "addr add 2001:db8::99/64 dev eth0 nodad",
      "link set eth0 up",
      "route add 10.65.0.0/16 via 192.0.2.10",
      "route add fd00:65::/64 via 2001:db8::10",
    );
    this.outside = { namespace: this.#spaces.open(peer).fd, name: "outside" };
    this.hostTarget = { namespace: this.handle.fd, name: "host" };
  }

  static async create(backend: Backend, settings: Readonly<Record<string, string>> = {}): Promise<DataplaneHost> {
    return new DataplaneHost(backend, settings);
  }

  inside<T>(body: () => T extends PromiseLike<unknown> ? never : T): T {
    return withNamespace(this.handle, body);
  }

  /** Adds a pod with its interface, as the CNI plugin does. */
  addPod(name: string, index: number): Pod {
    const space = this.#spaces.make("dpp");
    const interfaceName = `cali${name}${index}`;
    const v4 = `10.65.0.${index}` as IpAddress;
    const v6 = `fd00:65::${index.toString(16)}` as IpAddress;
    const gateway = "fe80::ecee:eeff:feee:eeee";
    ip(
      this.namespace.name,
      `link add ${interfaceName} address ee:ee:ee:ee:ee:ee type veth peer name eth0 netns ${space.name}`,
      `link set ${interfaceName} up`,
    );
    ip(
      space.name,
      "link set eth0 up",
      `addr add ${v4}/32 dev eth0`,
      `addr add ${v6}/128 dev eth0 nodad`,
      "route add 169.254.1.1 dev eth0",
      "route add default via 169.254.1.1 dev eth0",
      `neigh replace ${gateway} lladdr ee:ee:ee:ee:ee:ee dev eth0`,
      `route add default via ${gateway} dev eth0`,
    );
    const pod: Pod = { name, interfaceName, v4, v6, target: { namespace: this.#spaces.open(space).fd, name } };
    this.pods.set(name, pod);
    return pod;
  }

  endpoint(pod: Pod, more: Partial<ProtoWorkloadEndpoint> = {}): DataplaneMessage {
    return workload(pod.interfaceName, [pod.v4, pod.v6], more, `ns1/${pod.name}`);
  }

  /** Runs a command in one of the namespaces. */
  exec(where: ProbeEndpoint, command: string, ...args: string[]): string {
    const path = `/proc/${process.pid}/fd/${where.namespace}`;
    return execFileSync("nsenter", [`--net=${path}`, command, ...args], { encoding: "utf8", stdio: "pipe" });
  }

  /** Counts matching packets that arrive in a namespace. */
  count(where: ProbeEndpoint, match: string): () => number {
    const table = `count${Math.random().toString(36).slice(2)}`;
    const hook = "type filter hook prerouting priority -400;";
    this.exec(where, "nft", `table inet ${table} { chain c { ${hook}\n ${match} counter\n }\n }`);
    return () => Number(/packets (\d+)/.exec(this.exec(where, "nft", "list", "table", "inet", table))?.[1] ?? 0);
  }

  /** Returns Calico's rules that have a counter, with the number of packets. */
  ruleCounters(version: 4 | 6 = 4, backend = this.backend): { readonly text: string; readonly packets: number }[] {
    const family = version === 4 ? "ip" : "ip6";
    if (backend === "nftables")
      return this.namespace
        .run("nft", ["list", "table", family, "calico"])
        .split("\n")
        .flatMap((line) => {
          const packets = /counter packets (\d+)/.exec(line)?.[1];
          return packets === undefined ? [] : [{ text: line.trim(), packets: Number(packets) }];
        });
    return this.namespace
      .run(`${family}tables-${backend}-save`, ["-c"])
      .split("\n")
      .flatMap((line) => {
        const [, packets, text] = /^\[(\d+):\d+\] (-A .*)$/.exec(line) ?? [];
        return text === undefined ? [] : [{ text, packets: Number(packets) }];
      });
  }

  /** Starts the dataplane, or another one after the previous one was stopped. */
  start(
    settings: Readonly<Record<string, string>> = this.#settings,
    backend: Backend = this.backend,
    facts: Partial<DataplaneFacts> = {},
  ): LinuxDataplane {
    this.#settings = settings;
    this.#stop = new AbortController();
    const routes = openRtnetlink(this.handle);
    const conntrack = openConntrack(this.handle);
    const trafficControl = openTrafficControl(this.handle);
    this.#disposables.push(routes, conntrack, trafficControl);
    const dataplane = new LinuxDataplane({
      parameters: parametersOf(settings),
      facts: { ...PLAIN_FACTS, ...facts },
      kernel: this.wrapKernel({
        rules: this.#rules(backend),
        routes,
        conntrack,
        trafficControl,
        sysctls: {
          read: (path) => this.inside(() => procSysctls.read(path)),
          write: (path, value) => this.inside(() => procSysctls.write(path, value)),
        },
        namespace: this.handle,
        watchGratuitousArp: (link, onReceived) => this.inside(() => watchGratuitousArp(link, onReceived)),
        openNeighbourResponder: (version, link) => this.inside(() => openNeighbourResponder(version, link)),
        leftovers: this.#leftovers?.(backend),
      }),
      mtuFile: MTU_FILE,
      logger: createLogger({
        level: "debug",
        write: (record) => {
          this.lines.push(`${record.level} ${record.message} ${JSON.stringify(record.fields)}`);
          if (process.env["DATAPLANE_LOG"] !== undefined) console.log(formatText(record));
        },
      }),
      report: (report) => this.reports.push(report),
      onArrival: ({ id }) => this.arrivals.push(id.workload),
      onApplied: ({ seconds }) => {
        this.#roundStartedAt = performance.now() - seconds * 1000;
      },
    });
    this.#dataplane = dataplane;
    this.#running = dataplane.run(this.#stop.signal);
    this.#running.catch(() => {}); // stop() reports the error
    return dataplane;
  }

  /** Makes dataplanes that are started later remove the rules of other backends. */
  sweep(): void {
    this.#leftovers = (backend) => {
      const ruleset = this.inside(() => new Nft());
      const iptables = ([4, 6] as const).map((family) => this.iptables(family, "legacy"));
      return {
        ...(backend === "nft" ? {} : { shared: { ruleset, families: ["ip", "ip6"] } }),
        ...(backend === "legacy" ? {} : { iptables }),
        ...(backend === "nftables" ? { ipsets: this.inside(() => new Ipsets()) } : { ruleset }),
      };
    };
  }
  #leftovers: ((backend: Backend) => SweepTargets) | undefined;

  iptables(family: 4 | 6, variant: "legacy" | "nft"): IptablesStore {
    const store = new Iptables({ family, variant, lock: { timeoutSeconds: 10, probeMs: 50 } });
    return {
      family,
      variant,
      save: (...args) => this.namespace.enter(() => store.save(...args)),
      restore: (...args) => this.namespace.enter(() => store.restore(...args)),
    };
  }

  #rules(backend: Backend): RulesKernel {
    if (backend === "nftables") {
      const ruleset = this.inside(() => new Nft());
      this.#disposables.push(ruleset);
      return { backend: "nftables", ruleset };
    }
    const ipsets = this.inside(() => new Ipsets());
    this.#disposables.push(ipsets);
    const ruleset = this.inside(() => new Nft());
    this.#disposables.push(ruleset);
    const features = detectFeatures({ iptablesVersion: "1.8.9", kernelVersion: "6.1.0" });
    const fingerprints = backend === "legacy" ? this.inside(() => new LegacyTableFingerprints([4, 6])) : undefined;
    if (fingerprints !== undefined) this.#disposables.push(fingerprints);
    return {
      backend: "iptables",
      variant: backend,
      features,
      ipsets,
      iptables: (family) => this.iptables(family, backend),
      ruleset,
      fingerprints,
    };
  }

  async stop(): Promise<void> {
    this.#stop.abort();
    await this.#running;
  }

  /** Sends messages and waits until they are applied. */
  async send(...messages: readonly DataplaneMessage[]): Promise<void> {
    const now = performance.now();
    for (const message of messages) this.#dataplane?.send(message);
    await this.applied(now);
  }

  /** Waits for an apply that started after the given time: one that was already running does not include later messages. */
  async applied(after = performance.now()): Promise<void> {
    const end = performance.now() + DataplaneHost.patienceMs;
    let failed: unknown;
    void this.#running.catch((error: unknown) => (failed = error));
    while (this.#roundStartedAt <= after) {
      if (failed !== undefined) throw failed;
      if (performance.now() > end)
        throw new Error(`the dataplane applied nothing within ${DataplaneHost.patienceMs} ms`);
      await new Promise((resolve) => setTimeout(resolve, 2));
    }
  }

  async probe(
    cells: readonly {
      readonly from: ProbeEndpoint;
      readonly to: IpAddress;
      readonly port?: number;
      readonly protocol?: ProbeProtocol;
      readonly source?: IpAddress;
      readonly sourcePort?: number;
    }[],
    timeoutMs = 150,
  ): Promise<ProbeOutcome["result"][]> {
    const outcomes = await this.prober.probe(
      cells.map(({ protocol = "tcp", port = 80, ...rest }) => ({ protocol, port, ...rest })),
      { timeoutMs },
    );
    return outcomes.map((outcome) => outcome.result);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    try {
      await this.stop();
    } finally {
      this.prober[Symbol.dispose]();
      for (const part of this.#disposables) part[Symbol.dispose]();
      this.#spaces[Symbol.dispose]();
      rmSync(MTU_FILE, { force: true });
    }
  }
}
