// The interface of the Linux dataplane to Felix.
export { type AppliedRound, watchdogMs } from "./loop/apply-loop.ts";
export { LinuxDataplane, type LinuxDataplaneOptions } from "./linux-dataplane.ts";
export type { LinuxKernel } from "./host/linux-kernel.ts";
export * from "./loop/manager.ts";
export * from "./parameters.ts";
export type { RulesKernel } from "./rule-backend.ts";
export type { RejectedItem } from "./rules/fallback/rejection-log.ts";
export { type DataplaneSizes, DataplaneStats } from "./loop/stats.ts";
export { hasIpv6, hasIpvsDevice, openLinuxKernel } from "./host/open-kernel.ts";
export { removeDataplane } from "./cleanup/removal.ts";
