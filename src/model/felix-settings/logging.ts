// Declares the settings of Felix's log, and of packets that policy logs.
import { flag, integer, logLevel, path, rate, regexp, text } from "./scalar-types.ts";
import { setting } from "./setting.ts";
import { withSchema } from "./value-type.ts";

const burst = withSchema(integer(0), (f) => f.pointer(f.integer(0, 9999)));
const packetPrefix = withSchema(text, (f) =>
  f.field(f.matching((value) => /^[a-zA-Z0-9%: /_-]*$/.test(value), "want letters, digits, blanks and any of %:/_-")),
);

export const loggingSettings = {
  LogFilePath: setting("logFilePath", path, "/var/log/calico/felix.log", "Log file. `none` disables it", {
    isFatal: true,
  }),
  LogSeverityFile: setting("logSeverityFile", logLevel, "Info", "Lowest severity written to the log file"),
  LogSeverityScreen: setting("logSeverityScreen", logLevel, "Info", "Lowest severity written to standard output"),
  LogSeveritySys: setting("logSeveritySys", logLevel, "Info", "Lowest severity written to syslog"),
  LogDebugFilenameRegex: setting(
    "logDebugFilenameRegex",
    regexp,
    "",
    "Parts of Felix, such as `dataplane`, that write debug lines. Unset: all",
  ),
  DebugDisableLogDropping: setting(
    "debugDisableLogDropping",
    flag,
    "false",
    "Wait for a slow log destination instead of dropping lines",
  ),
  LogPrefix: setting(
    "logPrefix",
    packetPrefix,
    "calico-packet",
    "Prefix of packets logged by the policy action Log. `%t` is the tier, `%k` the kind and `%n` or `%p` the name of the policy",
  ),
  LogActionRateLimit: setting(
    "logActionRateLimit",
    rate,
    "",
    "Largest rate of logged packets per rule: `N/second`, `N/minute`, `N/hour` or `N/day`. Unset: no limit",
  ),
  LogActionRateLimitBurst: setting(
    "logActionRateLimitBurst",
    burst,
    "5",
    "Packets logged before LogActionRateLimit applies",
  ),
};
