// Lists and deletes connection tracking entries (flows) over ctnetlink, as conntrack(8) does. Flows of an address are
// deleted when the address moves or disappears. The table may contain hundreds of thousands of flows, so it is read in
// slices, and other tasks of the event loop run in between.
import { type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import type { NamespaceHandle } from "../sys/namespace.ts";
import { NetlinkError } from "../sys/kernel-error.ts";
import type { NetlinkMessage, NetlinkReader, RawAttribute } from "../netlink/netlink-reader.ts";
import { NETLINK_NETFILTER, NetlinkSocket } from "../netlink/netlink-socket.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";
import { AF_INET, AF_INET6 } from "../sys/sys.ts";

const SUBSYSTEM = 1 << 8; // NFNL_SUBSYS_CTNETLINK
const IPCTNL_MSG_CT_GET = SUBSYSTEM | 1;
const IPCTNL_MSG_CT_DELETE = SUBSYSTEM | 2;
const CTA_TUPLE_ORIG = 1;
const CTA_TUPLE_REPLY = 2;
const CTA_STATUS = 3;
const CTA_MARK = 8;
const CTA_ID = 12;
const CTA_ZONE = 18;
const CTA_TUPLE_IP = 1;
const CTA_TUPLE_PROTO = 2;
const CTA_IP_V4_SRC = 1;
const CTA_IP_V4_DST = 2;
const CTA_IP_V6_SRC = 3;
const CTA_IP_V6_DST = 4;
const CTA_PROTO_NUM = 1;
const CTA_PROTO_SRC_PORT = 2;
const CTA_PROTO_DST_PORT = 3;
const IPS_SEEN_REPLY = 1 << 1;
const HEADER = 4; // nfgenmsg
const MAX_BATCH = 2048;

export interface FlowTuple {
  readonly source: IpAddress;
  readonly destination: IpAddress;
  readonly protocol: number;
  readonly sourcePort?: number;
  readonly destinationPort?: number;
}

export interface Flow {
  readonly original: FlowTuple;
  readonly reply: FlowTuple;
  readonly mark: number;
  /** Packets in both directions were seen: state "established". */
  readonly isReplied: boolean;
}

/** The attributes by which the kernel identifies a flow, as they were received. */
type FlowIdentity = readonly RawAttribute[];

export interface Conntrack extends Disposable {
  /** @param isWanted filters during the dump, so that other flows need no memory */
  list(version: IpVersion, isWanted?: (flow: Flow) => boolean): Flow[];
  /** Deletes all flows whose source, or source of the reply direction, is one of the addresses. Returns their number. */
  deleteByAddress(addresses: Iterable<IpAddress>): Promise<number>;
}

export function openConntrack(namespace?: NamespaceHandle): Conntrack {
  const open = () => NetlinkSocket.open(NETLINK_NETFILTER, { namespace });
  return new NetlinkConntrack(open(), open());
}

class NetlinkConntrack implements Conntrack {
  readonly #reader: NetlinkSocket;
  /** A second socket, because flows are deleted while the first one reads a dump. */
  readonly #deleter: NetlinkSocket;
  #lastDeletion: Promise<unknown> = Promise.resolve();

  constructor(reader: NetlinkSocket, deleter: NetlinkSocket) {
    this.#reader = reader;
    this.#deleter = deleter;
  }

  list(version: IpVersion, isWanted: (flow: Flow) => boolean = () => true): Flow[] {
    return this.#reader.dump(listRequest(version), (message) => {
      const flow = parseFlow(message);
      return flow !== undefined && isWanted(flow) ? flow : undefined;
    });
  }

  /** Calls are executed sequentially, because a socket can read only one dump at a time. */
  deleteByAddress(addresses: Iterable<IpAddress>): Promise<number> {
    const wanted = new Set(addresses);
    const deletion = this.#lastDeletion.then(() => this.#deleteAll(wanted));
    this.#lastDeletion = deletion.catch(() => {});
    return deletion;
  }

  async #deleteAll(wanted: ReadonlySet<IpAddress>): Promise<number> {
    let count = 0;
    for (const version of new Set([...wanted].map(ipVersion))) {
      let found: FlowIdentity[] = [];
      await this.#reader.dumpInSlices(listRequest(version), (message) => {
        const identity = identityOf(message, wanted);
        if (identity === undefined || found.push(identity) < MAX_BATCH) return;
        count += this.#delete(version, found);
        found = [];
      });
      count += this.#delete(version, found);
    }
    return count;
  }

  #delete(version: IpVersion, flows: readonly FlowIdentity[]): number {
    const w = this.#deleter.startBatch();
    for (const identity of flows)
      w.message(IPCTNL_MSG_CT_DELETE, 0, () => {
        writeHeader(w, version);
        for (const attribute of identity) w.raw(attribute);
      });
    const operation = `delete ${flows.length} flows`;
    const rejected = this.#deleter.sendBatch(w, operation);
    const error = rejected.find(({ errno }) => errno !== "ENOENT"); // ENOENT: the flow has ended meanwhile
    if (error !== undefined) throw new NetlinkError(operation, error.errno, error.extack);
    return flows.length - rejected.length;
  }

  [Symbol.dispose](): void {
    this.#reader[Symbol.dispose]();
    this.#deleter[Symbol.dispose]();
  }
}

