// Lists, creates, changes and deletes links (network interfaces) over rtnetlink.
// https://man7.org/linux/man-pages/man7/rtnetlink.7.html
import {
  IFLA_NUM_RX_QUEUES,
  IFLA_NUM_TX_QUEUES,
  type IpipSettings,
  type LinkKind,
  readIpip,
  readVxlan,
  type VxlanSettings,
  writeLinkKind,
} from "./link-kinds.ts";
import { parseMac, formatMac } from "./mac.ts";
import type { NetlinkMessage, NetlinkReader } from "../netlink/netlink-reader.ts";
import type { NetlinkRequest, NetlinkSocket } from "../netlink/netlink-socket.ts";
import { type NetlinkWriter, NLM_F_CREATE, NLM_F_EXCL } from "../netlink/netlink-writer.ts";
import { AF_INET } from "../sys/sys.ts";

export const RTM_NEWLINK = 16;
export const RTM_DELLINK = 17;
export const RTM_GETLINK = 18;
const IFLA_ADDRESS = 1;
const IFLA_IFNAME = 3;
const IFLA_MTU = 4;
const IFLA_LINK = 5;
const IFLA_MASTER = 10;
const IFLA_TXQLEN = 13;
const IFLA_OPERSTATE = 16;
const IFLA_LINKINFO = 18;
const IFLA_IFALIAS = 20;
const IFLA_AF_SPEC = 26;
export const IFLA_GROUP = 27;
const IFLA_NET_NS_FD = 28;
const IFLA_EXT_MASK = 29;
const IFLA_LINK_NETNSID = 37;
const IFLA_INFO_KIND = 1;
const IFLA_INFO_DATA = 2;
const IFLA_INFO_SLAVE_KIND = 4;
const IFLA_INFO_SLAVE_DATA = 5;
const IFLA_BRPORT_MODE = 4;
const IFLA_INET_CONF = 1;
/** IPV4_DEVCONF_* of include/uapi/linux/ip.h. */
const IPV4_DEVCONF = { forwarding: 1, proxyArp: 3, routeLocalnet: 26 } as const;
const RTEXT_FILTER_SKIP_STATS = 8;
const IFF_UP = 0x1;
const IFF_LOOPBACK = 0x8;
const IFF_LOWER_UP = 0x10000;
const HEADER = 16; // ifinfomsg
const OPERSTATES = ["unknown", "notpresent", "down", "lowerlayerdown", "testing", "dormant", "up"] as const;

export interface Link {
  readonly index: number;
  readonly name: string;
  readonly mtu: number;
  /** Administratively up. */
  readonly isUp: boolean;
  /** Up and with a carrier. */
  readonly isRunning: boolean;
  readonly isLoopback: boolean;
  readonly operState: (typeof OPERSTATES)[number];
  readonly mac?: string;
  /** `veth`, `vxlan`, …; undefined for hardware. */
  readonly kind?: string;
  /** Index of the bridge or bond it belongs to. */
  readonly master?: number;
  /** Index of the other end of a pair, or of the underlying device. If `peerNamespaceId` is set, in that namespace. */
  readonly peer?: number;
  readonly peerNamespaceId?: number;
  readonly alias?: string;
  readonly transmitQueueLength?: number;
  readonly vxlan?: VxlanSettings;
  readonly ipip?: IpipSettings;
}

/** Sysctls of net/ipv4/conf that a netlink request can set too, which is faster than one file for each. */
export interface Ipv4LinkSettings {
  readonly forwarding?: boolean;
  readonly proxyArp?: boolean;
  readonly routeLocalnet?: boolean;
}

/** Attributes that can be set on any link. Absent attributes are not changed. */
export interface LinkSettings {
  readonly up?: boolean;
  readonly mtu?: number;
  readonly mac?: string;
  readonly name?: string;
  /** Index of the bridge; 0 removes the link from its bridge. */
  readonly master?: number;
  readonly alias?: string;
  readonly transmitQueueLength?: number;
  readonly ipv4?: Ipv4LinkSettings;
  /** Moves the link to a namespace. This costs an RCU grace period: create the link there instead. */
  readonly namespaceFd?: number;
  /** Lets packets leave through the bridge port on which they arrived. The link must already be a port of a bridge. */
  readonly hairpin?: boolean;
}

