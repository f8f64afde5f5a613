// Which dataplane the settings ask for.
import { writeSync } from "node:fs";
import type { Encapsulation } from "../../calc/index.ts";
import {
  type AppliedRound,
  hasIpv6,
  hasIpvsDevice,
  LinuxDataplane,
  type LinuxDataplaneOptions,
  openLinuxKernel,
  watchdogMs,
} from "../../dataplane/index.ts";
import type { HealthAggregator } from "../../lib/health.ts";
import type { Logger } from "../../lib/log.ts";
import type { FelixConfig } from "../config/index.ts";
import type { ReportListener, RunningDriver } from "./driver.ts";
import { DumpDriver } from "./dump-driver.ts";
import { ExternalDriver } from "./external-driver.ts";
import { findMetadataAddress } from "./metadata-address.ts";

export async function openDriver(given: {
  readonly config: FelixConfig;
  readonly encapsulation: Encapsulation;
  readonly log: Logger;
  readonly health: HealthAggregator;
  readonly report: ReportListener;
  readonly onApplied: (round: AppliedRound) => void;
  /** The Linux dataplane's own numbers. */
  readonly onDataplane: (dataplane: LinuxDataplane) => void;
  /** The host is no longer what the dataplane was built for. */
  readonly onHostChange: (reason: string) => void;
  /** A machine that was on its way here has arrived. */
  readonly onArrival: NonNullable<LinuxDataplaneOptions["onArrival"]>;
  readonly dump: boolean;
}): Promise<RunningDriver> {
  const { config, encapsulation, report, health } = given;
  const logger = given.log.with({ part: "dataplane" });
  if (given.dump) return new DumpDriver((line) => writeSync(1, line));
  if (!config.UseInternalDataplaneDriver)
    return new ExternalDriver({ program: config.DataplaneDriver, log: logger, report });
  const metadataAddress = await findMetadataAddress(config, logger);
  const facts = {
    hostname: config.FelixHostname,
    ...(metadataAddress === undefined ? {} : { metadataAddress }),
    ipipEnabled: encapsulation.ipipEnabled,
    vxlanEnabled: encapsulation.vxlanEnabled,
    vxlanEnabledV6: encapsulation.vxlanEnabledV6,
    noEncapNeeded: encapsulation.noEncapNeeded,
    ipvs: hasIpvsDevice(),
  };
  const parameters = config.Ipv6Support && !hasIpv6() ? { ...config, Ipv6Support: false } : config;
  if (parameters !== config) logger.info("the kernel has no IPv6; continuing as with Ipv6Support=false");
  const kernel = await openLinuxKernel(parameters, facts, logger);
  const timeoutMs = watchdogMs(config.DataplaneWatchdogTimeout);
  const dataplane = new LinuxDataplane({
    parameters,
    facts,
    kernel,
    logger,
    report,
    onApplied: given.onApplied,
    onHostChange: given.onHostChange,
    onArrival: given.onArrival,
    health: health.register("InternalDataplaneMainLoop", { live: true, ready: true }, timeoutMs),
  });
  given.onDataplane(dataplane);
  return dataplane;
}
