// Runs a dataplane on the host of a packet world, so that tests can send messages to it and packets through it.
import { rmSync } from "node:fs";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import { type DataplaneFacts, LinuxDataplane } from "../../../src/dataplane/index.ts";
import { detectFeatures } from "../../../src/dataplane/iptables/detect.ts";
import {
  Ipsets,
  Iptables,
  Nft,
  openConntrack,
  openRtnetlink,
  procSysctls,
  withNamespace,
} from "../../../src/kernel/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { createLogger, formatText, silentLogger } from "../../../src/lib/log/log.ts";
import { type Backend, MTU_FILE, parametersOf, PLAIN_FACTS } from "./host.ts";
import { PacketWorld, type WorldPod } from "./packet-world.ts";

export class WorldDataplane implements AsyncDisposable {
  readonly world: PacketWorld;
  readonly #dataplane: LinuxDataplane;
  readonly #stop = new AbortController();
  readonly #running: Promise<void>;
  readonly #disposables: Disposable[] = [];
  /** The start time of the last completed apply. */
  #roundStartedAt = 0;
  #failure: unknown;

  constructor(options: {
    readonly backend: Backend;
    readonly pods: readonly WorldPod[];
    readonly host: readonly IpAddress[];
    readonly hostname?: string;
    readonly settings?: Readonly<Record<string, string>>;
    readonly facts?: Partial<DataplaneFacts>;
    /** Emulates a kernel without nf_tables; only for the legacy variant. */
    readonly withoutNftables?: boolean;
  }) {
    const { backend, hostname } = options;
    this.world = new PacketWorld(options.pods, options.host);
    const inside = <T>(body: () => T extends PromiseLike<unknown> ? never : T) =>
      withNamespace(this.world.handle, body);
    const routes = openRtnetlink(this.world.handle);
    const conntrack = openConntrack(this.world.handle);
    const ruleset = inside(() => new Nft());
    const ipsets = inside(() => new Ipsets());
    this.#disposables.push(routes, conntrack, ruleset, ipsets);
    const features = detectFeatures({ iptablesVersion: "1.8.9", kernelVersion: "6.1.0" });
    this.#dataplane = new LinuxDataplane({
      parameters: parametersOf(options.settings),
      facts: { ...PLAIN_FACTS, ...(hostname === undefined ? {} : { hostname }), ...options.facts },
      kernel: {
        rules:
          backend === "nftables"
            ? { backend: "nftables", ruleset }
            : {
                backend: "iptables",
                variant: backend,
                features,
                ipsets,
                ...(options.withoutNftables === true ? {} : { ruleset }),
                iptables: (family) => {
                  const store = new Iptables({ family, variant: backend });
                  return {
                    family,
                    variant: backend,
                    save: (...args) => this.world.host.enter(() => store.save(...args)),
                    restore: (...args) => this.world.host.enter(() => store.restore(...args)),
                  };
                },
              },
        routes,
        conntrack,
        sysctls: {
          read: (path) => inside(() => procSysctls.read(path)),
          write: (path, value) => inside(() => procSysctls.write(path, value)),
        },
        namespace: this.world.handle,
      },
      logger:
        process.env["DATAPLANE_LOG"] === undefined
          ? silentLogger
          : createLogger({ level: "debug", write: (record) => console.log(formatText(record)) }),
      report: () => {},
      roundMs: 1,
      mtuFile: MTU_FILE,
      onApplied: ({ seconds }) => {
        this.#roundStartedAt = performance.now() - seconds * 1000;
      },
    });
    this.#running = this.#dataplane.run(this.#stop.signal);
    this.#running.catch((error: unknown) => (this.#failure = error));
  }

  /** Sends a message without waiting until it is applied. */
  enqueue(message: DataplaneMessage): void {
    this.#dataplane.send(message);
  }

  /** Sends messages and waits until they are applied. */
  async send(...messages: readonly DataplaneMessage[]): Promise<void> {
    await this.settle(() => {
      for (const message of messages) this.#dataplane.send(message);
    });
  }

  async settle(change: () => void): Promise<void> {
    const before = performance.now();
    change();
    // Ensures that there is something to apply.
    const encapsulation = { ipipEnabled: false, vxlanEnabled: false, vxlanEnabledV6: false, noEncapNeeded: false };
    this.#dataplane.send({ type: "encapsulation", ...encapsulation });
    const end = performance.now() + 30_000;
    while (this.#roundStartedAt <= before) {
      if (this.#failure !== undefined) throw this.#failure;
      if (performance.now() > end) throw new Error("nothing was applied within 30 s");
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#stop.abort();
    await this.#running.catch(() => {});
    for (const part of this.#disposables) part[Symbol.dispose]();
    this.world[Symbol.dispose]();
    rmSync(MTU_FILE, { force: true });
  }
}
