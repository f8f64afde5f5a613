// Keeps the IP sets of one family in an nftables table. A set of single addresses is a hash set; one that contains a prefix is an
// interval set, in which each change costs the kernel more (20 ms instead of 0.01 ms with 100,000 members). The members
// alone decide. When the kind of a set changes, a set of the other kind is added, the chains that refer to it are
// rewritten, and the old set is deleted, all in one transaction.
//
// Sets have the names that Calico gives them, with one exception. Where Calico has an interval set, a hash set has a name
// of its own: Calico adds its sets when it starts, and an existing set of another kind makes it recreate the whole table.
import {
  addressElement,
  concatenate,
  type DumpedSet,
  type ElementList,
  keyTypeId,
  type NftChange,
  prefixElements,
  type SetElement,
  serviceBytes,
  type SetType,
  type TableRef,
} from "../../kernel/index.ts";
import {
  addressBytes,
  addressFromBytes,
  type Cidr,
  cidrAddress,
  hostCidr,
  type IpAddress,
  type IpVersion,
} from "../../lib/ip/ip.ts";
import { PrefixCover } from "../../lib/ip/prefix-cover.ts";
import { MemberDelta } from "../rules/member-delta.ts";
import type { IpSets, MemberType } from "../rules/rule-table.ts";
import { protocolNumber, type SetId } from "../rules/rule.ts";
import { familyMember, familyMembers } from "../rules/set-members.ts";
import type { PhasedChanges } from "./phases.ts";
import { nftSetName } from "./render.ts";

type SetKind = "hosts" | "nets" | "services";

interface DesiredSet {
  readonly id: SetId;
  readonly memberType: MemberType;
  /** Members that the kernel's set must contain: all, without prefixes inside others. */
  readonly members: MemberDelta;
  readonly cover: PrefixCover | undefined;
  /** The kind of the kernel's set that `members` is compared with; undefined if the kernel has none. */
  written: SetKind | undefined;
  /** The content is unknown or wrong: flush the set and fill it again. */
  needsRefill: boolean;
  /** When the content was last read, or written as a whole; by `performance.now()`. */
  knownAtMs: number;
}

const NFT_SET_INTERVAL = 4;
const NFT_SET_MAP = 8;
const NFT_SET_TIMEOUT = 16;
/**
 * Sets with more members are not listed. For each part of a list the kernel walks through the set from its beginning:
 * listing 200,000 prefixes takes 4 s of its time, writing them again 0.7 s.
 */
const MOST_LISTED = 10_000;

/** Additional knowledge about the kernel's sets. */
export interface ReadOptions {
  /** True if no other program has written to nftables since the sets were last read or written. */
  readonly isUntouched?: boolean;
  /** How long the content of a set that is too large to list is assumed to be unchanged; 0: forever. */
  readonly trustMs?: number;
}

export class NftSets implements IpSets {
  readonly version: IpVersion;
  readonly #table: TableRef;
  readonly #sets = new Map<SetId, DesiredSet>();
  readonly #dirty = new Set<SetId>();
  /** Names of sets in the kernel that are not desired, or have the wrong type. */
  readonly #surplus = new Set<string>();
  readonly #onRename: (set: SetId) => void;
  /** Rejected by the kernel: not written until they are tried again. */
  readonly #rejected = new Set<SetId>();

  /** @param onRename called if a set will be added, perhaps with another name: the chains that use it must be rewritten */
  constructor(version: IpVersion, table: TableRef, onRename: (set: SetId) => void) {
    this.version = version;
    this.#table = table;
    this.#onRename = onRename;
  }

  get hasChanges(): boolean {
    return this.#dirty.size > 0 || this.#surplus.size > 0;
  }
  get count(): number {
    return this.#sets.size;
  }

  /** The name that rules must use. */
  nameOf(id: SetId): string {
    const set = this.#sets.get(id);
    return set === undefined ? nftSetName(this.version, id) : this.#nameFor(set, kindOf(set));
  }

  replace(id: SetId, memberType: MemberType, members: Iterable<string>): void {
    let set = this.#sets.get(id);
    if (set === undefined || set.memberType !== memberType) {
      if (set?.written !== undefined) this.#surplus.add(this.#nameFor(set, set.written));
      set = this.#create(id, memberType);
    }
    this.#setMembers(set, familyMembers(memberType, this.version, members));
    this.#touch(id);
  }

