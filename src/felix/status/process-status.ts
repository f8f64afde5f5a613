// Writes Felix's process status to the datastore twice: one copy expires unless it is renewed, the other one stays.
import type { DataplaneReport } from "../../calc/index.ts";
import { type Datastore, Unsupported } from "../../datastore/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";

const WRITE_TIMEOUT_MS = 2000;

export class ProcessStatusReporter {
  readonly #options: {
    readonly store: Datastore;
    readonly host: string;
    readonly region: string;
    readonly ttlSeconds: number;
    readonly log: Logger;
  };
  #isFirst = true;
  #isSupported = true;

  constructor(options: {
    readonly store: Datastore;
    readonly host: string;
    readonly region: string;
    readonly ttlSeconds: number;
    readonly log: Logger;
  }) {
    this.#options = options;
  }

  onReport(report: DataplaneReport): void {
    if (report.type === "processStatus" && this.#isSupported) void this.#write(report);
  }

  async #write(report: Extract<DataplaneReport, { readonly type: "processStatus" }>): Promise<void> {
    const { store, host, region, ttlSeconds, log } = this.#options;
    const value = { time: report.time, uptime: report.uptimeSeconds, firstUpdate: this.#isFirst };
    const signal = AbortSignal.timeout(WRITE_TIMEOUT_MS);
    try {
      await store.apply({ key: { type: "felixStatus", region, host, last: false }, value, ttlSeconds }, { signal });
      await store.apply({ key: { type: "felixStatus", region, host, last: true }, value }, { signal });
      this.#isFirst = false;
    } catch (error) {
      if (error instanceof Unsupported) this.#isSupported = false;
      else log.debug("could not write process status", { error: describeError(error) });
    }
  }
}

export const statusRegion = (openstackRegion: string): string =>
  openstackRegion === "" ? "no-region" : `region-${openstackRegion}`;
