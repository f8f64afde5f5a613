// Checks that an allocation belongs to an expected pod. The check is made on the block that is then written with
// compare-and-swap, so it holds at the time of the release. The plugin records the pod of an allocation from the runtime's
// CNI_ARGS; the author of a pod cannot change it.
import type { IpAddress } from "../../lib/ip/ip.ts";
import type { AllocationAttributes } from "../../model/index.ts";
import { StaleRelease } from "../errors.ts";
import { ATTRIBUTE } from "../names.ts";

export interface ExpectedPod {
  readonly namespace: string;
  readonly pod: string;
  /** Also accept an allocation without attributes; old versions recorded none. */
  readonly acceptNoAttributes?: boolean;
}

/** @throws StaleRelease if the allocation does not belong to the pod */
export function requireExpectedPod(address: IpAddress, held: AllocationAttributes, expected: ExpectedPod): void {
  const attributes = held.secondary ?? {};
  const { namespace, pod } = expected;
  if (attributes[ATTRIBUTE.namespace] === namespace && attributes[ATTRIBUTE.pod] === pod) return;
  const isEmpty = Object.keys({ ...attributes, ...held.alternateOwnerAttributes }).length === 0;
  if (isEmpty && expected.acceptNoAttributes === true) return;
  throw new StaleRelease(address, "BadOwner", `an address of ${namespace}/${pod}`, JSON.stringify(attributes));
}
