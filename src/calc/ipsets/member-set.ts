// Stores the reference-counted members of one IP set: an address that two endpoints share stays until both are deleted.
// Nearly all members have one reference, so a count is stored only for the others.
import { type Cidr, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { PrefixCover } from "../../lib/ip/prefix-cover.ts";
import type { IpSetId } from "../messages.ts";
import type { MemberListener } from "./ip-set.ts";

export class MemberSet {
  readonly id: IpSetId;
  /** Empty if nested prefixes are omitted: `#covers` has the members then. */
  readonly #members = new Set<string>();
  /** The number of references beyond the first, by member. */
  readonly #extraReferences = new Map<string, number>();
  readonly #listener: MemberListener;
  readonly #covers: Readonly<Record<IpVersion, PrefixCover>> | undefined;

  /** @param omitNestedPrefixes omit members that lie inside a wider member; only for sets of prefixes */
  constructor(id: IpSetId, listener: MemberListener, omitNestedPrefixes: boolean) {
    this.id = id;
    this.#listener = listener;
    if (!omitNestedPrefixes) return;
    const outermost = {
      added: (cidr: Cidr) => listener.onMemberAdded(id, cidr),
      removed: (cidr: Cidr) => listener.onMemberRemoved(id, cidr),
    };
    this.#covers = { 4: new PrefixCover(4, outermost), 6: new PrefixCover(6, outermost) };
  }

  add(member: string): void {
    if (!this.#addFirst(member)) this.#extraReferences.set(member, (this.#extraReferences.get(member) ?? 0) + 1);
  }

  remove(member: string): void {
    const extra = this.#extraReferences.get(member);
    if (extra === undefined) this.#removeLast(member);
    else if (extra === 1) this.#extraReferences.delete(member);
    else this.#extraReferences.set(member, extra - 1);
  }

  /** Returns false if the set contains the member. */
  #addFirst(member: string): boolean {
    if (this.#covers !== undefined) return this.#covers[ipVersion(member as Cidr)].add(member as Cidr);
    const before = this.#members.size;
    this.#members.add(member);
    if (this.#members.size === before) return false;
    this.#listener.onMemberAdded(this.id, member);
    return true;
  }

  #removeLast(member: string): void {
    const didRemove =
      this.#covers === undefined
        ? this.#members.delete(member)
        : this.#covers[ipVersion(member as Cidr)].delete(member as Cidr);
    if (!didRemove) throw new Error(`IP set ${this.id} has no member ${member}`);
    if (this.#covers === undefined) this.#listener.onMemberRemoved(this.id, member);
  }
}
