// Passes the dataplane's reports to the status reporters.
import type { DataplaneReport } from "../../calc/index.ts";
import type { Datastore } from "../../datastore/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import type { FelixConfig } from "../../model/index.ts";
import { keepAliveFile } from "./alive-file.ts";
import { EndpointStatusReporter } from "./endpoint-status.ts";
import { ProcessStatusReporter, statusRegion } from "./process-status.ts";
import { StatusFiles } from "./status-files.ts";
import { WireguardKeyReporter } from "./wireguard-key.ts";

export interface StatusReporters {
  onReport(report: DataplaneReport): void;
  run(signal: AbortSignal): Promise<void>;
}

export function createStatusReporters(options: {
  readonly config: FelixConfig;
  readonly store: Datastore;
  readonly log: Logger;
  readonly onNoNode: (reason: string) => void;
}): StatusReporters {
  const { config, store, onNoNode } = options;
  const log = options.log.with({ part: "status" });
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
      files?.onReport(report); // first, because the CNI plugin may be waiting for the file
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
