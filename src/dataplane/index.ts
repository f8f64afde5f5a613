// The Linux dataplane, as felix sees it.
export { ApplyLoop, type ApplyLoopOptions, type ApplyLoopParts } from "./apply-loop.ts";
export * from "./manager.ts";