export interface NewLink extends Omit<LinkSettings, "hairpin" | "ipv4"> {
  readonly name: string;
  readonly type: LinkKind;
  readonly queues?: number;
}

export interface Links {
  list(): Link[];
  /** Undefined if the link does not exist. */
  get(which: string | number): Link | undefined;
  create(link: NewLink): void;
  set(which: string | number, settings: LinkSettings): void;
  delete(which: string | number): void;
}

export class NetlinkLinks implements Links {
  readonly #socket: NetlinkSocket;
  constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  list(): Link[] {
    const body = (w: NetlinkWriter): void => {
      w.putZero(HEADER);
      w.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    };
    return this.#socket.dump({ operation: "list links", type: RTM_GETLINK, body }, parseLink);
  }

  get(which: string | number): Link | undefined {
    if (typeof which === "string" && !isLinkName(which)) return undefined;
    const body = (w: NetlinkWriter): void => {
      writeTarget(w, which, {});
      w.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    };
    return this.#socket.query({ operation: `get link ${which}`, type: RTM_GETLINK, body }, parseLink, "ENODEV");
  }

  create(link: NewLink): void {
    this.#socket.request(createRequest(link));
    if (link.alias !== undefined) this.set(link.name, { alias: link.alias });
  }
  /** `create` off-thread. The socket must not be used until the promise is settled. */
  createOffThread(link: NewLink): Promise<void> {
    const { name, alias } = link;
    return this.#socket.requestOffThread(
      createRequest(link),
      alias === undefined ? undefined : changeRequest(name, { alias }),
    );
  }

  set(which: string | number, settings: LinkSettings): void {
    this.#socket.request(changeRequest(which, settings));
  }

  delete(which: string | number): void {
    this.#socket.request({
      operation: `delete link ${which}`,
      type: RTM_DELLINK,
      body: (w) => writeTarget(w, which, {}),
    });
  }
}

const changeRequest = (which: string | number, settings: LinkSettings): NetlinkRequest => ({
  operation: `set ${Object.keys(settings).join(", ")} of link ${which}`,
  type: RTM_NEWLINK,
  body: (w) => {
    writeTarget(w, which, settings);
    // In a request with an index, the name is the new name.
    if (settings.name !== undefined) w.string(IFLA_IFNAME, settings.name);
    writeSettings(w, settings);
  },
});

/** Without the alias, which the kernel ignores in a request that creates a link. */
const createRequest = (link: NewLink): NetlinkRequest => ({
  operation: `create ${link.type.kind} link ${link.name}`,
  type: RTM_NEWLINK,
  flags: NLM_F_CREATE | NLM_F_EXCL,
  body: (w) => {
    const { alias: _, ...rest } = link;
    writeNewLink(w, rest);
  },
});

/** The rules of the kernel (`dev_valid_name`): 1 to 15 bytes, no slash, colon or white space, not `.` or `..`. */
export function isLinkName(name: string): boolean {
  return name !== "." && name !== ".." && /^[^\s/:\0]+$/.test(name) && Buffer.byteLength(name) <= 15;
}

export function writeNewLink(w: NetlinkWriter, link: NewLink): void {
  writeHeader(w, 0, link.up);
  w.string(IFLA_IFNAME, link.name);
  writeSettings(w, link);
  if (link.queues !== undefined) {
    w.u32(IFLA_NUM_TX_QUEUES, link.queues);
    w.u32(IFLA_NUM_RX_QUEUES, link.queues);
  }
  w.nest(IFLA_LINKINFO, () => writeLinkKind(w, link.type));
}

function writeHeader(w: NetlinkWriter, index: number, up: boolean | undefined): void {
  w.putZero(4); // family, padding, type
  w.putI32(index);
  w.putU32(up === true ? IFF_UP : 0);
  w.putU32(up === undefined ? 0 : IFF_UP);
}

