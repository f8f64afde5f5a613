// The Linux dataplane, as felix sees it.
export { type AppliedRound, watchdogMs } from "./apply-loop.ts";
export { LinuxDataplane, type LinuxDataplaneOptions } from "./linux-dataplane.ts";
export type { LinuxKernel } from "./linux-kernel.ts";
export * from "./manager.ts";
export * from "./parameters.ts";
export type { RulesKernel } from "./rule-planes.ts";
export type { Refused } from "./rules/refused.ts";
export { type DataplaneSizes, DataplaneStats } from "./stats.ts";
export { hasIpv6, hasIpvsDevice, openLinuxKernel } from "./open-kernel.ts";
export { removeDataplane } from "./removal.ts";
