// One desired IP set, and the known state of the set in the kernel.
import type { IpsetType, ListedIpset } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import type { MemberType } from "../rules/rule-table.ts";
import type { MemberDelta } from "../rules/member-delta.ts";

export interface DesiredSet {
  /** Its current name in the kernel: its own name, or an alternate one while a set of another type has its own. */
  name: string;
  readonly ownName: string;
  readonly memberType: MemberType;
  readonly members: MemberDelta;
  /**
   * The state of the set in the kernel.
   * - `absent`: it does not exist
   * - `unread`: it exists, but its content must be read first
   * - `wrongSize`: it has another maximum size, or its members expire; it is replaced by a swap
   * - `wrongType`: it has another type or family, with which the kernel does not swap
   * - `known`: `members` contains the difference
   */
  state: "absent" | "unread" | "wrongSize" | "wrongType" | "known";
  /** The maximum size of the set in the kernel; 0 if it is not known. */
  capacity: number;
}

export const IPSET_TYPE: Readonly<Record<MemberType, IpsetType>> = {
  ip: "hash:ip",
  net: "hash:net",
  ipAndPort: "hash:ip,port",
};

/** Increases the size if the members do not fit. An incomplete set would allow packets that policy denies. */
export function capacityFor({ members }: DesiredSet, maxElements: number): number {
  const size = members.desired.size;
  return size <= maxElements ? maxElements : 2 ** Math.ceil(Math.log2(size));
}

/** @param listed undefined if the kernel has no set with this name */
export function recordListed(
  set: DesiredSet,
  listed: ListedIpset | undefined,
  { version, maxElements }: { readonly version: IpVersion; readonly maxElements: number },
): void {
  if (listed === undefined) {
    set.state = "absent";
    return;
  }
  const isSameType = listed.type === IPSET_TYPE[set.memberType] && listed.family === version;
  // If the size was increased before, it stays so, even if the members would fit into a smaller set now.
  const capacity = set.capacity === 0 ? capacityFor(set, maxElements) : set.capacity;
  const isUsable = isSameType && listed.maxElements === capacity && listed.timeoutSeconds === undefined;
  set.capacity = isSameType ? listed.maxElements : 0;
  set.state = isUsable ? "known" : isSameType ? "wrongSize" : "wrongType";
  if (isUsable) set.members.found(new Set(listed.members));
}
