// The condition that an allocation belongs to a given pod. It is checked on the block that is then written with
// compare-and-swap, so it holds at the moment of the release. The plugin records the pod of an allocation from the
// runtime's CNI_ARGS; the author of a pod cannot change it.
import type { IpAddress } from "../../lib/ip/ip.ts";
import type { AllocationAttributes } from "../../model/index.ts";
import { StaleRelease } from "../errors.ts";
import { ATTRIBUTE } from "../names.ts";

export interface PodOwner {
  readonly namespace: string;
  readonly pod: string;
  /** Also accept an allocation without any attributes: old versions recorded none. */
  readonly orNoAttributes?: boolean;
}

/** @throws StaleRelease if the allocation does not belong to the pod */
export function requireOwner(address: IpAddress, held: AllocationAttributes, owner: PodOwner): void {
  const attributes = held.secondary ?? {};
  const { namespace, pod } = owner;
  if (attributes[ATTRIBUTE.namespace] === namespace && attributes[ATTRIBUTE.pod] === pod) return;
  const isEmpty = Object.keys({ ...attributes, ...held.alternateOwnerAttributes }).length === 0;
  if (isEmpty && owner.orNoAttributes === true) return;
  throw new StaleRelease(address, "BadOwner", `an address of ${namespace}/${pod}`, JSON.stringify(attributes));
}
