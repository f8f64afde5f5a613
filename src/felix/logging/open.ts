// Opens the log destinations that are configured.
import { openSyslog } from "../../kernel/index.ts";
import { createFelixLog, type FelixLog, type LogSettings, type LogTarget, thresholdOf } from "./felix-log.ts";
import { fileWriter, screenWriter, syslogWriter } from "./writers.ts";

/** @throws if the log file cannot be opened. If syslog cannot be opened, that is only logged. */
export function openFelixLog(
  settings: LogSettings,
  counts: { dropped(): void; failed(): void },
  options: { readonly screen?: 1 | 2; readonly openSystemLog?: typeof openSyslog } = {},
): FelixLog {
  const { screen = 1, openSystemLog = openSyslog } = options;
  const targets: LogTarget[] = [{ threshold: thresholdOf(settings.LogSeverityScreen), writer: screenWriter(screen) }];
  const fileThreshold = thresholdOf(settings.LogSeverityFile);
  if (settings.LogFilePath !== "" && fileThreshold !== undefined)
    targets.push({ threshold: fileThreshold, writer: fileWriter(settings.LogFilePath) });
  const systemThreshold = thresholdOf(settings.LogSeveritySys);
  let syslogError: unknown;
  if (systemThreshold !== undefined)
    try {
      targets.push({ threshold: systemThreshold, writer: syslogWriter(openSystemLog("calico-felix")) });
    } catch (error) {
      syslogError = error;
    }
  const opened = createFelixLog(targets, {
    mayDrop: !settings.DebugDisableLogDropping,
    counts,
    debugParts: settings.LogDebugFilenameRegex,
  });
  if (syslogError !== undefined)
    opened.log.info("no syslog is available; logging to the other destinations", { error: syslogError });
  return opened;
}
