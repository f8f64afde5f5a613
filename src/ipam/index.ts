export {
  type AddressUser,
  type AllocationRecord,
  allocationsIn,
  compareUsage,
  readAllocations,
  readUsers,
  type UsageFindings,
} from "./allocations.ts";
export type { AssignAddressRequest } from "./assign-address.ts";
export { type Assignments, type AutoAssignRequest, describeShortage } from "./auto-assign.ts";
export {
  type AllocationOwner,
  type HostReserved,
  type Owner,
  ownerText,
  WINDOWS_RESERVED_HANDLE,
} from "./block.ts";
export { describeFinding, type Finding, findHandleFaults, findInconsistencies, type IpamState } from "./consistency.ts";
export * from "./errors.ts";
export { Ipam } from "./ipam.ts";
export * from "./names.ts";
export type { OwnerChange } from "./owner-attributes.ts";
export type { PoolUse } from "./pools.ts";
export type { Allocation } from "./queries.ts";
export { Memory as IpamMemory } from "./memory.ts";
export type { ReleaseRequest, ReleaseResult } from "./release.ts";
export type { HandleRelease } from "./release-handle.ts";
export type { Also } from "./take.ts";
export { LOAD_BALANCER } from "./surroundings.ts";
export type { PoolUtilization, Utilization, UtilizationReport } from "./utilization.ts";
