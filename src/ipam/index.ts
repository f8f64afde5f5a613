export type { AssignAddressRequest } from "./assign-address.ts";
export { type Assignments, type AutoAssignRequest, describeShortage, LOAD_BALANCER } from "./auto-assign.ts";
export type { AllocationOwner, HostReserved, Owner } from "./block.ts";
export * from "./errors.ts";
export { Ipam } from "./ipam.ts";
export type { PoolUse } from "./pools.ts";
export type { ReleaseRequest, ReleaseResult } from "./release.ts";
