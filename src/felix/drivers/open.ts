// Opens the dataplane driver that the settings select.
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
import { GUARD_TABLE, guardState, Nft, writeGuardFileAfterRules, withdrawGuard } from "../../kernel/index.ts";
import type { HealthAggregator } from "../../lib/http/health.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { FelixConfig } from "../../model/index.ts";
import type { ReportListener, RunningDriver } from "./driver.ts";
import { DumpDriver } from "./dump-driver.ts";
import { ExternalDriver } from "./external-driver.ts";
import { findMetadataAddress } from "./metadata-address.ts";

export async function openDriver(options: {
  readonly config: FelixConfig;
  readonly encapsulation: Encapsulation;
  readonly log: Logger;
  readonly health: HealthAggregator;
  readonly report: ReportListener;
  readonly onApplied: (round: AppliedRound) => void;
  /** Called with the Linux dataplane, for its metrics. */
  readonly onDataplane: (dataplane: LinuxDataplane) => void;
  /** The host changed in a way that requires a restart. */
  readonly onHostChange: (reason: string) => void;
  /** The live migration of a virtual machine to this host is complete. */
  readonly onArrival: NonNullable<LinuxDataplaneOptions["onArrival"]>;
  readonly dump: boolean;
  readonly nodenameFile: string;
}): Promise<RunningDriver> {
  const { config, encapsulation, report, health } = options;
  const logger = options.log.with({ part: "dataplane" });
  if (options.dump) return new DumpDriver((line) => writeSync(1, line));
  if (!config.UseInternalDataplaneDriver) {
    removeGuard(options.nodenameFile, logger);
    return new ExternalDriver({ program: config.DataplaneDriver, log: logger, report });
  }
  const metadataAddress = await findMetadataAddress(config, logger);
  const facts = {
    hostname: config.FelixHostname,
    metadataAddress,
    ipipEnabled: encapsulation.ipipEnabled,
    vxlanEnabled: encapsulation.vxlanEnabled,
    vxlanEnabledV6: encapsulation.vxlanEnabledV6,
    noEncapNeeded: encapsulation.noEncapNeeded,
    ipvs: hasIpvsDevice(),
  };
  const parameters = config.Ipv6Support && !hasIpv6() ? { ...config, Ipv6Support: false } : config;
  if (parameters !== config) logger.info("the kernel does not support IPv6; continuing with Ipv6Support=false");
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
          writeGuardFileAfterRules(options.nodenameFile, config.InterfacePrefix);
        } catch (error) {
          logger.warn(
            "guard file could not be written: after the next boot, pods are unprotected until Felix has started",
            {
              error: describeError(error),
            },
          );
        }
      }
      options.onApplied(round);
    },
    onHostChange: options.onHostChange,
    onArrival: options.onArrival,
    health: health.register("InternalDataplaneMainLoop", { live: true, ready: true }, timeoutMs),
  });
  options.onDataplane(dataplane);
  return dataplane;
}

/** Removes the guard table: an external driver writes the rules, but does not know the guard table. */
function removeGuard(nodenameFile: string, logger: Logger): void {
  try {
    withdrawGuard(nodenameFile);
    using nft = new Nft();
    if (guardState(nft) === "closed") nft.commit([{ op: "deleteTable", table: GUARD_TABLE }]);
  } catch (error) {
    logger.warn("guard table could not be removed", { error: describeError(error) });
  }
}
