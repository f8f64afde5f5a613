// Which dataplane the settings ask for.
import type { HealthAggregator } from "../../lib/health.ts";
import type { Logger } from "../../lib/log.ts";
import { writeSync } from "node:fs";
import type { FelixConfig } from "../config/index.ts";
import type { ReportListener, RunningDriver } from "./driver.ts";
import { DumpDriver } from "./dump-driver.ts";
import { ExternalDriver } from "./external-driver.ts";

export function openDriver(given: {
  readonly config: FelixConfig;
  readonly log: Logger;
  readonly health: HealthAggregator;
  readonly report: ReportListener;
  readonly dump: boolean;
}): RunningDriver {
  const { config, report } = given;
  const log = given.log.with({ part: "dataplane" });
  if (given.dump) return new DumpDriver((line) => writeSync(1, line));
  if (!config.UseInternalDataplaneDriver) return new ExternalDriver({ program: config.DataplaneDriver, log, report });
  throw new Error("the Linux dataplane is not built in yet; set UseInternalDataplaneDriver=false, or give --dump");
}
