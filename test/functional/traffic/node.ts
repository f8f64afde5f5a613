// Provides a node in a network namespace: workloads in their own namespaces, a host outside, an etcd inside the node, and a
// Felix process that can be stopped, killed and restarted.
//
//   pod ─ cali… ┐
//   pod ─ cali… ┼─ node ─ eth0 ── eth0 ─ outside
//   …           ┘  192.0.2.10       192.0.2.99
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { procSysctls } from "../../../src/kernel/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { Backend } from "../dataplane/host.ts";
import { TestNamespace } from "../kernel/test-namespace.ts";
import type { Place } from "./traffic.ts";

const PROGRAM = join(import.meta.dir, "../../support/run-program.ts");
const MAC = "ee:ee:ee:ee:ee:ee";
const GATEWAY = "169.254.1.1";
const GATEWAY6 = "fe80::1"; // not assigned to any interface: packets use the address above
const NODE6 = "2001:db8::10";
const OUTSIDE6 = "2001:db8::99" as IpAddress;
let made = 0;

export interface NodePod {
  readonly name: string;
  readonly interfaceName: string;
  readonly address: IpAddress;
  readonly address6?: IpAddress;
}

export class TrafficNode implements AsyncDisposable {
  readonly space: TestNamespace;
  readonly outside: Place;
  readonly #folder = mkdtempSync(join(tmpdir(), "calico-traffic-"));
  readonly #spaces: TestNamespace[] = [];
  #etcd: ChildProcess | undefined;
  #agent: ChildProcess | undefined;
  #gone: Promise<unknown> = Promise.resolve();
  output = "";

  constructor() {
    this.space = this.#space("n");
    this.space.enter(() => {
      procSysctls.write(["net", "ipv4", "ip_forward"], 1);
      for (const which of ["all", "default"]) {
        procSysctls.write(["net", "ipv4", "conf", which, "rp_filter"], 0);
        procSysctls.write(["net", "ipv6", "conf", which, "forwarding"], 1);
        procSysctls.write(["net", "ipv6", "conf", which, "accept_dad"], 0);
      }
    });
    const space = this.#space("o");
    ip(`-n ${this.space.name} link add eth0 type veth peer name eth0 netns ${space.name}`);
    for (const [name, address, address6] of [
      [this.space.name, "192.0.2.10", NODE6],
      [space.name, "192.0.2.99", OUTSIDE6],
    ] as const) {
      ip(`-n ${name} addr add ${address}/24 dev eth0`);
      ip(`-n ${name} addr add ${address6}/64 dev eth0 nodad`);
      ip(`-n ${name} link set eth0 up`);
    }
    ip(`-n ${space.name} route add default via 192.0.2.10`);
    ip(`-n ${space.name} route add default via ${NODE6}`);
    this.outside = { name: "outside", space, address: "192.0.2.99" as IpAddress, address6: OUTSIDE6 };
  }

  addPod({ name, interfaceName, address, address6 }: NodePod): Place {
    const space = this.#space("p");
    const peer = `name eth0 address ${MAC} netns ${space.name}`;
    ip(`-n ${this.space.name} link add ${interfaceName} address ${MAC} type veth peer ${peer}`);
    ip(`-n ${space.name} addr add ${address}/32 dev eth0`);
    ip(`-n ${space.name} link set eth0 up`);
    ip(`-n ${this.space.name} link set ${interfaceName} up`);
    ip(`-n ${space.name} route add ${GATEWAY} dev eth0 scope link`);
    ip(`-n ${space.name} neigh replace ${GATEWAY} lladdr ${MAC} dev eth0 nud permanent`);
    ip(`-n ${space.name} route add default via ${GATEWAY} dev eth0`);
    ip(`-n ${this.space.name} neigh replace ${address} lladdr ${MAC} dev ${interfaceName} nud permanent`);
    if (address6 === undefined) return { name, space, address };
    ip(`-n ${space.name} addr add ${address6}/128 dev eth0 nodad`);
    ip(`-n ${space.name} neigh replace ${GATEWAY6} lladdr ${MAC} dev eth0 nud permanent`);
    ip(`-n ${space.name} route add default via ${GATEWAY6} dev eth0`);
    ip(`-n ${this.space.name} neigh replace ${address6} lladdr ${MAC} dev ${interfaceName} nud permanent`);
    return { name, space, address, address6 };
  }

