// One IP set of ours: what is wanted of it, and what the kernel's is as far as we know.
import type { IpsetType, ListedIpset } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import type { MemberType } from "../rules/layer-table.ts";
import type { MemberDelta } from "../rules/member-delta.ts";

export interface OurSet {
  /** The kernel's name for it now: its own, or a stand-in while something else has that. */
  name: string;
  readonly ownName: string;
  readonly memberType: MemberType;
  readonly members: MemberDelta;
  /**
   * `trusted`: the delta says what the kernel's set lacks; `unread`: look first; `unfit`: of another size, or its members
   * expire; `alien`: of another type or family, which the kernel swaps with none of ours.
   */
  state: "absent" | "unread" | "unfit" | "alien" | "trusted";
  /** How many members the kernel's set takes, as we made or found it; 0 before. */
  capacity: number;
}

export const IPSET_TYPE: Readonly<Record<MemberType, IpsetType>> = {
  ip: "hash:ip",
  net: "hash:net",
  ipAndPort: "hash:ip,port",
};

/** A set in which not all fit would let pass what it shall stop: then it is made larger than it was asked to be. */
export function capacityFor({ members }: OurSet, maxElements: number): number {
  const size = members.wanted.size;
  return size <= maxElements ? maxElements : 2 ** Math.ceil(Math.log2(size));
}

/** The kernel's set of its name was looked at; nothing when there is none. */
export function foundAs(
  set: OurSet,
  listed: ListedIpset | undefined,
  { version, maxElements }: { readonly version: IpVersion; readonly maxElements: number },
): void {
  if (listed === undefined) {
    set.state = "absent";
    return;
  }
  const isKin = listed.type === IPSET_TYPE[set.memberType] && listed.family === version;
  // One that was made larger for members it no longer has is as we made it.
  const capacity = set.capacity === 0 ? capacityFor(set, maxElements) : set.capacity;
  const isFit = isKin && listed.maxElements === capacity && listed.timeoutSeconds === undefined;
  set.capacity = isKin ? listed.maxElements : 0;
  set.state = isFit ? "trusted" : isKin ? "unfit" : "alien";
  if (isFit) set.members.found(new Set(listed.members));
}
