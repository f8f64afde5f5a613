// The Linux dataplane, as felix sees it.
export { ApplyLoop, type ApplyLoopOptions, type ApplyLoopParts } from "./apply-loop.ts";
export { LinuxDataplane, type LinuxDataplaneOptions, type LinuxKernel } from "./linux-dataplane.ts";
export * from "./manager.ts";
export * from "./parameters.ts";
export type { RulesKernel } from "./rule-planes.ts";
export { hasIpvsDevice, IPVS_DEVICE, type OpenedKernel, openLinuxKernel } from "./open-kernel.ts";
export { type RemovalOptions, removeDataplane } from "./removal.ts";