  /** Starts an etcd inside the node, with these keys. */
  async startDatastore(keys: Readonly<Record<string, unknown>>): Promise<void> {
    const url = "http://127.0.0.1:2379";
    this.#etcd = spawn(
      "ip",
      [
        ...["netns", "exec", this.space.name, "etcd", "--data-dir", join(this.#folder, "etcd"), "--unsafe-no-fsync"],
        ...["--log-level", "error", "--logger", "zap"],
      ],
      { stdio: "ignore" },
    );
    await eventually(async () => (await this.#curl(`${url}/health`)).includes("true"), 20_000);
    const base64 = (text: string) => Buffer.from(text).toString("base64");
    const entries = Object.entries(keys);
    for (let i = 0; i < entries.length; i += 100) {
      const success = entries
        .slice(i, i + 100)
        .map(([key, value]) => ({ requestPut: { key: base64(key), value: base64(JSON.stringify(value)) } }));
      const answer = this.space.run("curl", ["-s", `${url}/v3/kv/txn`, "-d", "@-"], JSON.stringify({ success }));
      if (!answer.includes("succeeded")) throw new Error(`etcd rejected the keys: ${answer}`);
    }
  }

  /** @param program the executable of the agent, or undefined for the sources of this checkout */
  startAgent(backend: Backend, env: Readonly<Record<string, string>> = {}, program?: string): void {
    // The agent gets the node's own directories: `ip netns exec` creates a mount namespace.
    const lib = join(this.#folder, "lib");
    for (const folder of [lib, "/var/lib/calico"]) mkdirSync(folder, { recursive: true });
    const script = 'mount --bind "$0" /var/lib/calico && exec "$@"';
    const command = ["sh", "-c", script, lib, ...(program === undefined ? [process.execPath, PROGRAM] : [program])];
    const child = spawn("ip", ["netns", "exec", this.space.name, ...command], {
      cwd: this.#folder,
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: process.env["PATH"],
        PROGRAM: "calico-felix",
        DATASTORE_TYPE: "etcdv3",
        ETCD_ENDPOINTS: "http://127.0.0.1:2379",
        FELIX_FELIXHOSTNAME: "node-a",
        FELIX_LOGSEVERITYSCREEN: "Info",
        FELIX_LOGFILEPATH: "none",
        FELIX_LOGSEVERITYSYS: "none",
        FELIX_HEALTHENABLED: "true",
        FELIX_HEALTHHOST: "127.0.0.1",
        FELIX_IPV6SUPPORT: "true",
        FELIX_ENDPOINTSTATUSPATHPREFIX: join(this.#folder, "run"),
        FELIX_NFTABLESMODE: backend === "nftables" ? "Enabled" : "Disabled",
        FELIX_IPTABLESBACKEND: backend === "legacy" ? "Legacy" : "NFT",
        ...env,
      },
    });
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => (this.output = (this.output + chunk.toString()).slice(-20_000)));
    this.#agent = child;
    this.#gone = new Promise((resolve) => child.once("exit", resolve));
  }

  async untilReady(): Promise<void> {
    await eventually(async () => {
      const child = this.#agent;
      if (child?.exitCode !== null || child.signalCode !== null) throw new Error(`the agent ended:\n${this.output}`);
      const status = await this.#curl("http://127.0.0.1:9099/readiness", ["-o", "/dev/null", "-w", "%{http_code}"]);
      return status === "200";
    }, 60_000).catch((error: unknown) => {
      throw new Error(`${String(error)}\n${this.output}`);
    });
  }

  async endAgent(signal: "SIGTERM" | "SIGKILL"): Promise<void> {
    this.#agent?.kill(signal); // `ip netns exec` replaces itself by the agent
    await this.#gone;
    this.#agent = undefined;
  }

  /** Returns which backends have rules of calico-ts or Calico. */
  async traces(): Promise<Readonly<Record<Backend, boolean>>> {
    return {
      legacy: await this.#hasChains("legacy"),
      nft: await this.#hasChains("nft"),
      nftables: /^table ip6? calico$/m.test(await this.#output("nft", "list", "tables")),
    };
  }

  async #hasChains(variant: "legacy" | "nft"): Promise<boolean> {
    const saved = await Promise.all(["iptables", "ip6tables"].map((tool) => this.#output(`${tool}-${variant}-save`)));
    return saved.some((text) => text.includes(":cali-"));
  }

  /** Waits until only this backend has rules. */
  async untilOnly(backend: Backend): Promise<void> {
    await eventually(async () => {
      const traces = await this.traces();
      return (["legacy", "nft", "nftables"] as const).every((name) => traces[name] === (name === backend));
    }, 30_000);
  }

  #space(letter: string): TestNamespace {
    const space = new TestNamespace(`t${letter}${made++}`);
    this.#spaces.push(space);
    return space;
  }

  #curl(url: string, args: readonly string[] = []): Promise<string> {
    return this.#output("curl", "-s", "-m", "2", ...args, url);
  }

  /** Returns the output of a command, without blocking the traffic of this process. */
  async #output(...command: readonly string[]): Promise<string> {
    const child = Bun.spawn(["ip", "netns", "exec", this.space.name, ...command], { stderr: "ignore" });
    return new Response(child.stdout).text();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    if (this.#agent !== undefined) await this.endAgent("SIGKILL");
    const etcd = this.#etcd;
    if (etcd !== undefined && etcd.exitCode === null) {
      const gone = new Promise((resolve) => etcd.once("exit", resolve));
      etcd.kill("SIGKILL");
      await gone;
    }
    for (const space of this.#spaces) space[Symbol.dispose]();
    rmSync(this.#folder, { recursive: true, force: true });
  }
}

const ip = (text: string): void => {
  execFileSync("ip", text.split(" "), { stdio: "pipe" });
};
