// Lists and changes neighbour entries (ip-neighbour(8)), proxy entries, and the forwarding database of bridges and VXLAN
// devices (FDB, bridge(8)). All three use the same rtnetlink messages.
import { type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { parseMac, formatMac } from "./mac.ts";
import type { NetlinkMessage } from "../netlink/netlink-reader.ts";
import type { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { type NetlinkWriter, NLM_F_APPEND, NLM_F_CREATE, NLM_F_REPLACE } from "../netlink/netlink-writer.ts";
import { AF_BRIDGE, AF_INET, AF_INET6 } from "../sys/sys.ts";

export const RTM_NEWNEIGH = 28;
export const RTM_DELNEIGH = 29;
const RTM_GETNEIGH = 30;
const NDA_DST = 1;
const NDA_LLADDR = 2;
const NDA_IFINDEX = 8;
const NDA_PORT = 6;
const NDA_VNI = 7;
const NDA_MASTER = 9;
const NTF_SELF = 0x02;
const NTF_MASTER = 0x04;
const NTF_PROXY = 0x08;
const HEADER = 12; // ndmsg
const STATES = {
  incomplete: 0x01,
  reachable: 0x02,
  stale: 0x04,
  delay: 0x08,
  probe: 0x10,
  failed: 0x20,
  noarp: 0x40,
  permanent: 0x80,
} as const;
export type NeighbourState = keyof typeof STATES | "none";

export interface Neighbour {
  readonly link: number;
  readonly address: IpAddress;
  readonly mac?: string;
  readonly state: NeighbourState;
}

/** The kernel responds to ARP or neighbour discovery for this address on the link. */
export interface ProxyNeighbour {
  readonly link: number;
  readonly address: IpAddress;
}

/** Where frames for a MAC address are sent. */
export interface FdbEntry {
  readonly link: number;
  readonly mac: string;
  /** VXLAN: the address of the remote tunnel end. */
  readonly destination?: IpAddress;
  readonly isPermanent: boolean;
  /** True if the entry belongs to the bridge of the link, not to the link itself. */
  readonly ofMaster?: boolean;
}

export interface Neighbours {
  list(filter: { readonly version: IpVersion; readonly link?: number }): Neighbour[];
  /** Adds or replaces an entry, which is permanent by default. */
  set(neighbour: Omit<Neighbour, "state"> & { readonly state?: NeighbourState }): void;
  delete(neighbour: Pick<Neighbour, "link" | "address">): void;
  listProxies(version: IpVersion): ProxyNeighbour[];
  addProxy(proxy: ProxyNeighbour): void;
  deleteProxy(proxy: ProxyNeighbour): void;
  listFdb(link: number): FdbEntry[];
  /** Adds an entry, or replaces the one with the same MAC. */
  setFdb(entry: Omit<FdbEntry, "isPermanent">): void;
  /** Adds a destination for a MAC that may have others. VXLAN sends frames to all of them. */
  appendFdb(entry: Omit<FdbEntry, "isPermanent">): void;
  deleteFdb(entry: Omit<FdbEntry, "isPermanent">): void;
}

export class NetlinkNeighbours implements Neighbours {
  readonly #socket: NetlinkSocket;
  constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  list(filter: { readonly version: IpVersion; readonly link?: number }): Neighbour[] {
    const body = (w: NetlinkWriter): void => {
      writeHeader(w, { family: familyOf(filter.version), link: 0, state: 0, flags: 0 });
      if (filter.link !== undefined) w.u32(NDA_IFINDEX, filter.link);
    };
    return this.#socket.dump(
      { operation: `list IPv${filter.version} neighbours`, type: RTM_GETNEIGH, body },
      (message) => {
        const neighbour = parseNeighbour(message);
        return filter.link === undefined || neighbour?.link === filter.link ? neighbour : undefined;
      },
    );
  }

  set(neighbour: Omit<Neighbour, "state"> & { readonly state?: NeighbourState }): void {
    const state = neighbour.state ?? "permanent";
    this.#socket.request({
      operation: `set neighbour ${neighbour.address} on link ${neighbour.link}`,
      type: RTM_NEWNEIGH,
      flags: NLM_F_CREATE | NLM_F_REPLACE,
      body: (w) => {
        const family = familyOf(ipVersion(neighbour.address));
        writeHeader(w, { family, link: neighbour.link, state: state === "none" ? 0 : STATES[state], flags: 0 });
        w.address(NDA_DST, neighbour.address);
        if (neighbour.mac !== undefined) w.bytes(NDA_LLADDR, parseMac(neighbour.mac));
      },
    });
  }

  delete(neighbour: Pick<Neighbour, "link" | "address">): void {
    this.#requestByAddress("delete neighbour", RTM_DELNEIGH, 0, neighbour, 0);
  }

  listProxies(version: IpVersion): ProxyNeighbour[] {
    const body = (w: NetlinkWriter): void =>
      writeHeader(w, { family: familyOf(version), link: 0, state: 0, flags: NTF_PROXY });
    return this.#socket.dump({ operation: `list IPv${version} proxies`, type: RTM_GETNEIGH, body }, (message) => {
      const address = addressOf(message);
      if ((message.u8(10) & NTF_PROXY) === 0 || address === undefined) return undefined;
      return { link: message.i32(4), address };
    });
  }
  addProxy(proxy: ProxyNeighbour): void {
    this.#requestByAddress("add proxy for", RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, proxy, NTF_PROXY);
  }
  deleteProxy(proxy: ProxyNeighbour): void {
    this.#requestByAddress("delete proxy for", RTM_DELNEIGH, 0, proxy, NTF_PROXY);
  }

  listFdb(link: number): FdbEntry[] {
    const body = (w: NetlinkWriter): void => {
      writeHeader(w, { family: AF_BRIDGE, link, state: 0, flags: 0 });
    };
    return this.#socket.dump({ operation: `list FDB of link ${link}`, type: RTM_GETNEIGH, body }, (m) => {
      const entry = parseFdbEntry(m);
      return entry?.link === link ? entry : undefined;
    });
  }
  setFdb(entry: Omit<FdbEntry, "isPermanent">): void {
    this.#requestFdb("set", RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_REPLACE, entry);
  }
  appendFdb(entry: Omit<FdbEntry, "isPermanent">): void {
    this.#requestFdb("append", RTM_NEWNEIGH, NLM_F_CREATE | NLM_F_APPEND, entry);
  }
  deleteFdb(entry: Omit<FdbEntry, "isPermanent">): void {
    this.#requestFdb("delete", RTM_DELNEIGH, 0, entry);
  }

  #requestByAddress(verb: string, type: number, flags: number, key: ProxyNeighbour, entryFlags: number): void {
    this.#socket.request({
      operation: `${verb} ${key.address} on link ${key.link}`,
      type,
      flags,
      body: (w) => {
        writeHeader(w, { family: familyOf(ipVersion(key.address)), link: key.link, state: 0, flags: entryFlags });
        w.address(NDA_DST, key.address);
      },
    });
  }

  #requestFdb(verb: string, type: number, flags: number, entry: Omit<FdbEntry, "isPermanent">): void {
    const to = entry.destination === undefined ? "" : ` to ${entry.destination}`;
    this.#socket.request({
      operation: `${verb} FDB entry ${entry.mac}${to} on link ${entry.link}`,
      type,
      flags,
      body: (w) => {
        const where = entry.ofMaster === true ? NTF_MASTER : NTF_SELF;
        writeHeader(w, { family: AF_BRIDGE, link: entry.link, state: STATES.permanent, flags: where });
        w.bytes(NDA_LLADDR, parseMac(entry.mac));
        if (entry.destination !== undefined) w.address(NDA_DST, entry.destination);
      },
    });
  }
}

