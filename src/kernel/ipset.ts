// IP sets over netlink. A list of changes goes out as one datagram and is done in order; unlike nf_tables it is no
// transaction, so after a failure the set must be read again before it is written.
// <linux/netfilter/ipset/ip_set.h>
import type { IpVersion } from "../lib/ip.ts";
import { unreachable } from "../lib/unreachable.ts";
import { type IpsetType, readMember, writeMember, writeTimeout } from "./ipset-member.ts";
import { NetlinkError } from "./netlink-error.ts";
import type { NetlinkMessage } from "./netlink-reader.ts";
import { NETLINK_NETFILTER, NetlinkSocket } from "./netlink-socket.ts";
import { NLM_F_EXCL, type NetlinkWriter } from "./netlink-writer.ts";
import { AF_INET, AF_INET6 } from "./sys.ts";

export interface IpsetDefinition {
  readonly name: string;
  readonly type: IpsetType;
  readonly family: IpVersion;
  readonly maxElements: number;
  /** Members may expire; 0 gives them no time of their own. */
  readonly timeoutSeconds?: number;
}

export type IpsetChange =
  | { readonly op: "create"; readonly set: IpsetDefinition }
  | { readonly op: "destroy" | "flush"; readonly name: string }
  | { readonly op: "swap"; readonly name: string; readonly with: string }
  | {
      /** Adding what is there and deleting what is not are fine. */
      readonly op: "add" | "delete";
      readonly name: string;
      readonly type: IpsetType;
      readonly members: readonly string[];
      readonly timeoutSeconds?: number;
    };

export interface ListedIpset {
  readonly name: string;
  /** The kernel's word for the type; one we do not write has no members here. */
  readonly type: string;
  readonly family: IpVersion;
  readonly maxElements: number;
  readonly timeoutSeconds?: number;
  /** How many rules use it. */
  readonly references: number;
  readonly members: readonly string[];
}

export class IpsetError extends NetlinkError {
  /** @param others changes that were refused with this one */
  constructor(
    readonly change: IpsetChange,
    errno: string,
    reason: string | undefined,
    readonly others: readonly IpsetError[] = [],
  ) {
    super(describeIpsetChange(change), errno, reason === undefined ? {} : { message: reason });
  }
}

/** What the rooms above need of IP sets. */
export interface IpsetStore {
  apply(changes: readonly IpsetChange[]): void;
  names(): string[];
  /** Nothing when there is no set of that name. */
  list(name: string): ListedIpset | undefined;
}

const NFNL_SUBSYS_IPSET = 6;
const PROTOCOL_VERSION = 6; // what every kernel since 2.6.39 takes; 7 adds nothing we use
const CMD = { create: 2, destroy: 3, flush: 4, swap: 6, list: 7, add: 9, delete: 10, type: 13 } as const;
const IPSET_ATTR_PROTOCOL = 1;
const IPSET_ATTR_SETNAME = 2;
const IPSET_ATTR_TYPENAME = 3; // and the second name of a swap
const IPSET_ATTR_REVISION = 4;
const IPSET_ATTR_FAMILY = 5;
const IPSET_ATTR_FLAGS = 6;
const IPSET_ATTR_DATA = 7;
const IPSET_ATTR_ADT = 8;
const IPSET_ATTR_LINENO = 9;
const IPSET_ATTR_REVISION_MIN = 10;
const IPSET_ATTR_TIMEOUT = 6;
const IPSET_ATTR_MAXELEM = 19;
const IPSET_ATTR_REFERENCES = 25;
const IPSET_FLAG_LIST_SETNAME = 2;
const NLA_F_NET_BYTEORDER = 0x4000;
const MAX_MEMBER_BYTES = 60_000;
/** Revisions that every ipset tool of the last decade can list. */
const KNOWN_REVISION: Readonly<Record<IpsetType, number>> = {
  "hash:ip": 4,
  "hash:net": 6,
  "hash:ip,port": 5,
  "hash:net,port": 7,
};

export class Ipsets implements IpsetStore, Disposable {
  readonly #socket: NetlinkSocket;
  readonly #revisions = new Map<string, number>();

  /** Opens in the calling thread's network namespace, where it stays for good. */
  constructor() {
    this.#socket = NetlinkSocket.open(NETLINK_NETFILTER, { timeoutMs: 30_000 });
  }

  apply(changes: readonly IpsetChange[]): void {
    if (changes.length === 0) return;
    this.#askForTypes(changes); // its answer must not lie inside the batch
    const w = this.#socket.batch();
    const changeOfMessage: IpsetChange[] = [];
    for (const change of changes) {
      const before = w.messages;
      this.#write(w, change);
      for (let i = before; i < w.messages; i++) changeOfMessage.push(change);
    }
    const faults = this.#socket.sendBatch(w, `change ${changes.length} IP sets`);
    throwAll(
      faults.flatMap(({ index, errno }) => {
        const change = changeOfMessage[index];
        return change === undefined ? [] : [{ change, errno }];
      }),
    );
  }

  /** A type the kernel does not have is the fault of every set of it. */
  #askForTypes(changes: readonly IpsetChange[]): void {
    const faults: IpsetFault[] = [];
    for (const change of changes) {
      if (change.op !== "create") continue;
      try {
        this.#revision(change.set);
      } catch (error) {
        if (!(error instanceof NetlinkError)) throw error;
        faults.push({ change, errno: error.errno });
      }
    }
    throwAll(faults);
  }

  names(): string[] {
    return this.#socket.dump(
      {
        what: "list IP sets",
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
          what: `list IP set ${name}`,
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
          if (set.timeoutSeconds !== undefined) writeTimeout(w, set.timeoutSeconds);
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
              if (change.timeoutSeconds !== undefined) writeTimeout(w, change.timeoutSeconds);
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

  /** The revision of the set type to ask for: a new one where the kernel has it, but none a tool could not list. */
  #revision(set: IpsetDefinition): number {
    const cacheKey = `${set.type} ${set.family}`;
    const cached = this.#revisions.get(cacheKey);
    if (cached !== undefined) return cached;
    const revision = this.#socket.query(
      {
        what: `ask for IP set type ${set.type}`,
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

interface IpsetFault {
  readonly change: IpsetChange;
  readonly errno: string;
}

function throwAll(faults: readonly IpsetFault[]): void {
  const [first, ...others] = faults;
  if (first === undefined) return;
  const error = ({ change, errno }: IpsetFault) => new IpsetError(change, errno, REASON[errno]);
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
  const found = { name: "", type: "", family: 4 as IpVersion, maxElements: 0, references: 0, members: [] };
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
        else if (data.type === IPSET_ATTR_REFERENCES) found.references = data.be32();
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
    while (list.next()) if (list.type === IPSET_ATTR_DATA) into.push(readMember(list.nested(), setType).member);
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

/** ipset's own errors lie above the system's; those a reader can act on. */
const REASON: Readonly<Record<string, string>> = {
  E4097: "protocol mismatch",
  E4098: "the kernel has no such set type",
  E4099: "no more sets are possible",
  E4100: "the set is used by a rule",
  E4101: "a set of the second name exists",
  E4102: "the sets are of different types",
  E4103: "the member is or is not there",
  E4104: "the prefix length is wrong",
  E4106: "the family is wrong",
  E4352: "the set is full: raise MaxIpsetSize",
  E4353: "a set cannot hold the address of zeros",
};
