// Where the dataplane's reports go.
import type { DataplaneReport } from "../../calc/index.ts";
import type { Datastore } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { FelixConfig } from "../config/index.ts";
import { keepAliveFile } from "./alive-file.ts";
import { EndpointStatusReporter } from "./endpoint-status.ts";
import { ProcessStatusReporter, statusRegion } from "./process-status.ts";
import { StatusFiles } from "./status-files.ts";
import { WireguardKeyReporter } from "./wireguard-key.ts";

export interface StatusReporters {
  onReport(report: DataplaneReport): void;
  run(signal: AbortSignal): Promise<void>;
}

export function createStatusReporters(given: {
  readonly config: FelixConfig;
  readonly store: Datastore;
  readonly log: Logger;
  readonly onNoNode: (reason: string) => void;
}): StatusReporters {
  const { config, store, onNoNode } = given;
  const log = given.log.with({ part: "status" });
  const host = config.FelixHostname;
  const region = statusRegion(config.OpenstackRegion);
  const prefix = config.EndpointStatusPathPrefix;
  const files = prefix === "" ? undefined : new StatusFiles(prefix, log);
  const endpoints = config.EndpointReportingEnabled
    ? new EndpointStatusReporter({ store, host, region, delayMs: config.EndpointReportingDelaySecs * 1000, log })
    : undefined;
  const processes = new ProcessStatusReporter({ store, host, region, ttlSeconds: config.ReportingTTLSecs, log });
  const wireguard = new WireguardKeyReporter({ store, host, log, onNoNode });
  return {
    onReport: (report) => {
      files?.onReport(report); // first: somebody may be waiting for it
      endpoints?.onReport(report);
      processes.onReport(report);
      wireguard.onReport(report);
    },
    run: async (signal) => {
      wireguard.start(signal);
      await Promise.all([
        files?.run(signal),
        endpoints?.run(signal),
        prefix === "" ? undefined : keepAliveFile(prefix, signal),
      ]);
    },
  };
}
