// Changes and lists IP sets (ipset(8)) over netlink. A list of changes is sent as one datagram and executed in order. Unlike
// nftables, this is not a transaction: after an error, a set must be read again before it is written.
// https://github.com/torvalds/linux/blob/master/include/uapi/linux/netfilter/ipset/ip_set.h
import type { IpVersion } from "../../lib/ip/ip.ts";
import { unreachable } from "../../lib/unreachable.ts";
import { type IpsetType, readMember, writeMember } from "./ipset-member.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import type { NetlinkMessage } from "../netlink/netlink-reader.ts";
import { NETLINK_NETFILTER, NetlinkSocket } from "../netlink/netlink-socket.ts";
import { NLM_F_EXCL, type NetlinkWriter } from "../netlink/netlink-writer.ts";
import { AF_INET, AF_INET6 } from "../sys/sys.ts";

export interface IpsetDefinition {
  readonly name: string;
  readonly type: IpsetType;
  readonly family: IpVersion;
  readonly maxElements: number;
}

export type IpsetChange =
  | { readonly op: "create"; readonly set: IpsetDefinition }
  | { readonly op: "destroy" | "flush"; readonly name: string }
  | { readonly op: "swap"; readonly name: string; readonly with: string }
  | {
      /** Adding an existing member and deleting a missing member are not errors. */
      readonly op: "add" | "delete";
      readonly name: string;
      readonly type: IpsetType;
      readonly members: readonly string[];
    };

export interface ListedIpset {
  readonly name: string;
  /** The type's name. The members of types other than IpsetType are not listed. */
  readonly type: string;
  readonly family: IpVersion;
  readonly maxElements: number;
  readonly timeoutSeconds?: number;
  readonly members: readonly string[];
}

export class IpsetError extends NetlinkError {
  /** @param others further changes that were rejected */
  constructor(
    readonly change: IpsetChange,
    errno: string,
    reason: string | undefined,
    readonly others: readonly IpsetError[] = [],
  ) {
    super(describeIpsetChange(change), errno, reason === undefined ? {} : { message: reason });
  }
}

/** The IP sets of the kernel, or a fake for tests. */
export interface IpsetStore {
  /** @throws IpsetError */
  apply(changes: readonly IpsetChange[]): void;
  names(): string[];
  /** Undefined if the set does not exist. */
  list(name: string): ListedIpset | undefined;
}

const NFNL_SUBSYS_IPSET = 6;
const PROTOCOL_VERSION = 6; // supported since Linux 2.6.39; version 7 has no additions that we use
const CMD = { create: 2, destroy: 3, flush: 4, swap: 6, list: 7, add: 9, delete: 10, type: 13 } as const;
const IPSET_ATTR_PROTOCOL = 1;
const IPSET_ATTR_SETNAME = 2;
const IPSET_ATTR_TYPENAME = 3; // also the second name of a swap
const IPSET_ATTR_REVISION = 4;
const IPSET_ATTR_FAMILY = 5;
const IPSET_ATTR_FLAGS = 6;
const IPSET_ATTR_DATA = 7;
const IPSET_ATTR_ADT = 8;
const IPSET_ATTR_LINENO = 9;
const IPSET_ATTR_REVISION_MIN = 10;
const IPSET_ATTR_TIMEOUT = 6;
const IPSET_ATTR_MAXELEM = 19;
const IPSET_FLAG_LIST_SETNAME = 2;
const NLA_F_NET_BYTEORDER = 0x4000;
const MAX_MEMBER_BYTES = 60_000;
/** Revisions of the set types that every ipset tool of the last ten years can list. */
const KNOWN_REVISION: Readonly<Record<IpsetType, number>> = {
  "hash:ip": 4,
  "hash:net": 6,
  "hash:ip,port": 5,
  "hash:net,port": 7,
};

export class Ipsets implements IpsetStore, Disposable {
  readonly #socket: NetlinkSocket;
  readonly #revisions = new Map<string, number>();

  /** For the calling thread's network namespace. */
  constructor() {
    this.#socket = NetlinkSocket.open(NETLINK_NETFILTER, { timeoutMs: 30_000 });
  }

