// Runs the controllers in the test's process, on a real API server and a real etcd, with shorter periods.
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { runControllers } from "../../src/controllers/run.ts";
import { createLogger, formatText } from "../../src/lib/log/log.ts";
import { delay } from "../../src/lib/retry.ts";
import type { EtcdServer } from "../support/etcd-server.ts";
import type { Environment } from "./cluster.ts";

const QUICK = {
  batchMs: 40,
  // Renewed often, with a long duration, because the machine may be busy and no replica is killed here.
  leader: { durationMs: 10_000, renewDeadlineMs: 8_000, retryMs: 300 },
};

export class ControllersRun implements AsyncDisposable {
  readonly lines: string[] = [];
  readonly folder = mkdtempSync(join(tmpdir(), "kube-controllers-"));
  readonly statusFile = join(this.folder, "status.json");
  /** Number of restarts. */
  restarts = 0;
  failure: unknown;
  readonly #aborter = new AbortController();
  readonly #running: Promise<void>;

  constructor(
    env: Environment,
    options: { readonly healthPort?: number; readonly timings?: object; readonly statusFile?: string } = {},
  ) {
    const signal = this.#aborter.signal;
    const run = {
      env,
      statusFile: options.statusFile ?? this.statusFile,
      healthPort: options.healthPort ?? 0,
      timings: { ...QUICK, ...options.timings },
      logger: () => createLogger({ level: "debug", write: (record) => void this.lines.push(formatText(record)) }),
    };
    this.#running = (async () => {
      while (!signal.aborted)
        try {
          await runControllers(run, signal);
          this.restarts++;
          await delay(20, signal).catch(() => {});
        } catch (error) {
          if (!signal.aborted) this.failure = error;
          return;
        }
    })();
  }

  /** The reason why it ended by itself. */
  ended(): Promise<void> {
    return this.#running;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.#aborter.abort();
    await this.#running;
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** Reads and writes etcd directly, without a codec. */
export class EtcdKeys {
  constructor(readonly server: EtcdServer) {}

  async snapshot(prefix = "/calico/"): Promise<Record<string, string>> {
    const end = prefix.slice(0, -1) + String.fromCharCode(prefix.charCodeAt(prefix.length - 1) + 1);
    const answer = await this.#call("range", { key: btoa(prefix), range_end: btoa(end) });
    const { kvs = [] } = answer as { kvs?: { key: string; value?: string }[] };
    const text = (coded = "") => Buffer.from(coded, "base64").toString("utf8");
    return Object.fromEntries(kvs.map(({ key, value }) => [text(key), text(value)]));
  }
  async put(key: string, value: string): Promise<void> {
    await this.#call("put", { key: encode(key), value: encode(value) });
  }
  async drop(key: string): Promise<void> {
    await this.#call("deleterange", { key: encode(key) });
  }
  async clear(): Promise<void> {
    await this.#call("deleterange", { key: btoa("/calico/"), range_end: btoa("/calico0") });
  }

  async #call(what: string, body: object): Promise<unknown> {
    const answer = await fetch(`${this.server.url}/v3/kv/${what}`, { method: "POST", body: JSON.stringify(body) });
    if (!answer.ok) throw new Error(`etcd ${what}: ${await answer.text()}`);
    return answer.json();
  }
}

const encode = (text: string): string => Buffer.from(text).toString("base64");
