export {
  type AllocationRecord,
  allocationsIn,
  compareUsage,
  readAllocations,
  readUsers,
  type UsageFindings,
} from "./reports/allocations.ts";
export type { AssignAddressRequest } from "./assign/assign-address.ts";
export { type Assignments, describeShortage } from "./assign/auto-assign.ts";
export { describeFinding, type Finding, findHandleFaults, findInconsistencies } from "./reports/consistency.ts";
export * from "./errors.ts";
export { Ipam } from "./ipam.ts";
export * from "./names.ts";
export type { OwnedAddress, OwnerAttributes } from "./blocks/owner-attributes.ts";
export type { Allocation } from "./reports/queries.ts";
export type { ReleaseRequest } from "./release/release.ts";
export type { HandleRelease, HandleReleaseOptions } from "./release/release-handle.ts";
export type { ExpectedPod } from "./blocks/expected-pod.ts";
export { countOf } from "./blocks/handles.ts";
export type { ExtraWrites } from "./assign/take-from-block.ts";
export { AssignmentCache } from "./assign/assignment-cache.ts";
export { LOAD_BALANCER_OWNER } from "./assign/assignment-inputs.ts";
export type { Utilization } from "./reports/utilization.ts";
