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
import { GUARD_TABLE, guardForm, Nft, recordGuard, withdrawGuard } from "../../kernel/index.ts";
import type { HealthAggregator } from "../../lib/health.ts";
import { describeError, type Logger } from "../../lib/log.ts";
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
  readonly nodenameFile: string;
}): Promise<RunningDriver> {
  const { config, encapsulation, report, health } = given;
  const logger = given.log.with({ part: "dataplane" });
  if (given.dump) return new DumpDriver((line) => writeSync(1, line));
  if (!config.UseInternalDataplaneDriver) {
    openGuard(given.nodenameFile, logger);
    return new ExternalDriver({ program: config.DataplaneDriver, log: logger, report });
  }
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
  let isGuardRecorded = false;
  const dataplane = new LinuxDataplane({
    parameters,
    facts,
    kernel,
    logger,
    report,
    onApplied: (round) => {
      if (round.ok && !isGuardRecorded) {
        isGuardRecorded = true;
        try {
          recordGuard(given.nodenameFile, config.InterfacePrefix);
        } catch (error) {
          logger.warn("guard file could not be written: pods are open at the next boot until Felix has started", {
            error: describeError(error),
          });
        }
      }
      given.onApplied(round);
    },
    onHostChange: given.onHostChange,
    onArrival: given.onArrival,
    health: health.register("InternalDataplaneMainLoop", { live: true, ready: true }, timeoutMs),
  });
  given.onDataplane(dataplane);
  return dataplane;
}

/** Another program writes the rules. It does not know the guard table, so nobody else would open it. */
function openGuard(nodenameFile: string, logger: Logger): void {
  try {
    withdrawGuard(nodenameFile);
    using nft = new Nft();
    if (guardForm(nft) === "closed") nft.commit([{ op: "deleteTable", table: GUARD_TABLE }]);
  } catch (error) {
    logger.warn("guard table could not be opened", { error: describeError(error) });
  }
}