  apply(changes: readonly IpsetChange[]): void {
    if (changes.length === 0) return;
    this.#queryTypes(changes); // before the batch, because a query would use the same writer
    const w = this.#socket.startBatch();
    const changeOfMessage: IpsetChange[] = [];
    for (const change of changes) {
      const before = w.messages;
      this.#write(w, change);
      for (let i = before; i < w.messages; i++) changeOfMessage.push(change);
    }
    const rejected = this.#socket.sendBatch(w, `change ${changes.length} IP sets`);
    throwIfRejected(
      rejected.flatMap(({ index, errno }) => {
        const change = changeOfMessage[index];
        return change === undefined ? [] : [{ change, errno }];
      }),
    );
  }

  /** Reads the revisions of the set types. If the kernel lacks a type, all sets of that type are rejected. */
  #queryTypes(changes: readonly IpsetChange[]): void {
    const rejected: RejectedChange[] = [];
    for (const change of changes) {
      if (change.op !== "create") continue;
      try {
        this.#revision(change.set);
      } catch (error) {
        if (!(error instanceof NetlinkError)) throw error;
        rejected.push({ change, errno: error.errno });
      }
    }
    throwIfRejected(rejected);
  }

  names(): string[] {
    return this.#socket.dump(
      {
        operation: "list IP sets",
        type: type(CMD.list),
        body: (w) => {
          putHeader(w);
          w.be32(IPSET_ATTR_FLAGS | NLA_F_NET_BYTEORDER, IPSET_FLAG_LIST_SETNAME);
        },
      },
      (message) => {
        const a = message.attributes(4);
        while (a.next()) if (a.type === IPSET_ATTR_SETNAME) return a.string();
        return undefined;
      },
    );
  }

  list(name: string): ListedIpset | undefined {
    let found: { -readonly [K in keyof ListedIpset]: ListedIpset[K] } | undefined;
    const members: string[] = [];
    try {
      this.#socket.dump(
        {
          operation: `list IP set ${name}`,
          type: type(CMD.list),
          body: (w) => {
            putHeader(w);
            w.string(IPSET_ATTR_SETNAME, name);
          },
        },
        (message) => {
          found ??= parseHeader(message);
          if (isKnownType(found.type)) parseMembers(message, found.type, members);
          return undefined;
        },
      );
    } catch (error) {
      if (error instanceof NetlinkError && error.errno === "ENOENT") return undefined;
      throw error;
    }
    return found === undefined ? undefined : { ...found, members };
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }

  #write(w: NetlinkWriter, change: IpsetChange): void {
    const message = (command: number, flags: number, name: string, body: () => void) =>
      w.message(type(command), flags, () => {
        putHeader(w);
        w.string(IPSET_ATTR_SETNAME, name);
        body();
      });
    switch (change.op) {
      case "create": {
        const { set } = change;
        return message(CMD.create, NLM_F_EXCL, set.name, () => {
          w.string(IPSET_ATTR_TYPENAME, set.type);
          w.u8(IPSET_ATTR_REVISION, this.#revision(set));
          w.u8(IPSET_ATTR_FAMILY, set.family === 4 ? AF_INET : AF_INET6);
          const data = w.beginNest(IPSET_ATTR_DATA);
          w.be32(IPSET_ATTR_MAXELEM | NLA_F_NET_BYTEORDER, set.maxElements);
          w.endNest(data);
        });
      }
      case "destroy":
        return message(CMD.destroy, NLM_F_EXCL, change.name, () => {});
      case "flush":
        return message(CMD.flush, 0, change.name, () => {});
      case "swap":
        return message(CMD.swap, 0, change.name, () => w.string(IPSET_ATTR_TYPENAME, change.with));
      case "add":
      case "delete": {
        const { members } = change;
        for (let next = 0; next < members.length; )
          message(CMD[change.op], 0, change.name, () => {
            w.be32(IPSET_ATTR_LINENO | NLA_F_NET_BYTEORDER, next);
            const start = w.length;
            const list = w.beginNest(IPSET_ATTR_ADT);
            for (; next < members.length && w.length - start < MAX_MEMBER_BYTES; next++) {
              const data = w.beginNest(IPSET_ATTR_DATA);
              writeMember(w, change.type, members[next] ?? "");
              w.be32(IPSET_ATTR_LINENO | NLA_F_NET_BYTEORDER, next);
              w.endNest(data);
            }
            w.endNest(list);
          });
        return;
      }
      default:
        return unreachable(change);
    }
  }

  /** Returns the latest revision of the set type that both the kernel and the ipset tools support. */
  #revision(set: IpsetDefinition): number {
    const cacheKey = `${set.type} ${set.family}`;
    const cached = this.#revisions.get(cacheKey);
    if (cached !== undefined) return cached;
    const revision = this.#socket.query(
      {
        operation: `read the revision of IP set type ${set.type}`,
        type: type(CMD.type),
        body: (w) => {
          putHeader(w);
          w.string(IPSET_ATTR_TYPENAME, set.type);
          w.u8(IPSET_ATTR_FAMILY, set.family === 4 ? AF_INET : AF_INET6);
        },
      },
      (reply) => {
        let highest = 0;
        let lowest = 0;
        const a = reply.attributes(4);
        while (a.next()) {
          if (a.type === IPSET_ATTR_REVISION) highest = a.u8();
          else if (a.type === IPSET_ATTR_REVISION_MIN) lowest = a.u8();
        }
        return Math.max(lowest, Math.min(highest, KNOWN_REVISION[set.type]));
      },
    );
    this.#revisions.set(cacheKey, revision ?? 0);
    return revision ?? 0;
  }
}