/** Writes only the attributes that identify a link. */
export const writeLinkTarget = (w: NetlinkWriter, which: string | number): void => writeTarget(w, which, {});

function writeTarget(w: NetlinkWriter, which: string | number, settings: LinkSettings): void {
  writeHeader(w, typeof which === "number" ? which : 0, settings.up);
  if (typeof which === "string") w.string(IFLA_IFNAME, which);
}

function writeSettings(w: NetlinkWriter, settings: LinkSettings): void {
  if (settings.mac !== undefined) w.bytes(IFLA_ADDRESS, parseMac(settings.mac));
  if (settings.mtu !== undefined) w.u32(IFLA_MTU, settings.mtu);
  if (settings.master !== undefined) w.u32(IFLA_MASTER, settings.master);
  if (settings.alias !== undefined) w.string(IFLA_IFALIAS, settings.alias);
  if (settings.transmitQueueLength !== undefined) w.u32(IFLA_TXQLEN, settings.transmitQueueLength);
  if (settings.namespaceFd !== undefined) w.u32(IFLA_NET_NS_FD, settings.namespaceFd);
  const { hairpin, ipv4 } = settings;
  if (ipv4 !== undefined)
    w.nest(IFLA_AF_SPEC, () =>
      w.nest(AF_INET, () =>
        w.nest(IFLA_INET_CONF, () => {
          for (const name of ["forwarding", "proxyArp", "routeLocalnet"] as const)
            if (ipv4[name] !== undefined) w.u32(IPV4_DEVCONF[name], ipv4[name] ? 1 : 0);
        }),
      ),
    );
  if (hairpin !== undefined)
    w.nest(IFLA_LINKINFO, () => {
      w.string(IFLA_INFO_SLAVE_KIND, "bridge");
      w.nest(IFLA_INFO_SLAVE_DATA, () => w.u8(IFLA_BRPORT_MODE, hairpin ? 1 : 0));
    });
}

type Draft = { -readonly [K in keyof Link]: Link[K] };

export function parseLink(message: NetlinkMessage): Link | undefined {
  if (message.type !== RTM_NEWLINK && message.type !== RTM_DELLINK) return undefined;
  const flags = message.u32(8);
  const link: Draft = {
    index: message.i32(4),
    name: "",
    mtu: 0,
    isUp: (flags & IFF_UP) !== 0,
    isRunning: (flags & IFF_LOWER_UP) !== 0,
    isLoopback: (flags & IFF_LOOPBACK) !== 0,
    operState: "unknown",
  };
  const a = message.attributes(HEADER);
  while (a.next())
    switch (a.type) {
      case IFLA_ADDRESS:
        if (a.length === 6) link.mac = formatMac(a.bytes());
        break;
      case IFLA_IFNAME:
        link.name = a.string();
        break;
      case IFLA_MTU:
        link.mtu = a.u32();
        break;
      case IFLA_LINK:
        if (a.u32() !== 0) link.peer = a.u32();
        break;
      case IFLA_LINK_NETNSID:
        link.peerNamespaceId = a.i32();
        break;
      case IFLA_MASTER:
        link.master = a.u32();
        break;
      case IFLA_TXQLEN:
        link.transmitQueueLength = a.u32();
        break;
      case IFLA_OPERSTATE:
        link.operState = OPERSTATES[a.u8()] ?? "unknown";
        break;
      case IFLA_IFALIAS:
        link.alias = a.string();
        break;
      case IFLA_LINKINFO:
        readLinkInfo(a.nested(), link);
        break;
    }
  return link;
}

function readLinkInfo(a: NetlinkReader, link: Draft): void {
  while (a.next())
    if (a.type === IFLA_INFO_KIND) link.kind = a.string();
    else if (a.type === IFLA_INFO_DATA && link.kind === "vxlan") link.vxlan = readVxlan(a.nested());
    else if (a.type === IFLA_INFO_DATA && link.kind === "ipip") link.ipip = readIpip(a.nested());
}
