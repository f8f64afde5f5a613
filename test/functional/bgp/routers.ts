// Runs routers on one switch: each is a network namespace with the BGP service and real BIRDs, all on one datastore. They are
// removed after the test, also if it fails.
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import {
  type Bird,
  BirdControl,
  type BirdSession,
  type BirdStatus,
  bgpSessions,
  birdProcess,
  BgpService,
  CONFIG_FILE,
  type PasswordSource,
  parseProtocols,
  parseStatus,
} from "../../../src/bgp/index.ts";
import { createSyncer, type Datastore, openSqliteInMemory } from "../../../src/datastore/index.ts";
import type { IpVersion } from "../../../src/lib/ip/ip.ts";
import { parseCidr } from "../../../src/lib/ip/ip.ts";
import { silentLogger } from "../../../src/lib/log/log.ts";
import { API_VERSION, type KindName } from "../../../src/model/index.ts";

let networks = 0;

export class RouterNetwork implements AsyncDisposable {
  readonly id = `cb${process.pid}x${networks++}`;
  readonly folder = mkdtempSync(join(tmpdir(), "calico-routers-"));
  readonly #namespaces: string[] = [];
  readonly #children: ChildProcess[] = [];
  /** BIRD processes by socket. */
  readonly #birds = new Map<string, ChildProcess>();
  readonly #services: { readonly abort: AbortController; readonly running: Promise<void> }[] = [];
  readonly datastore: Datastore;

  readonly #isPinned: boolean;
  readonly #numbers = new Map<string, number>();

  /**
   * @param options.pinned IPv4 only, and hosts know each other's hardware addresses for good: the kernel's neighbour table
   * is one for the whole machine, and many hosts that find each other would fill it for everybody.
   */
  static async create(options: { readonly pinned?: boolean } = {}): Promise<RouterNetwork> {
    return new RouterNetwork(await openSqliteInMemory(), options.pinned ?? false);
  }

  private constructor(datastore: Datastore, isPinned: boolean) {
    this.datastore = datastore;
    this.#isPinned = isPinned;
    this.#addNamespace("sw");
    this.ip("sw", "link add br0 type bridge");
    this.ip("sw", "link set br0 up");
  }

