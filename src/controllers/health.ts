// Whether the program can do its work: its datastore answers, the API server answers. Told to probes through a file,
// which `check-status` reads, and over HTTP where a port is given.
import { readFileSync } from "node:fs";
import type { Client, KubeApi } from "../datastore/index.ts";
import type { HealthAggregator } from "../lib/health.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { pause } from "../lib/retry.ts";
import { replaceFile } from "../lib/whole-file.ts";
import { NotLeading } from "./leader.ts";

export const STATUS_FILE = "/status/status.json";
const PARTS = ["Startup", "CalicoDatastore", "KubeAPIServer"] as const;
type Part = (typeof PARTS)[number];
interface Readiness {
  readonly Ready: boolean;
  readonly Reason: string;
}

/** What the parts say, in the file and on the page. */
export class Readings {
  readonly #file: string;
  readonly #log: Logger;
  readonly #parts = new Map<Part, Readiness>();
  readonly #reporters: ReadonlyMap<Part, ReturnType<HealthAggregator["register"]>>;
  #written = "";

  constructor(file: string, health: HealthAggregator, log: Logger) {
    this.#file = file;
    this.#log = log;
    this.#reporters = new Map(PARTS.map((part) => [part, health.register(part, { live: true, ready: true })]));
  }

  set(part: Part, isReady: boolean, reason = ""): void {
    this.#parts.set(part, { Ready: isReady, Reason: reason });
    this.#reporters.get(part)?.({ live: true, ready: isReady, detail: reason });
    this.#write();
  }

  /** Whole or not at all: a probe may read at any moment. */
  #write(): void {
    const sorted = [...this.#parts].sort(([a], [b]) => (a < b ? -1 : 1));
    const text = JSON.stringify({ Readiness: Object.fromEntries(sorted) });
    if (text === this.#written || this.#file === "") return;
    try {
      replaceFile(this.#file, text);
      this.#written = text;
    } catch (error) {
      this.#log.warn("the status file cannot be written", { file: this.#file, error: describeError(error) });
    }
  }
}

/** What `check-status` says: the reasons against, none when all is well. */
export function readReadings(file: string): readonly string[] {
  const { Readiness } = JSON.parse(readFileSync(file, "utf8")) as { Readiness?: Record<string, Readiness> };
  const parts = Object.entries(Readiness ?? {});
  if (parts.length === 0) return ["nothing has been reported yet"];
  return parts.flatMap(([part, { Ready, Reason }]) => (Ready ? [] : [Reason === "" ? `${part} is not ready` : Reason]));
}

export interface HealthTimings {
  readonly periodMs: number;
  /** After a failure. */
  readonly retryMs: number;
  /** Patience at first, doubled with every failure. */
  readonly firstTimeoutMs: number;
  readonly lastTimeoutMs: number;
}
export const HEALTH_TIMINGS: HealthTimings = {
  periodMs: 10_000,
  retryMs: 2_000,
  firstTimeoutMs: 4_000,
  lastTimeoutMs: 16_000,
};

/** Asks both every ten seconds, after a failure every two, and then with more patience each time. */
export async function watchHealth(
  options: {
    readonly client: Pick<Client, "ensureInitialized">;
    readonly api: Pick<KubeApi, "probe">;
    readonly readings: Pick<Readings, "set">;
    readonly log: Logger;
    readonly timings?: HealthTimings;
  },
  signal: AbortSignal,
): Promise<void> {
  const { client, api, readings, log } = options;
  const { periodMs, retryMs, firstTimeoutMs, lastTimeoutMs } = options.timings ?? HEALTH_TIMINGS;
  const check = async (part: Part, what: string, timeoutMs: number, ask: (signal: AbortSignal) => Promise<unknown>) => {
    try {
      await ask(AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]));
      readings.set(part, true);
      return true;
    } catch (error) {
      if (signal.aborted) return true;
      // It was read, and only what is missing there was not written: that is for the replica that leads.
      if (error instanceof NotLeading) {
        readings.set(part, true);
        return true;
      }
      log.error(what, { error: describeError(error) });
      readings.set(part, false, `${what}: ${describeError(error)}`);
      return false;
    }
  };
  for (let timeoutMs = firstTimeoutMs; !signal.aborted; ) {
    const healthy = [
      await check("CalicoDatastore", "the datastore does not answer", timeoutMs, (until) =>
        client.ensureInitialized(undefined, until),
      ),
      await check("KubeAPIServer", "the API server does not answer", timeoutMs, (until) =>
        api.probe("/healthz", until),
      ),
    ].every((isGood) => isGood);
    timeoutMs = healthy ? firstTimeoutMs : Math.min(lastTimeoutMs, timeoutMs * 2);
    await pause(healthy ? periodMs : retryMs, signal);
  }
}