const familyOf = (version: IpVersion): number => (version === 4 ? AF_INET : AF_INET6);

function writeHeader(
  w: NetlinkWriter,
  fields: { readonly family: number; readonly link: number; readonly state: number; readonly flags: number },
): void {
  w.putU8(fields.family);
  w.putZero(3);
  w.putI32(fields.link);
  w.putU16(fields.state);
  w.putU8(fields.flags);
  w.putU8(0);
}

function addressOf(message: NetlinkMessage): IpAddress | undefined {
  const a = message.attributes(HEADER);
  while (a.next()) if (a.type === NDA_DST) return a.address();
  return undefined;
}

export function parseNeighbour(message: NetlinkMessage): Neighbour | undefined {
  const family = message.u8(0);
  if ((family !== AF_INET && family !== AF_INET6) || (message.u8(10) & NTF_PROXY) !== 0) return undefined;
  let address: IpAddress | undefined;
  let mac: string | undefined;
  const a = message.attributes(HEADER);
  while (a.next())
    if (a.type === NDA_DST) address = a.address();
    else if (a.type === NDA_LLADDR && a.length === 6) mac = formatMac(a.bytes());
  if (address === undefined) return undefined;
  return { link: message.i32(4), address, mac, state: stateOf(message.u16(8)) };
}

export function parseFdbEntry(message: NetlinkMessage): FdbEntry | undefined {
  if (message.u8(0) !== AF_BRIDGE) return undefined;
  let mac: string | undefined;
  let destination: IpAddress | undefined;
  let isOfMaster = false;
  const a = message.attributes(HEADER);
  while (a.next())
    switch (a.type) {
      case NDA_LLADDR:
        if (a.length === 6) mac = formatMac(a.bytes());
        break;
      case NDA_DST:
        destination = a.address();
        break;
      case NDA_MASTER:
        isOfMaster = true;
        break;
      case NDA_PORT:
      case NDA_VNI:
        break; // the same as those of the device
    }
  if (mac === undefined) return undefined;
  return {
    link: message.i32(4),
    mac,
    destination,
    isPermanent: (message.u16(8) & STATES.permanent) !== 0,
    ...(isOfMaster ? { ofMaster: true } : {}),
  };
}

function stateOf(bits: number): NeighbourState {
  for (const [name, bit] of Object.entries(STATES)) if ((bits & bit) !== 0) return name as keyof typeof STATES;
  return "none";
}
