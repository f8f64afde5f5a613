// One IP set's members with the number of reasons each is there: two endpoints may share an address, and it stays until
// the last of them goes. Nearly all have one reason, so only the others carry a number.
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip.ts";
import { PrefixCover } from "../../lib/prefix-cover.ts";
import type { IpSetId } from "../messages.ts";
import type { MemberListener } from "./ip-set.ts";

export class MemberSet {
  readonly id: IpSetId;
  readonly #members = new Set<string>();
  /** How often beyond the first. */
  readonly #more = new Map<string, number>();
  readonly #listener: MemberListener;
  readonly #covers: Readonly<Record<IpVersion, PrefixCover>> | undefined;

  /** @param withoutOverlaps members inside a wider one are held back; for sets of prefixes only */
  constructor(id: IpSetId, listener: MemberListener, withoutOverlaps: boolean) {
    this.id = id;
    this.#listener = listener;
    if (!withoutOverlaps) return;
    const outermost = {
      added: (cidr: Cidr) => listener.onMemberAdded(id, cidr),
      removed: (cidr: Cidr) => listener.onMemberRemoved(id, cidr),
    };
    this.#covers = { 4: new PrefixCover(4, outermost), 6: new PrefixCover(6, outermost) };
  }

  add(member: string): void {
    const before = this.#members.size;
    this.#members.add(member);
    if (this.#members.size === before) this.#more.set(member, (this.#more.get(member) ?? 0) + 1);
    else if (this.#covers === undefined) this.#listener.onMemberAdded(this.id, member);
    else this.#covers[ipVersion(member as Cidr)].add(member as Cidr);
  }

  remove(member: string): void {
    const more = this.#more.get(member);
    if (more === undefined) {
      if (!this.#members.delete(member)) throw new Error(`IP set ${this.id} has no member ${member}`);
      if (this.#covers === undefined) this.#listener.onMemberRemoved(this.id, member);
      else this.#covers[ipVersion(member as Cidr)].delete(member as Cidr);
    } else if (more === 1) this.#more.delete(member);
    else this.#more.set(member, more - 1);
  }
}
