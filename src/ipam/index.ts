export {
  type AllocationRecord,
  allocationsIn,
  compareUsage,
  readAllocations,
  readUsers,
  type UsageFindings,
} from "./allocations.ts";
export type { AssignAddressRequest } from "./assign-address.ts";
export { type Assignments, describeShortage } from "./auto-assign.ts";
export { describeFinding, type Finding, findHandleFaults, findInconsistencies } from "./consistency.ts";
export * from "./errors.ts";
export { Ipam } from "./ipam.ts";
export * from "./names.ts";
export type { OwnedAddress, Owners } from "./owner-attributes.ts";
export type { Allocation } from "./queries.ts";
export type { ReleaseRequest } from "./release.ts";
export type { HandleRelease } from "./release-handle.ts";
export type { PodOwner } from "./pod-owner.ts";
export { countOf } from "./handles.ts";
export type { ExtraWrites } from "./take.ts";
export { AssignmentCache } from "./assignment-cache.ts";
export { LOAD_BALANCER } from "./assignment-inputs.ts";
export type { Utilization } from "./utilization.ts";
