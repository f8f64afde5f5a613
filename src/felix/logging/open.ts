// Opens the log that the settings ask for.
import { openSyslog } from "../../kernel/index.ts";
import { createFelixLog, type FelixLog, type LogSettings, type LogTarget, thresholdOf } from "./felix-log.ts";
import { fileWriter, screenWriter, syslogWriter } from "./writers.ts";

/** @throws when the log file cannot be opened; a missing syslog is only mentioned */
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
  let missing: unknown;
  if (systemThreshold !== undefined)
    try {
      targets.push({ threshold: systemThreshold, writer: syslogWriter(openSystemLog("calico-felix")) });
    } catch (error) {
      missing = error;
    }
  const opened = createFelixLog(targets, {
    mayDrop: !settings.DebugDisableLogDropping,
    counts,
    debugParts: settings.LogDebugFilenameRegex,
  });
  if (missing !== undefined)
    opened.log.info("no syslog to write to; the other destinations have everything", { error: missing });
  return opened;
}