interface RejectedChange {
  readonly change: IpsetChange;
  readonly errno: string;
}

function throwIfRejected(rejected: readonly RejectedChange[]): void {
  const [first, ...others] = rejected;
  if (first === undefined) return;
  const error = ({ change, errno }: RejectedChange) => new IpsetError(change, errno, REASON[errno]);
  throw new IpsetError(first.change, first.errno, REASON[first.errno], others.map(error));
}

const type = (command: number): number => (NFNL_SUBSYS_IPSET << 8) | command;

function putHeader(w: NetlinkWriter): void {
  w.putU8(AF_INET);
  w.putU8(0);
  w.putU16(0);
  w.u8(IPSET_ATTR_PROTOCOL, PROTOCOL_VERSION);
}

const isKnownType = (name: string): name is IpsetType => name in KNOWN_REVISION;

export function parseHeader(message: NetlinkMessage): ListedIpset {
  const found = { name: "", type: "", family: 4 as IpVersion, maxElements: 0, members: [] };
  let timeoutSeconds: number | undefined;
  const a = message.attributes(4);
  while (a.next()) {
    if (a.type === IPSET_ATTR_SETNAME) found.name = a.string();
    else if (a.type === IPSET_ATTR_TYPENAME) found.type = a.string();
    else if (a.type === IPSET_ATTR_FAMILY) found.family = a.u8() === AF_INET6 ? 6 : 4;
    else if (a.type === IPSET_ATTR_DATA) {
      const data = a.nested();
      while (data.next()) {
        if (data.type === IPSET_ATTR_MAXELEM) found.maxElements = data.be32();
        else if (data.type === IPSET_ATTR_TIMEOUT) timeoutSeconds = data.be32();
      }
    }
  }
  return timeoutSeconds === undefined ? found : { ...found, timeoutSeconds };
}

export function parseMembers(message: NetlinkMessage, setType: IpsetType, into: string[]): void {
  const a = message.attributes(4);
  while (a.next()) {
    if (a.type !== IPSET_ATTR_ADT) continue;
    const list = a.nested();
    while (list.next()) if (list.type === IPSET_ATTR_DATA) into.push(readMember(list.nested(), setType));
  }
}

function describeIpsetChange(change: IpsetChange): string {
  switch (change.op) {
    case "create":
      return `create IP set ${change.set.name} (${change.set.type}, IPv${change.set.family})`;
    case "destroy":
    case "flush":
      return `${change.op} IP set ${change.name}`;
    case "swap":
      return `swap IP sets ${change.name} and ${change.with}`;
    case "add":
    case "delete":
      return `${change.op} ${change.members.length === 1 ? change.members[0] : `${change.members.length} members`} ${
        change.op === "add" ? "to" : "from"
      } IP set ${change.name}`;
    default:
      return unreachable(change);
  }
}

/** Errors of ipset, whose numbers start at 4096 (`enum ipset_errno`). */
const REASON: Readonly<Record<string, string>> = {
  E4097: "protocol mismatch",
  E4098: "the kernel has no such set type",
  E4099: "the maximum number of sets is reached",
  E4100: "the set is used by a rule",
  E4101: "a set with the second name exists",
  E4102: "the sets are of different types",
  E4103: "the member exists already or does not exist",
  E4104: "the prefix length is invalid",
  E4106: "the address family is invalid",
  E4352: "the set is full: raise MaxIpsetSize",
  E4353: "a set cannot contain the unspecified address",
};
