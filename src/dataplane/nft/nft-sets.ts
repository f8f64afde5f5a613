// Sets of addresses of one family in nftables. A set of single addresses is a hash; one that holds a prefix is a set of
// intervals, which costs more for every change. Which it is follows from its members alone, so it may have to be made
// anew when the first prefix comes or the last one goes: the chains that name it are then rewritten with it, in the same
// transaction.
import {
  addressElement,
  concatenate,
  type DumpedElement,
  type DumpedSet,
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
} from "../../lib/ip.ts";
import { MemberDelta } from "../rules/member-delta.ts";
import type { IpSets, MemberType } from "../rules/layer-table.ts";
import { protocolNumber, type SetId } from "../rules/rule.ts";
import { familyMember, familyMembers } from "../rules/set-members.ts";
import { PrefixCover } from "./prefix-cover.ts";
import { nftSetName } from "./render.ts";

type SetKind = "hosts" | "nets" | "services";

interface OurSet {
  readonly name: string;
  readonly memberType: MemberType;
  /** Members the kernel's set shall hold: all, without prefixes inside others. */
  readonly members: MemberDelta;
  readonly cover: PrefixCover | undefined;
  /** What kind of set the kernel has; nothing when it has none, or one of another make. */
  written: SetKind | undefined;
  /** The kernel has a set of the name. */
  isPresent: boolean;
  /** Content unknown or wrong: empty it and fill it again. */
  needsRefill: boolean;
}

const NFT_SET_INTERVAL = 4;
const NFT_SET_MAP = 8;
const NFT_SET_TIMEOUT = 16;

export class NftSets implements IpSets {
  readonly version: IpVersion;
  readonly #table: TableRef;
  readonly #sets = new Map<SetId, OurSet>();
  readonly #dirty = new Set<SetId>();
  /** Names in the kernel that nobody wants. */
  readonly #surplus = new Set<string>();
  readonly #onRemake: (set: SetId) => void;
  /** Refused by the kernel: left as they are there until they are tried again. */
  readonly #aside = new Set<SetId>();

  /** @param onRemake the set is about to be made anew: chains that name it must be rewritten in the same round */
  constructor(version: IpVersion, table: TableRef, onRemake: (set: SetId) => void) {
    this.version = version;
    this.#table = table;
    this.#onRemake = onRemake;
  }

  get hasChanges(): boolean {
    return this.#dirty.size > 0 || this.#surplus.size > 0;
  }
  get count(): number {
    return this.#sets.size;
  }

  replace(id: SetId, memberType: MemberType, members: Iterable<string>): void {
    let set = this.#sets.get(id);
    if (set === undefined || set.memberType !== memberType) {
      const before = set;
      set = this.#create(id, memberType);
      if (before !== undefined) set.isPresent = before.isPresent;
    }
    this.#setMembers(set, familyMembers(memberType, this.version, members));
    this.#touch(id, set);
  }

