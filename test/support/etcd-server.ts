// Runs a real etcd for one test, with its own ports and folder, and optionally with TLS and client certificates.
import { type ChildProcess, spawn } from "node:child_process";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { EtcdConfig } from "../../src/datastore/index.ts";
import { type Certificate, TestAuthority } from "./certificates.ts";
import { freePorts } from "./free-port.ts";

export interface EtcdServerOptions {
  readonly tls?: boolean;
  readonly flags?: readonly string[];
  /** Syncs each write to disk, which most tests do not need. */
  readonly waitsForDisk?: boolean;
  /** Replaces the valid server certificate. */
  readonly serverCertificate?: { readonly certificate: Certificate; readonly authority: TestAuthority };
}

export class EtcdServer implements AsyncDisposable {
  readonly url: string;
  readonly folder: string;
  /** Client configuration. */
  readonly config: EtcdConfig;
  readonly authority: TestAuthority | undefined;
  readonly #arguments: readonly string[];
  #process: ChildProcess | undefined;

  static async start(options: EtcdServerOptions = {}): Promise<EtcdServer> {
    const [client = 0, peer = 0] = await freePorts(2);
    const server = new EtcdServer(client, peer, options);
    await server.run();
    return server;
  }

  private constructor(client: number, peer: number, options: EtcdServerOptions) {
    this.folder = mkdtempSync(join(tmpdir(), "calico-etcd-"));
    const tls = options.tls ?? false;
    this.url = `${tls ? "https" : "http"}://127.0.0.1:${client}`;
    const flags = [
      ["--name", "one", "--data-dir", join(this.folder, "data"), "--log-level", "error", "--logger", "zap"],
      ["--listen-client-urls", this.url, "--advertise-client-urls", this.url],
      ["--listen-peer-urls", `http://127.0.0.1:${peer}`, "--initial-advertise-peer-urls", `http://127.0.0.1:${peer}`],
      ["--initial-cluster", `one=http://127.0.0.1:${peer}`, ...(options.flags ?? [])],
      options.waitsForDisk === true ? [] : ["--unsafe-no-fsync"],
    ].flat();
    if (tls) {
      this.authority = options.serverCertificate?.authority ?? new TestAuthority(this.folder);
      const server = options.serverCertificate?.certificate ?? this.authority.issue("etcd-server");
      const user = this.authority.issue("etcd-client");
      flags.push("--cert-file", server.certFile, "--key-file", server.keyFile);
      flags.push("--client-cert-auth", "--trusted-ca-file", this.authority.certFile);
      const ca = { file: this.authority.certFile };
      const material = { ca, cert: { file: user.certFile }, key: { file: user.keyFile } };
      this.config = { type: "etcdv3", endpoints: [this.url], tls: material };
    } else this.config = { type: "etcdv3", endpoints: [this.url] };
    this.#arguments = flags;
  }

  get pid(): number {
    return this.#process?.pid ?? 0;
  }

  /** Starts etcd, also after `kill`, and waits until it responds. */
  async run(): Promise<void> {
    const child = spawn("etcd", this.#arguments, { stdio: ["ignore", "ignore", "pipe"] });
    this.#process = child;
    let log = "";
    child.stderr.on("data", (chunk: Buffer) => (log = (log + chunk.toString()).slice(-4000)));
    const deadline = Date.now() + 20_000;
    while (!(await this.#healthy())) {
      if (child.exitCode !== null || Date.now() > deadline) throw new Error(`etcd did not start: ${log}`);
      await Bun.sleep(20);
    }
  }

  async kill(signal: "SIGKILL" | "SIGTERM" = "SIGKILL"): Promise<void> {
    const child = this.#process;
    if (child === undefined || child.exitCode !== null || child.signalCode !== null) return;
    const gone = new Promise((resolve) => child.once("exit", resolve));
    child.kill(signal);
    await gone;
  }

  pause(): void {
    this.#process?.kill("SIGSTOP");
  }

  resume(): void {
    this.#process?.kill("SIGCONT");
  }

  /** Runs etcdctl and returns its output. */
  etcdctl(...args: readonly string[]): string {
    const tls = this.config.tls;
    const file = (source: unknown) => (source as { file: string }).file;
    const security =
      tls === undefined ? [] : ["--cacert", file(tls.ca), "--cert", file(tls.cert), "--key", file(tls.key)];
    const run = Bun.spawnSync(["etcdctl", "--endpoints", this.url, ...security, ...args], {
      env: { ...process.env, ETCDCTL_API: "3" },
    });
    if (run.exitCode !== 0) throw new Error(`etcdctl ${args.join(" ")}: ${run.stderr.toString()}`);
    return run.stdout.toString();
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.resume();
    await this.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }

  async #healthy(): Promise<boolean> {
    try {
      const tls = this.config.tls;
      const file = (source: unknown) => Bun.file((source as { file: string }).file);
      const checkServerIdentity = () => undefined; // the certificate may be invalid on purpose
      const security = tls && {
        tls: { ca: file(tls.ca), cert: file(tls.cert), key: file(tls.key), checkServerIdentity },
      };
      const response = await fetch(`${this.url}/health`, { signal: AbortSignal.timeout(1000), ...security });
      return (await response.text()).includes("true");
    } catch {
      return false;
    }
  }
}