const listRequest = (version: IpVersion) => ({
  operation: `list IPv${version} flows`,
  type: IPCTNL_MSG_CT_GET,
  body: (w: NetlinkWriter): void => writeHeader(w, version),
});

function writeHeader(w: NetlinkWriter, version: IpVersion): void {
  w.putU8(version === 4 ? AF_INET : AF_INET6);
  w.putZero(3);
}

export function parseFlow(message: NetlinkMessage): Flow | undefined {
  let original: FlowTuple | undefined;
  let reply: FlowTuple | undefined;
  let mark = 0;
  let status = 0;
  const a = message.attributes(HEADER);
  while (a.next())
    switch (a.type) {
      case CTA_TUPLE_ORIG:
        original = readTuple(a.nested());
        break;
      case CTA_TUPLE_REPLY:
        reply = readTuple(a.nested());
        break;
      case CTA_STATUS:
        status = a.be32();
        break;
      case CTA_MARK:
        mark = a.be32();
        break;
    }
  if (original === undefined || reply === undefined) return undefined;
  return { original, reply, mark, isReplied: (status & IPS_SEEN_REPLY) !== 0 };
}

/** Undefined unless the flow's source, or the source of its reply direction, is one of the addresses. */
function identityOf(message: NetlinkMessage, addresses: ReadonlySet<IpAddress>): FlowIdentity | undefined {
  let isWanted = false;
  const identity: RawAttribute[] = [];
  const a = message.attributes(HEADER);
  while (a.next())
    switch (a.type) {
      case CTA_TUPLE_ORIG:
        identity.push(a.raw());
        isWanted ||= addresses.has(sourceOf(a.nested()));
        break;
      case CTA_TUPLE_REPLY:
        isWanted ||= addresses.has(sourceOf(a.nested()));
        break;
      case CTA_ID: // so that a new flow with the same addresses and ports is not deleted
      case CTA_ZONE:
        identity.push(a.raw());
        break;
    }
  return isWanted ? identity : undefined;
}

function sourceOf(tuple: NetlinkReader): IpAddress {
  while (tuple.next()) {
    if (tuple.type !== CTA_TUPLE_IP) continue;
    const inner = tuple.nested();
    while (inner.next()) if (inner.type === CTA_IP_V4_SRC || inner.type === CTA_IP_V6_SRC) return inner.address();
  }
  return "" as IpAddress;
}

function readTuple(a: NetlinkReader): FlowTuple | undefined {
  let source: IpAddress | undefined;
  let destination: IpAddress | undefined;
  let protocol = 0;
  const ports: { sourcePort?: number; destinationPort?: number } = {};
  while (a.next()) {
    const inner = a.nested();
    if (a.type === CTA_TUPLE_IP)
      while (inner.next())
        if (inner.type === CTA_IP_V4_SRC || inner.type === CTA_IP_V6_SRC) source = inner.address();
        else if (inner.type === CTA_IP_V4_DST || inner.type === CTA_IP_V6_DST) destination = inner.address();
    if (a.type === CTA_TUPLE_PROTO)
      while (inner.next())
        if (inner.type === CTA_PROTO_NUM) protocol = inner.u8();
        else if (inner.type === CTA_PROTO_SRC_PORT) ports.sourcePort = inner.be16();
        else if (inner.type === CTA_PROTO_DST_PORT) ports.destinationPort = inner.be16();
  }
  return source === undefined || destination === undefined ? undefined : { source, destination, protocol, ...ports };
}
