// Provides a test host: a network namespace in which the built plugin runs as a container runtime calls it, with its own SQLite
// datastore, and with pods that are network namespaces too. Everything is removed on dispose.
import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Datastore, openSqlite } from "../../../src/datastore/index.ts";
import {
  createNamedNamespace,
  defaultDestination,
  deleteNamedNamespace,
  NetworkNamespace,
  openRtnetlink,
  type Rtnetlink,
} from "../../../src/kernel/index.ts";
import { parseAddress, parseCidr } from "../../../src/lib/ip/ip.ts";
import { API_VERSION, type KindName, type Resource } from "../../../src/model/index.ts";

const isRoot = process.getuid?.() === 0;
export const DIST = join(import.meta.dir, "../../../dist");
/** Tests are skipped if this is false. `make build` creates the executable. */
export const canRun = isRoot && existsSync(join(DIST, "calico"));
if (!isRoot) console.log("CNI tests need root for network namespaces: skipped");
else if (!canRun) console.log("CNI tests need the executable (make build): skipped");

export interface PluginRun {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
  /** The parsed stdout; empty if stdout is not JSON. */
  readonly json: Record<string, unknown>;
}
export interface CallOptions {
  readonly env?: Record<string, string | undefined>;
  readonly conf?: Record<string, unknown>;
  readonly stdin?: string | Uint8Array;
  readonly program?: "calico" | "calico-ipam";
  /** Path of the executable, instead of `program`. */
  readonly file?: string;
  /** Kills the plugin after this time. */
  readonly killAfterMs?: number;
  /** Kills the plugin when this signal aborts. */
  readonly kill?: AbortSignal;
  /** Kills the plugin at this number of calls of one system call (with strace's names). */
  readonly killAfterCall?: { readonly name: string; readonly count: number };
}

export class Pod implements Disposable {
  readonly handle: NetworkNamespace;
  readonly kernel: Rtnetlink;
  constructor(
    readonly namespace: string,
    readonly containerId: string,
  ) {
    createNamedNamespace(namespace);
    this.handle = NetworkNamespace.named(namespace);
    this.kernel = openRtnetlink(this.handle);
    this.kernel.links.set("lo", { up: true });
  }
  get netns(): string {
    return `/run/netns/${this.namespace}`;
  }
  read(...sysctl: [string, ...string[]]): string {
    return this.handle.run(() => readSysctl(sysctl));
  }
  [Symbol.dispose](): void {
    this.kernel[Symbol.dispose]();
    this.handle[Symbol.dispose]();
    deleteNamedNamespace(this.namespace);
  }
}

export class CniHost implements AsyncDisposable {
  readonly name = `cnit-${randomBytes(3).toString("hex")}`;
  readonly folder = mkdtempSync(join(tmpdir(), "cni-test-"));
  readonly handle: NetworkNamespace;
  readonly kernel: Rtnetlink;
  readonly store: Datastore;
  readonly #pods: Pod[] = [];
  readonly #children: ChildProcess[] = [];

  private constructor(store: Datastore) {
    this.store = store;
    createNamedNamespace(this.name);
    this.handle = NetworkNamespace.named(this.name);
    this.kernel = openRtnetlink(this.handle);
    this.kernel.links.set("lo", { up: true });
    this.#addUplink();
  }