  change(id: SetId, added: Iterable<string>, removed: Iterable<string>): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    const one = (member: string) => familyMember(set.memberType, this.version, member);
    for (const member of removed) for (const m of one(member)) this.#deleteMember(set, m);
    for (const member of added) for (const m of one(member)) this.#addMember(set, m);
    this.#touch(id, set);
  }

  remove(id: SetId): void {
    const set = this.#sets.get(id);
    if (set === undefined) return;
    this.#sets.delete(id);
    this.#dirty.delete(id);
    this.#aside.delete(id);
    if (set.isPresent) this.#surplus.add(set.name);
  }

  /** The set of this name is not written for now; nothing when there is none, or it is aside already. */
  setAside(name: string): SetId | undefined {
    for (const [id, set] of this.#sets)
      if (set.name === name && !this.#aside.has(id)) {
        this.#aside.add(id);
        this.#dirty.delete(id);
        return id;
      }
    return undefined;
  }

  takeBack(): void {
    const ids = [...this.#aside];
    this.#aside.clear();
    for (const id of ids) {
      const set = this.#sets.get(id);
      if (set === undefined) continue;
      set.needsRefill = true;
      this.#touch(id, set);
    }
  }

  /** The kernel's sets, as they were found. Elements are read only for sets that could be ours. */
  found(dumped: readonly DumpedSet[], elementsOf: (name: string) => readonly DumpedElement[]): void {
    const byName = new Map(dumped.map((set) => [set.name, set]));
    const wanted = new Set<string>();
    this.#surplus.clear();
    for (const [id, set] of this.#sets) {
      wanted.add(set.name);
      const actual = byName.get(set.name);
      const kind = actual === undefined ? undefined : this.#kindOf(actual);
      set.isPresent = actual !== undefined;
      set.written = kind === kindOf(set) ? kind : undefined;
      if (set.written !== undefined) this.#compare(set, elementsOf(set.name));
      this.#touch(id, set);
      if (set.written !== undefined && !set.needsRefill && set.members.isEmpty) this.#dirty.delete(id);
    }
    for (const { name, flags } of dumped) if ((flags & NFT_SET_MAP) === 0 && !wanted.has(name)) this.#surplus.add(name);
  }

  /** The table is gone with everything in it. */
  lost(): void {
    this.#surplus.clear();
    for (const [id, set] of this.#sets) {
      set.isPresent = false;
      set.written = undefined;
      this.#touch(id, set);
    }
  }

  /** Sets that must go before others of their name are made; chains that name them have been emptied. */
  deletionsBefore(): NftChange[] {
    const changes: NftChange[] = [];
    for (const id of this.#dirty) {
      const set = this.#sets.get(id);
      if (set?.isPresent === true && set.written !== kindOf(set))
        changes.push({ op: "deleteSet", table: this.#table, set: set.name });
    }
    return changes;
  }

  changes(): NftChange[] {
    const table = this.#table;
    const changes: NftChange[] = [];
    for (const id of this.#dirty) {
      const set = this.#sets.get(id);
      if (set === undefined) continue;
      const kind = kindOf(set);
      const elements = (members: Iterable<string>) => [...members].flatMap((member) => this.#elements(kind, member));
      const isNew = set.written !== kind;
      if (isNew) changes.push({ op: "addSet", table, set: set.name, type: this.#type(kind) });
      if (isNew || set.needsRefill) {
        if (!isNew) changes.push({ op: "flushSet", table, set: set.name });
        if (set.members.wanted.size > 0)
          changes.push({
            op: "addElements",
            table,
            set: set.name,
            // Made when they are encoded, so that not all sets' elements are there at once.
            get elements() {
              return elements(set.members.wanted);
            },
          });
        continue;
      }
      const { surplus, missing } = set.members;
      if (surplus.size > 0) changes.push({ op: "deleteElements", table, set: set.name, elements: elements(surplus) });
      if (missing.size > 0) changes.push({ op: "addElements", table, set: set.name, elements: elements(missing) });
    }
    return changes;
  }

  deletionsAfter(): NftChange[] {
    return [...this.#surplus].map((set) => ({ op: "deleteSet", table: this.#table, set }));
  }

  /** The transaction went through. */
  committed(): void {
    for (const id of this.#dirty) {
      const set = this.#sets.get(id);
      if (set === undefined) continue;
      set.isPresent = true;
      set.written = kindOf(set);
      set.needsRefill = false;
      set.members.written();
    }
    this.#dirty.clear();
    this.#surplus.clear();
  }

  #create(id: SetId, memberType: MemberType): OurSet {
    const members = new MemberDelta();
    const cover =
      memberType === "net"
        ? new PrefixCover(this.version, (prefix, isOutermost) =>
            isOutermost ? members.add(prefix) : members.delete(prefix),
          )
        : undefined;
    const name = nftSetName(this.version, id);
    const isPresent = this.#surplus.delete(name);
    const set: OurSet = { name, memberType, members, cover, written: undefined, isPresent, needsRefill: false };
    this.#sets.set(id, set);
    return set;
  }

  #touch(id: SetId, set: OurSet): void {
    if (this.#aside.has(id)) return;
    this.#dirty.add(id);
    if (set.isPresent && set.written !== kindOf(set)) this.#onRemake(id);
  }

  #setMembers(set: OurSet, members: ReadonlySet<string>): void {
    if (set.cover === undefined) return set.members.replace(members);
    for (const member of set.cover) if (!members.has(member)) set.cover.delete(member);
    for (const member of members) set.cover.add(member as Cidr);
  }
  #addMember(set: OurSet, member: string): void {
    if (set.cover === undefined) set.members.add(member);
    else set.cover.add(member as Cidr);
  }
  #deleteMember(set: OurSet, member: string): void {
    if (set.cover === undefined) set.members.delete(member);
    else set.cover.delete(member as Cidr);
  }

  #type(kind: SetKind): SetType {
    const address = this.version === 4 ? "ipv4_addr" : "ipv6_addr";
    if (kind === "services") return { key: [address, "inet_proto", "inet_service"] };
    return kind === "nets" ? { key: [address], interval: true } : { key: [address] };
  }

  #kindOf(set: DumpedSet): SetKind | undefined {
    if ((set.flags & NFT_SET_TIMEOUT) !== 0) return undefined; // what we write stays
    for (const kind of ["hosts", "nets", "services"] as const) {
      const type = this.#type(kind);
      const hasInterval = (set.flags & NFT_SET_INTERVAL) !== 0;
      if (set.keyType === keyTypeId(type.key) && hasInterval === (type.interval === true)) return kind;
    }
    return undefined;
  }

  #elements(kind: SetKind, member: string): readonly SetElement[] {
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

  #compare(set: OurSet, elements: readonly DumpedElement[]): void {
    const kind = kindOf(set);
    if (kind === "hosts") {
      const text =
        set.memberType === "net"
          ? (key: Uint8Array): string => hostCidr(addressFromBytes(key))
          : (key: Uint8Array): string => addressFromBytes(key);
      set.members.found(new Set(elements.map(({ key }) => text(key))));
      return;
    }
    const wanted = new Set<string>();
    for (const member of set.members.wanted)
      for (const element of this.#elements(kind, member)) wanted.add(elementText(element));
    const actual = new Set<string>();
    for (const element of elements) if (!isLeadingEnd(element)) actual.add(elementText(element));
    const isSame = wanted.size === actual.size && [...wanted].every((text) => actual.has(text));
    set.needsRefill = !isSame;
    if (isSame) set.members.written();
  }
}

const kindOf = (set: OurSet): SetKind => {
  if (set.memberType === "ipAndPort") return "services";
  return set.cover?.hasNets === true ? "nets" : "hosts";
};

const elementText = ({ key, isEnd }: SetElement): string =>
  `${Buffer.from(key).toString("hex")}${isEnd === true ? "e" : ""}`;
/** nft itself begins a set of intervals with an end at zero; it means nothing. */
const isLeadingEnd = ({ key, isEnd }: SetElement): boolean => isEnd === true && key.every((byte) => byte === 0);
