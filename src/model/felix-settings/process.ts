// Declares the settings of the process, the choice of its dataplane, and debugging.
import { hostAddress, port } from "./network-types.ts";
import { executable, flag, integer, keyValues, path, seconds } from "./scalar-types.ts";
import { setting } from "./setting.ts";
import { withSchema } from "./value-type.ts";

const NO_GO = { noEffect: "there is no Go runtime" } as const;
const NO_PROFILE_SERVER = { noEffect: "SIGUSR1 and SIGUSR2 write profiles to files, no port serves them" } as const;

export const processSettings = {
  UseInternalDataplaneDriver: setting(
    "useInternalDataplaneDriver",
    flag,
    "true",
    "Program the kernel. If false, DataplaneDriver does it",
  ),
  DataplaneDriver: setting(
    "dataplaneDriver",
    executable,
    "calico-iptables-plugin",
    "External dataplane driver, searched next to Felix's executable and then in PATH",
    { isFatal: true, rejectsNone: true },
  ),
  DataplaneWatchdogTimeout: setting(
    "dataplaneWatchdogTimeout",
    seconds,
    "90",
    "Felix is unhealthy if its dataplane does not report for this long; at least 20 s. HealthTimeoutOverrides takes precedence",
  ),
  FeatureDetectOverride: setting(
    "featureDetectOverride",
    keyValues,
    "",
    "Features of the kernel and of iptables that are not detected but set, such as `RestoreSupportsLock=false`",
  ),
  FeatureGates: setting("featureGates", keyValues, "", "Features in preview", {
    noEffect: "there are no features in preview",
  }),
  GoGCThreshold: setting("goGCThreshold", integer(-1), "40", "Garbage collection threshold of the Go runtime", NO_GO),
  GoMemoryLimitMB: setting("goMemoryLimitMB", integer(-1), "-1", "Memory limit of the Go runtime in MB", NO_GO),
  GoMaxProcs: setting("goMaxProcs", integer(-1), "-1", "CPU limit of the Go runtime", NO_GO),
  DebugMemoryProfilePath: setting("debugMemoryProfilePath", path, "", "File for the heap profile that SIGUSR1 writes"),
  DebugCPUProfilePath: setting(
    undefined,
    path,
    "/tmp/felix-cpu-<timestamp>.pprof",
    "File for the CPU profile of 10 s that SIGUSR2 writes",
  ),
  DebugHost: setting("debugHost", hostAddress, "localhost", "Address on which profiles are served", NO_PROFILE_SERVER),
  DebugPort: setting(
    "debugPort",
    withSchema(port, (f) => f.pointer(f.portNumber())),
    "",
    "Port on which profiles are served. 0 disables it",
    NO_PROFILE_SERVER,
  ),
  DebugSimulateCalcGraphHangAfter: setting(
    "debugSimulateCalcGraphHangAfter",
    seconds,
    "0",
    "For tests: the calculation graph hangs after this time. 0 disables it",
  ),
  DebugSimulateDataplaneHangAfter: setting(
    "debugSimulateDataplaneHangAfter",
    seconds,
    "0",
    "For tests: the dataplane hangs after this time. 0 disables it",
  ),
  DebugSimulateDataplaneApplyDelay: setting(
    "debugSimulateDataplaneApplyDelay",
    seconds,
    "0",
    "For tests: delay before each write to the kernel",
  ),
  DebugPanicAfter: setting(undefined, seconds, "0", "For tests: Felix crashes after this time. 0 disables it"),
  DebugSimulateDataRace: setting(undefined, flag, "false", "For tests: threads race", NO_GO),
};
