// Checks that the datastore and the API server answer, and publishes the result for probes: in a file, which `check-status`
// reads, and over HTTP if a port is set.
import { readFileSync } from "node:fs";
import type { Client, KubeApi } from "../datastore/index.ts";
import type { HealthAggregator } from "../lib/http/health.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { pause } from "../lib/retry.ts";
import { replaceFile } from "../lib/files/replace-file.ts";
import { NotLeader } from "./leader-election.ts";

const PARTS = ["Startup", "CalicoDatastore", "KubeAPIServer"] as const;
type Part = (typeof PARTS)[number];
interface Readiness {
  readonly Ready: boolean;
  readonly Reason: string;
}

/** Publishes the readiness of each part in the file and on the HTTP pages. */
export class HealthStatus {
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

  /** Replaces the file atomically, because a probe may read it at any time. */
  #write(): void {
    const sorted = [...this.#parts].sort(([a], [b]) => (a < b ? -1 : 1));
    const text = JSON.stringify({ Readiness: Object.fromEntries(sorted) });
    if (text === this.#written || this.#file === "") return;
    try {
      replaceFile(this.#file, text);
      this.#written = text;
    } catch (error) {
      this.#log.warn("cannot write the status file", { file: this.#file, error: describeError(error) });
    }
  }
}

/** @returns why parts are not ready, for `check-status`; empty if all are ready */
export function readUnreadyReasons(file: string): readonly string[] {
  const { Readiness } = JSON.parse(readFileSync(file, "utf8")) as { Readiness?: Record<string, Readiness> };
  const parts = Object.entries(Readiness ?? {});
  if (parts.length === 0) return ["no part has reported its status yet"];
  return parts.flatMap(([part, { Ready, Reason }]) => (Ready ? [] : [Reason === "" ? `${part} is not ready` : Reason]));
}

export interface HealthTimings {
  readonly periodMs: number;
  /** Interval after a failed check. */
  readonly retryMs: number;
  /** Timeout of the first check; it doubles with each failure, up to `lastTimeoutMs`. */
  readonly firstTimeoutMs: number;
  readonly lastTimeoutMs: number;
}
export const HEALTH_TIMINGS: HealthTimings = {
  periodMs: 10_000,
  retryMs: 2_000,
  firstTimeoutMs: 4_000,
  lastTimeoutMs: 16_000,
};

/** Checks both every 10 s. After a failure it checks every 2 s, with a longer timeout each time. */
export async function watchHealth(
  options: {
    readonly client: Pick<Client, "ensureInitialized">;
    readonly api: Pick<KubeApi, "probe">;
    readonly healthStatus: Pick<HealthStatus, "set">;
    readonly log: Logger;
    readonly timings?: HealthTimings;
  },
  signal: AbortSignal,
): Promise<void> {
  const { client, api, healthStatus, log } = options;
  const { periodMs, retryMs, firstTimeoutMs, lastTimeoutMs } = options.timings ?? HEALTH_TIMINGS;
  const check = async (
    part: Part,
    problem: string,
    timeoutMs: number,
    request: (signal: AbortSignal) => Promise<unknown>,
  ) => {
    try {
      await request(AbortSignal.any([signal, AbortSignal.timeout(timeoutMs)]));
      healthStatus.set(part, true);
      return true;
    } catch (error) {
      if (signal.aborted) return true;
      // The datastore answered the read; only the leader may create missing objects.
      if (error instanceof NotLeader) {
        healthStatus.set(part, true);
        return true;
      }
      log.error(problem, { error: describeError(error) });
      healthStatus.set(part, false, `${problem}: ${describeError(error)}`);
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