  /** Adds default routes: without them the kernel does not respond to ARP requests for the pods' gateway. */
  #addUplink(): void {
    this.kernel.links.create({ name: "uplink", up: true, type: { kind: "veth", peer: { name: "uplinkp" } } });
    this.kernel.links.set("uplinkp", { up: true });
    const link = this.kernel.links.get("uplink")!.index;
    for (const version of [4, 6] as const) this.kernel.routes.add({ destination: defaultDestination(version), link });
  }

  /** Makes 192.0.2.1 an address that never responds. */
  addSilentAddress(): void {
    this.kernel.links.create({ name: "hole", up: true, type: { kind: "veth", peer: { name: "holep" } } });
    this.kernel.links.set("holep", { up: true });
    const link = this.kernel.links.get("hole")!.index;
    this.kernel.routes.add({ destination: parseCidr("192.0.2.0/24"), link });
    this.kernel.neighbours.set({ link, address: parseAddress("192.0.2.1"), mac: "02:00:00:00:00:01" });
  }

  static async create(): Promise<CniHost> {
    const folder = mkdtempSync(join(tmpdir(), "cni-store-"));
    const store = await openSqlite(join(folder, "calico.db"));
    const host = new CniHost(store);
    host.#storeFolder = folder;
    await host.put("ClusterInformation", "default", { datastoreReady: true });
    await host.put("Node", "n1", {});
    await host.put("IPPool", "p4", { cidr: "10.65.0.0/24", blockSize: 26 });
    await host.put("IPPool", "p6", { cidr: "fd00:65::/112", blockSize: 122 });
    return host;
  }
  #storeFolder = "";

  get sqlitePath(): string {
    return join(this.#storeFolder, "calico.db");
  }

  async put(kind: KindName, name: string, spec: object, namespace?: string): Promise<void> {
    const metadata = { name, namespace };
    const value = { apiVersion: API_VERSION, kind, metadata, spec } as Resource;
    await this.store.apply({ key: { type: "resource", kind, ...metadata }, value });
  }
  /** Returns all stored resources of a kind, by name. */
  async all(kind: KindName): Promise<Map<string, Resource>> {
    const { items } = await this.store.list({ type: "resource", kind });
    return new Map(items.map((item) => [item.key.name, item.value as Resource]));
  }
  /** Returns every allocated address with its handle. */
  async allocations(): Promise<string[]> {
    const { items } = await this.store.list({ type: "block" });
    return items.flatMap(({ value }) =>
      value.allocations.flatMap((index, ordinal) =>
        index === null ? [] : [`${value.cidr}#${ordinal} ${value.attributes[index]?.handleId}`],
      ),
    );
  }
  async handles(): Promise<string[]> {
    return (await this.store.list({ type: "ipamHandle" })).items.map((item) => item.key.handleId);
  }

  pod(containerId = randomBytes(6).toString("hex")): Pod {
    const pod = new Pod(`${this.name}-${this.#pods.length}`, containerId);
    this.#pods.push(pod);
    return pod;
  }
  workloadLinks(): string[] {
    return this.kernel.links
      .list()
      .map((l) => l.name)
      .filter((name) => name.startsWith("cali"));
  }
  read(...sysctl: [string, ...string[]]): string {
    return this.handle.run(() => readSysctl(sysctl));
  }

  conf(more: Record<string, unknown> = {}): Record<string, unknown> {
    return {
      cniVersion: "1.0.0",
      name: "net1",
      type: "calico",
      datastore_type: "sqlite",
      sqlite_path: this.sqlitePath,
      nodename: "n1",
      nodename_file_optional: true,
      log_level: "error",
      service_socket: "",
      ipam_lock_file: join(this.folder, "run/ipam.lock"),
      ipam: { type: "calico-ipam" },
      ...more,
    };
  }

  /** Runs the plugin inside the host. */
  async call(command: string, pod: Pod | undefined, options: CallOptions = {}): Promise<PluginRun> {
    const file = options.file ?? join(DIST, options.program ?? "calico");
    const env = {
      PATH: process.env["PATH"] ?? "",
      CNI_COMMAND: command,
      CNI_PATH: `${DIST}:/usr/lib/cni`,
      ...(pod === undefined ? {} : { CNI_CONTAINERID: pod.containerId, CNI_NETNS: pod.netns, CNI_IFNAME: "eth0" }),
      ...options.env,
    };
    const { killAfterCall: call } = options;
    const inject = call && ["-e", `trace=${call.name}`, "-e", `inject=${call.name}:signal=SIGKILL:when=${call.count}`];
    const child =
      inject === undefined
        ? this.start(file, [], env)
        : this.start("strace", ["-f", "-qq", "-o", "/dev/null", ...inject, file], env);
    const result = collect(child);
    child.stdin?.on("error", () => {});
    child.stdin?.end(options.stdin ?? JSON.stringify(this.conf(options.conf)));
    const timer =
      options.killAfterMs === undefined ? undefined : setTimeout(() => child.kill("SIGKILL"), options.killAfterMs);
    const kill = (): void => void child.kill("SIGKILL");
    options.kill?.addEventListener("abort", kill);
    const run = await result;
    options.kill?.removeEventListener("abort", kill);
    clearTimeout(timer);
    return run;
  }
  add = (pod: Pod, options?: CallOptions): Promise<PluginRun> => this.call("ADD", pod, options);
  del = (pod: Pod, options?: CallOptions): Promise<PluginRun> => this.call("DEL", pod, options);

  /** Starts a program in the host's network namespace, with the host's own /var/lib/calico and /var/run/calico. */
  start(file: string, args: readonly string[], env: Record<string, string | undefined> = {}): ChildProcess {
    const folders = ["lib", "run"].map((name) => join(this.folder, name));
    for (const folder of [...folders, "/var/lib/calico", "/var/run/calico"]) mkdirSync(folder, { recursive: true });
    const script = 'mount --bind "$0" /var/lib/calico && mount --bind "$1" /var/run/calico && shift && exec "$@"';
    const options = {
      env: { PATH: process.env["PATH"], ...env } as NodeJS.ProcessEnv,
      stdio: ["pipe", "pipe", "pipe"],
    };
    const words = ["-m", "sh", "-c", script, ...folders, file, ...args];
    const child = this.handle.run(() => spawn("unshare", words, options as never) as ChildProcess);
    this.#children.push(child);
    return child;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    // A child that was ended by a signal has no exit code, and its process ID may be in use again.
    for (const child of this.#children) if (child.exitCode === null && child.signalCode === null) child.kill("SIGKILL");
    for (const pod of this.#pods) pod[Symbol.dispose]();
    this.kernel[Symbol.dispose]();
    this.handle[Symbol.dispose]();
    deleteNamedNamespace(this.name);
    await this.store.close();
    rmSync(this.folder, { recursive: true, force: true });
    rmSync(this.#storeFolder, { recursive: true, force: true });
  }
}

/** Returns the host interface in the result of an ADD. */
export function interfaceOf({ json, stdout, stderr }: PluginRun): string {
  const [host] = (json["interfaces"] ?? []) as { readonly name: string }[];
  if (host === undefined) throw new Error(`no interface: ${stdout}${stderr}`);
  return host.name;
}

export function collect(child: ChildProcess): Promise<PluginRun> {
  let stdout = "";
  let stderr = "";
  child.stdout?.on("data", (chunk: Buffer) => (stdout += chunk.toString()));
  child.stderr?.on("data", (chunk: Buffer) => (stderr += chunk.toString()));
  return new Promise((resolve, reject) => {
    child.on("error", reject);
    child.on("close", (code) => resolve({ code, stdout, stderr, json: parse(stdout) }));
  });
}

function parse(text: string): Record<string, unknown> {
  try {
    return JSON.parse(text) as Record<string, unknown>;
  } catch {
    return {};
  }
}

function readSysctl(path: readonly string[]): string {
  return require("node:fs")
    .readFileSync(`/proc/sys/${path.join("/")}`, "utf8")
    .trim();
}

export const k8s = (namespace: string, name: string): { env: Record<string, string> } => ({
  env: { CNI_ARGS: `IgnoreUnknown=1;K8S_POD_NAMESPACE=${namespace};K8S_POD_NAME=${name}` },
});
