// The Linux dataplane, as felix sees it.
export { ApplyLoop, type AppliedRound, type ApplyLoopOptions, type ApplyLoopParts, watchdogMs } from "./apply-loop.ts";
export { LinuxDataplane, type LinuxDataplaneOptions, type LinuxKernel } from "./linux-dataplane.ts";
export * from "./manager.ts";
export * from "./parameters.ts";
export type { RulesKernel } from "./rule-planes.ts";
export { IPVS_DEVICE } from "./host-watch.ts";
export { type DataplaneSizes, DataplaneStats } from "./stats.ts";
export { hasIpvsDevice, type OpenedKernel, openLinuxKernel } from "./open-kernel.ts";
export { type RemovalOptions, removeDataplane } from "./removal.ts";