  change(id: SetId, added: Iterable<string>, removed: Iterable<string>): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    const one = (member: string) => familyMember(set.memberType, this.version, member);
    for (const member of removed) for (const m of one(member)) this.#deleteMember(set, m);
    for (const member of added) for (const m of one(member)) this.#addMember(set, m);
    this.#touch(id);
  }

  remove(id: SetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    this.#sets.delete(id);
    this.#dirty.delete(id);
    this.#rejected.delete(id);
    if (set.written !== undefined) this.#surplus.add(this.#nameFor(set, set.written));
  }

  /** Stops writing the set with this name. Returns undefined if there is none, or it is already marked. */
  markRejected(name: string): SetId | undefined {
    for (const id of this.#sets.keys())
      if (this.nameOf(id) === name && !this.#rejected.has(id)) {
        this.#rejected.add(id);
        this.#dirty.delete(id);
        return id;
      }
    return undefined;
  }

  /** Writes all rejected sets again. */
  clearRejected(): void {
    const ids = [...this.#rejected];
    this.#rejected.clear();
    for (const id of ids) {
      const set = this.#sets.get(id);
      if (set === undefined) continue;
      set.needsRefill = true;
      this.#touch(id);
    }
  }

  /** Records the sets that the kernel has. Elements are read only if a set has the desired type. */
  found(
    dumped: readonly DumpedSet[],
    elementsOf: (name: string) => readonly SetElement[],
    options: ReadOptions = {},
  ): void {
    this.#surplus.clear();
    for (const { name, flags } of dumped) if ((flags & NFT_SET_MAP) === 0) this.#surplus.add(name);
    const byName = new Map(dumped.map((set) => [set.name, set]));
    for (const [id, set] of this.#sets) {
      const kind = kindOf(set);
      const name = this.#nameFor(set, kind);
      const actual = byName.get(name);
      const isUsable = actual !== undefined && this.#isOfKind(actual, kind);
      if (isUsable) {
        this.#surplus.delete(name);
        this.#foundContent(set, kind, () => elementsOf(name), options);
      }
      set.written = isUsable ? kind : undefined;
      this.#touch(id);
      if (isUsable && !set.needsRefill && set.members.isEmpty) this.#dirty.delete(id);
    }
  }

  /** Calls `onRename` for sets that will be added. Must be called before changes are computed. */
  renameUsers(): void {
    for (const id of this.#dirty) {
      const set = this.#sets.get(id);
      if (set !== undefined && set.written !== kindOf(set)) this.#onRename(id);
    }
  }

  changes(): PhasedChanges {
    return {
      // If a set of another kind has the name of a set to add, it is deleted first. Chains that refer to it are flushed.
      release: this.#deletions((name, added) => added.has(name)),
      create: this.#additions(),
      remove: this.#deletions((name, added) => !added.has(name)),
    };
  }

  #additions(): NftChange[] {
    const table = this.#table;
    const changes: NftChange[] = [];
    for (const id of this.#dirty) {
      const set = this.#sets.get(id);
      if (set === undefined) continue;
      const kind = kindOf(set);
      const name = this.#nameFor(set, kind);
      const isNew = set.written !== kind;
      if (isNew) changes.push({ op: "addSet", table, set: name, type: this.#type(kind) });
      if (isNew || set.needsRefill) {
        if (!isNew) changes.push({ op: "flushSet", table, set: name });
        const { size } = set.members.desired;
        // In address order: the kernel inserts them in two thirds of the time.
        const all = () => set.cover?.outermost() ?? set.members.desired;
        if (size > 0) changes.push({ op: "addElements", table, set: name, elements: this.#elements(kind, all, size) });
        continue;
      }
      const { surplus, missing } = set.members;
      const elements = (members: ReadonlySet<string>) => this.#elements(kind, () => members, members.size);
      if (surplus.size > 0) changes.push({ op: "deleteElements", table, set: name, elements: elements(surplus) });
      if (missing.size > 0) changes.push({ op: "addElements", table, set: name, elements: elements(missing) });
    }
    return changes;
  }

  /** Must be called after the changes were committed. */
  committed(): void {
    for (const id of this.#dirty) {
      const set = this.#sets.get(id);
      if (set === undefined) continue;
      const kind = kindOf(set);
      if (set.written !== kind || set.needsRefill) set.knownAtMs = performance.now();
      set.written = kind;
      set.needsRefill = false;
      set.members.written();
    }
    this.#dirty.clear();
    this.#surplus.clear();
  }

  /** Deletions of surplus sets and of sets that are replaced by one of another kind. */
  #deletions(isNow: (name: string, added: ReadonlySet<string>) => boolean): NftChange[] {
    const added = new Set<string>();
    const old = new Set(this.#surplus);
    for (const id of this.#dirty) {
      const set = this.#sets.get(id);
      if (set === undefined || set.written === kindOf(set)) continue;
      added.add(this.#nameFor(set, kindOf(set)));
      if (set.written !== undefined) old.add(this.#nameFor(set, set.written));
    }
    return [...old]
      .filter((name) => isNow(name, added))
      .map((set) => ({ op: "deleteSet", table: this.#table, set }) as const);
  }

  #nameFor({ id, memberType }: DesiredSet, kind: SetKind): string {
    const name = nftSetName(this.version, id);
    return kind === "hosts" && memberType === "net" ? `${name}-hash` : name;
  }

  #create(id: SetId, memberType: MemberType): DesiredSet {
    const members = new MemberDelta();
    const cover =
      memberType === "net"
        ? new PrefixCover(this.version, {
            added: (prefix) => members.add(prefix),
            removed: (prefix) => members.delete(prefix),
          })
        : undefined;
    const set: DesiredSet = {
      ...{ id, memberType, members, cover },
      ...{ written: undefined, needsRefill: false, knownAtMs: Number.NEGATIVE_INFINITY },
    };
    this.#sets.set(id, set);
    return set;
  }

  #touch(id: SetId): void {
    if (!this.#rejected.has(id)) this.#dirty.add(id);
  }

  #setMembers(set: DesiredSet, members: ReadonlySet<string>): void {
    if (set.cover === undefined) return set.members.replace(members);
    for (const member of set.cover) if (!members.has(member)) set.cover.delete(member);
    for (const member of members) set.cover.add(member as Cidr);
  }
  #addMember(set: DesiredSet, member: string): void {
    if (set.cover === undefined) set.members.add(member);
    else set.cover.add(member as Cidr);
  }
  #deleteMember(set: DesiredSet, member: string): void {
    if (set.cover === undefined) set.members.delete(member);
    else set.cover.delete(member as Cidr);
  }

  #type(kind: SetKind): SetType {
    const address = this.version === 4 ? "ipv4_addr" : "ipv6_addr";
    if (kind === "services") return { key: [address, "inet_proto", "inet_service"] };
    return kind === "nets" ? { key: [address], interval: true } : { key: [address] };
  }

  #isOfKind(set: DumpedSet, kind: SetKind): boolean {
    const type = this.#type(kind);
    const hasInterval = (set.flags & NFT_SET_INTERVAL) !== 0;
    const hasTimeout = (set.flags & NFT_SET_TIMEOUT) !== 0; // elements must not expire
    return set.keyType === keyTypeId(type.key) && hasInterval === (type.interval === true) && !hasTimeout;
  }

  /** Elements that are created while they are encoded, so that those of a large set never exist all at once. */
  #elements(kind: SetKind, members: () => Iterable<string>, size: number): ElementList {
    const elementsOf = (member: string) => this.#elementsOf(kind, member);
    return {
      length: size,
      *[Symbol.iterator]() {
        for (const member of members()) yield* elementsOf(member);
      },
    };
  }

  #elementsOf(kind: SetKind, member: string): readonly SetElement[] {
    if (kind === "nets") return prefixElements(member as Cidr);
    if (kind === "hosts")
      return [addressElement((member.includes("/") ? cidrAddress(member as Cidr) : member) as IpAddress)];
    const comma = member.indexOf(",");
    const colon = member.indexOf(":", comma);
    return [
      {
        key: concatenate(
          addressBytes(member.slice(0, comma) as IpAddress),
          Uint8Array.of(protocolNumber(member.slice(comma + 1, colon))),
          serviceBytes(Number(member.slice(colon + 1))),
        ),
      },
    ];
  }

  #foundContent(
    set: DesiredSet,
    kind: SetKind,
    elements: () => readonly SetElement[],
    { isUntouched = false, trustMs = 0 }: ReadOptions,
  ): void {
    if (set.members.desired.size > MOST_LISTED) {
      const ageMs = performance.now() - set.knownAtMs;
      const isTrusted = set.written === kind && (isUntouched || trustMs <= 0 || ageMs < trustMs);
      if (!isTrusted) set.needsRefill = true;
      return;
    }
    this.#compare(set, kind, elements());
    set.knownAtMs = performance.now();
  }

  #compare(set: DesiredSet, kind: SetKind, elements: readonly SetElement[]): void {
    if (kind === "hosts") {
      set.needsRefill = false;
      const text =
        set.memberType === "net"
          ? (key: Uint8Array): string => hostCidr(addressFromBytes(key))
          : (key: Uint8Array): string => addressFromBytes(key);
      set.members.found(new Set(elements.map(({ key }) => text(key))));
      return;
    }
    const desired = new Set<string>();
    for (const member of set.members.desired)
      for (const element of this.#elementsOf(kind, member)) desired.add(elementText(element));
    const actual = new Set<string>();
    for (const element of elements) if (!isLeadingEnd(element)) actual.add(elementText(element));
    const isSame = desired.size === actual.size && [...desired].every((text) => actual.has(text));
    set.needsRefill = !isSame;
    if (isSame) set.members.written();
  }
}

const kindOf = (set: DesiredSet): SetKind => {
  if (set.memberType === "ipAndPort") return "services";
  return set.cover?.hasNets === true ? "nets" : "hosts";
};

const elementText = ({ key, isEnd }: SetElement): string =>
  `${Buffer.from(key).toString("hex")}${isEnd === true ? "e" : ""}`;
/** The nft tool adds an interval end at zero as the first element of interval sets. It has no effect. */
const isLeadingEnd = ({ key, isEnd }: SetElement): boolean => isEnd === true && key.every((byte) => byte === 0);