  #addNamespace(name: string): void {
    execFileSync("ip", ["netns", "add", this.nameOf(name)]);
    this.#namespaces.push(this.nameOf(name));
    this.ip(name, "link set lo up");
  }

  nameOf(name: string): string {
    return `${this.id}-${name}`;
  }

  ip(name: string, words: string): string {
    return execFileSync("ip", ["-n", this.nameOf(name), ...words.split(" ")], { encoding: "utf8" });
  }

  /** Adds a host to the switch, with 10.77.0.N and fd77::N on eth0. */
  addHost(name: string, number: number): void {
    this.#addNamespace(name);
    const port = `p${number}`;
    execFileSync("ip", [
      "-n",
      this.nameOf("sw"),
      "link",
      "add",
      port,
      "type",
      "veth",
      "peer",
      "name",
      "eth0",
      "netns",
      this.nameOf(name),
    ]);
    if (this.#isPinned) this.#pin(name, number);
    this.ip("sw", `link set ${port} master br0 up`);
    this.ip(name, `addr add 10.77.0.${number}/24 dev eth0`);
    if (!this.#isPinned) this.ip(name, `addr add fd77::${number}/64 dev eth0 nodad`);
    this.ip(name, "link set eth0 up");
    if (this.#isPinned) this.#introduce(name, number);
  }

  #pin(name: string, number: number): void {
    for (const host of ["sw", name])
      execFileSync("ip", ["netns", "exec", this.nameOf(host), "sysctl", "-qw", "net.ipv6.conf.all.disable_ipv6=1"]);
    this.ip(name, `link set eth0 address ${macOf(number)}`);
  }

  /** Permanent entries do not count against the table's limit. */
  #introduce(name: string, number: number): void {
    const entry = (n: number) => `neigh replace 10.77.0.${n} lladdr ${macOf(n)} dev eth0 nud permanent\n`;
    for (const other of this.#numbers.keys()) this.#batch(other, entry(number));
    this.#batch(name, [...this.#numbers.values()].map(entry).join(""));
    this.#numbers.set(name, number);
  }

  #batch(name: string, input: string): void {
    execFileSync("ip", ["-n", this.nameOf(name), "-batch", "-"], { input });
  }

  /** Starts a program in a host's namespace; it is killed with the network. */
  start(name: string, command: readonly string[]): ChildProcess {
    const child = spawn("ip", ["netns", "exec", this.nameOf(name), ...command], {
      stdio: ["ignore", "ignore", "ignore"],
    });
    this.#children.push(child);
    return child;
  }

  /** The same, and collects its output. */
  listen(name: string, command: readonly string[], onText: (text: string) => void): ChildProcess {
    const child = spawn("ip", ["netns", "exec", this.nameOf(name), ...command], {
      stdio: ["ignore", "pipe", "ignore"],
    });
    child.stdout.setEncoding("utf8").on("data", onText);
    this.#children.push(child);
    return child;
  }

  async put(kind: KindName, name: string, spec: object, labels?: Readonly<Record<string, string>>): Promise<void> {
    const metadata = { name, labels };
    await this.datastore.apply({
      key: { type: "resource", kind, name },
      value: { apiVersion: API_VERSION, kind, metadata, spec },
    });
  }

  /** Adds a calico-ts node: host, Node resource, one block, BGP service and BIRDs. */
  async addNode(
    name: string,
    number: number,
    options: {
      readonly bgp?: object;
      readonly labels?: Readonly<Record<string, string>>;
      readonly passwords?: PasswordSource;
      readonly families?: readonly IpVersion[] /** If set, BIRD does not check files before they are installed. */;
      readonly unchecked?: boolean;
    } = {},
  ): Promise<void> {
    this.addHost(name, number);
    await this.put(
      "Node",
      name,
      { bgp: { ipv4Address: `10.77.0.${number}/24`, ipv6Address: `fd77::${number}/64`, ...options.bgp } },
      options.labels,
    );
    for (const cidr of [`192.168.${number}.0/26`, `fd80:${number}::/122`])
      await this.datastore.apply({
        key: { type: "blockAffinity", affinityType: "host", host: name, cidr: parseCidr(cidr) },
        value: { state: "confirmed", deleted: false },
      });
    const folder = join(this.folder, name);
    mkdirSync(folder);
    const abort = new AbortController();
    const bird = (family: IpVersion): Bird => ({
      ...birdProcess({ socket: this.socketOf(name, family) }),
      ...(options.unchecked === true ? { check: async () => undefined } : {}),
    });
    const planned = Promise.withResolvers<void>();
    const service = new BgpService({
      nodeName: name,
      syncer: createSyncer("bgp", this.datastore, { hostname: name }),
      folder,
      birds: { 4: bird(4), 6: bird(6) },
      endpointStatusFolder: join(folder, "endpoint-status"),
      passwords: options.passwords,
      logger: silentLogger,
      onPlan: () => planned.resolve(),
    });
    this.#services.push({ abort, running: service.run(abort.signal) });
    await planned.promise;
    for (const family of options.families ?? ([4, 6] as const)) this.startBird(name, family);
  }

  startBird(name: string, family: IpVersion, ...flags: readonly string[]): ChildProcess {
    const config = join(this.folder, name, CONFIG_FILE[family]);
    const bird = this.start(name, ["bird", "-f", ...flags, "-c", config, "-s", this.socketOf(name, family)]);
    this.#birds.set(this.socketOf(name, family), bird);
    return bird;
  }

  /** Sends SIGKILL. */
  async killBird(name: string, family: IpVersion): Promise<void> {
    const bird = this.#birds.get(this.socketOf(name, family));
    if (bird === undefined) throw new Error(`${name} has no BIRD`);
    const gone = new Promise((resolve) => bird.once("exit", resolve));
    bird.kill("SIGKILL"); // \`ip netns exec\` has executed BIRD
    await gone;
  }

  socketOf(name: string, family: IpVersion): string {
    return join(this.folder, name, family === 4 ? "bird.ctl" : "bird6.ctl");
  }

  async sessions(name: string, family: IpVersion): Promise<readonly BirdSession[]> {
    using control = await BirdControl.connect(this.socketOf(name, family));
    return bgpSessions(parseProtocols(await control.request("show protocols all")));
  }

  async status(name: string, family: IpVersion): Promise<BirdStatus> {
    using control = await BirdControl.connect(this.socketOf(name, family));
    return parseStatus(await control.request("show status"));
  }

  /** Peers of established sessions. */
  async established(name: string, family: IpVersion): Promise<readonly string[]> {
    const sessions = await this.sessions(name, family).catch(() => []);
    return sessions
      .filter(({ bgpState }) => bgpState === "Established")
      .map(({ neighbor }) => String(neighbor))
      .sort();
  }

  /** Routes that BIRD wrote to the kernel. */
  routes(name: string, family: IpVersion): string {
    return this.ip(name, `-${family} route show proto bird`);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const { abort } of this.#services) abort.abort();
    await Promise.all(this.#services.map(({ running }) => running));
    for (const child of this.#children) child.kill("SIGKILL");
    await Promise.all(
      this.#children.map((child) =>
        child.exitCode === null && child.signalCode === null
          ? new Promise((resolve) => child.once("exit", resolve))
          : undefined,
      ),
    );
    for (const name of this.#namespaces) execFileSync("ip", ["netns", "del", name]);
    await this.datastore.close();
    rmSync(this.folder, { recursive: true, force: true });
  }
}

const macOf = (number: number): string => `02:00:00:00:00:${number.toString(16).padStart(2, "0")}`;
