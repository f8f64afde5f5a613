// Runs Felix as a process for one test, with an SQLite datastore that the test writes to, and an external dataplane driver that
// records all frames. Needs no root and only the loopback network.
import { type ChildProcess, spawn } from "node:child_process";
import { chmodSync, existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { FrameReader } from "../../src/calc/index.ts";
import { type Datastore, type DatastoreConfig, openDatastore } from "../../src/datastore/index.ts";
import { bytesOf, rawFields } from "../../src/lib/testing/proto-fields.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";
import type { KindName, Resource } from "../../src/model/index.ts";
import { freePort } from "./free-port.ts";

const HOST = "node-a";

export class FelixProcess implements AsyncDisposable {
  readonly folder: string;
  readonly #store: Datastore;
  readonly healthPort: number;
  #child: ChildProcess | undefined;
  #exit: Promise<number | null> = Promise.resolve(null);
  /** Combined standard output and standard error, and standard output alone. */
  output = "";
  printed = "";

  private constructor(store: Datastore, healthPort: number, folder: string) {
    this.folder = folder;
    this.#store = store;
    this.healthPort = healthPort;
  }

  /**
   * Creates a ready cluster with one node. With Kubernetes, the node must exist.
   * @param config replaces the SQLite datastore; `start` then needs its settings
   */
  static async prepare(config?: DatastoreConfig): Promise<FelixProcess> {
    const folder = mkdtempSync(join(tmpdir(), "felix-process-"));
    const store = await openDatastore(config ?? { type: "sqlite", path: join(folder, "calico.db"), isFallback: false });
    const felix = new FelixProcess(store, await freePort(), folder);
    await felix.put("ClusterInformation", "default", { clusterGUID: "guid", datastoreReady: true });
    if (config?.type !== "kubernetes") await felix.put("Node", HOST, { bgp: { ipv4Address: "192.0.2.10/24" } });
    return felix;
  }

  async put(
    kind: KindName,
    name: string,
    spec: object,
    more: { readonly namespace?: string; readonly labels?: Readonly<Record<string, string>> } = {},
  ): Promise<void> {
    const value: Resource = { apiVersion: "projectcalico.org/v3", kind, metadata: { name, ...more }, spec };
    const { namespace } = more;
    await this.#store.apply({
      key: { type: "resource", kind, name, namespace },
      value,
    });
  }
  async get(kind: KindName, name: string): Promise<Resource | undefined> {
    return (await this.#store.get({ type: "resource", kind, name }))?.value;
  }
  async remove(kind: KindName, name: string, namespace?: string): Promise<void> {
    await this.#store.delete({ type: "resource", kind, name, namespace });
  }

  /** @param within a prefix that runs the command, such as in a namespace */
  start(
    env: Readonly<Record<string, string>> = {},
    args: readonly string[] = [],
    within: readonly string[] = [],
  ): void {
    const driver = join(this.folder, "driver");
    writeFileSync(driver, `#!/bin/sh\nexec cat <&3 >>'${join(this.folder, "stream")}'\n`);
    chmodSync(driver, 0o755);
    const [program = "", ...words] = [...within, process.execPath, ENTRY_RUNNER, ...args];
    const child = spawn(program, words, {
      cwd: this.folder,
      stdio: ["ignore", "pipe", "pipe"],
      env: {
        PATH: process.env["PATH"],
        PROGRAM: "calico-felix",
        CALICO_SQLITE_PATH: join(this.folder, "calico.db"),
        DATASTORE_TYPE: "sqlite",
        FELIX_FELIXHOSTNAME: HOST,
        FELIX_LOGSEVERITYSCREEN: "Info",
        FELIX_LOGFILEPATH: "none",
        FELIX_LOGSEVERITYSYS: "none",
        FELIX_HEALTHENABLED: "true",
        FELIX_HEALTHHOST: "127.0.0.1",
        FELIX_HEALTHPORT: String(this.healthPort),
        FELIX_ENDPOINTSTATUSPATHPREFIX: join(this.folder, "run"),
        FELIX_USEINTERNALDATAPLANEDRIVER: "false",
        FELIX_DATAPLANEDRIVER: driver,
        ...env,
      },
    });
    this.#child = child;
    for (const stream of [child.stdout, child.stderr])
      stream.on("data", (chunk: Buffer) => {
        this.output += chunk.toString();
        if (stream === child.stdout) this.printed += chunk.toString();
      });
    this.#exit = new Promise((resolve) => child.on("exit", (code) => resolve(code)));
  }

  get pid(): number | undefined {
    return this.#child?.pid;
  }
  get isRunning(): boolean {
    return this.#child !== undefined && this.#child.exitCode === null && this.#child.signalCode === null;
  }
  signal(name: NodeJS.Signals): void {
    this.#child?.kill(name);
  }
  /** Waits for the exit code. */
  exit(): Promise<number | null> {
    return this.#exit;
  }

  /** The HTTP status of a probe; 0 if there is no response. */
  async probe(path: "liveness" | "readiness"): Promise<number> {
    try {
      return (await fetch(`http://127.0.0.1:${this.healthPort}/${path}`)).status;
    } catch {
      return 0;
    }
  }

  async untilReady(): Promise<void> {
    await eventually(async () => {
      if (!this.isRunning) throw new Error(`the agent exited:\n${this.output}`);
      return (await this.probe("readiness")) === 200;
    });
  }

  /** Tags and sequence numbers of the messages that the driver received. */
  messages(): { readonly tag: number; readonly sequence: number; readonly body: string }[] {
    const file = join(this.folder, "stream");
    const bytes = existsSync(file) ? readFileSync(file) : Buffer.alloc(0);
    return [...new FrameReader().read(bytes)].map((message) => {
      const fields = rawFields(message);
      const payload = fields.find(({ number }) => number !== 15);
      return {
        tag: payload?.number ?? 0,
        body: payload === undefined ? "" : bytesOf(payload).toString("base64"),
        sequence: Number(fields.find(({ number }) => number === 15)?.value ?? 0),
      };
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#child?.kill("SIGKILL");
    if (this.#child !== undefined) await this.#exit;
    await this.#store.close();
    rmSync(this.folder, { recursive: true });
  }
}

/** Starts a program like the executable does. */
const ENTRY_RUNNER = join(import.meta.dir, "run-program.ts");
