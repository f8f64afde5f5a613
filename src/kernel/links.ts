// Network interfaces over rtnetlink: list, create, change, delete. https://man7.org/linux/man-pages/man7/rtnetlink.7.html
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
import { macBytes, macText } from "./mac.ts";
import type { NetlinkMessage, NetlinkReader } from "./netlink-reader.ts";
import type { NetlinkRequest, NetlinkSocket } from "./netlink-socket.ts";
import { type NetlinkWriter, NLM_F_CREATE, NLM_F_EXCL } from "./netlink-writer.ts";
import { AF_INET } from "./sys.ts";

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
/** Of linux/ip.h. */
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
  /** `veth`, `vxlan`, …; none for hardware. */
  readonly kind?: string;
  /** Index of the bridge or bond it belongs to. */
  readonly master?: number;
  /** Index of the peer or lower device, in the namespace named by `peerNamespaceId` when it is another. */
  readonly peer?: number;
  readonly peerNamespaceId?: number;
  readonly alias?: string;
  readonly transmitQueueLength?: number;
  readonly vxlan?: VxlanSettings;
  readonly ipip?: IpipSettings;
}

/** Settings of net/ipv4/conf that netlink can set too, for less than a file each and without waiting in turns. */
export interface Ipv4LinkSettings {
  readonly forwarding?: boolean;
  readonly proxyArp?: boolean;
  readonly routeLocalnet?: boolean;
}

/** What can be set on any link; absent means as it is. */
export interface LinkSettings {
  readonly up?: boolean;
  readonly mtu?: number;
  readonly mac?: string;
  readonly name?: string;
  /** Index of the bridge; 0 takes it out. */
  readonly master?: number;
  readonly alias?: string;
  readonly transmitQueueLength?: number;
  readonly ipv4?: Ipv4LinkSettings;
  /** Moves it. Slow (a grace period): create it where it belongs instead. */
  readonly namespaceFd?: number;
  /** Packets may leave a bridge port by the way they came. Not together with `master`: it must be a port already. */
  readonly hairpin?: boolean;
}

export interface NewLink extends Omit<LinkSettings, "hairpin" | "ipv4"> {
  readonly name: string;
  readonly type: LinkKind;
  readonly queues?: number;
}

export interface Links {
  list(): Link[];
  /** By name or index; nothing when there is none. */
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
    return this.#socket.dump({ what: "list links", type: RTM_GETLINK, body }, parseLink);
  }

  get(which: string | number): Link | undefined {
    if (typeof which === "string" && !isLinkName(which)) return undefined;
    const body = (w: NetlinkWriter): void => {
      writeTarget(w, which, {});
      w.u32(IFLA_EXT_MASK, RTEXT_FILTER_SKIP_STATS);
    };
    return this.#socket.query({ what: `get link ${which}`, type: RTM_GETLINK, body }, parseLink, "ENODEV");
  }

  create(link: NewLink): void {
    this.#socket.request(creation(link));
    if (link.alias !== undefined) this.set(link.name, { alias: link.alias });
  }
  /** The same while this thread goes on; the socket may not be used until it is done. */
  createAside(link: NewLink): Promise<void> {
    const { name, alias } = link;
    return this.#socket.requestAside(creation(link), alias === undefined ? undefined : change(name, { alias }));
  }

  set(which: string | number, settings: LinkSettings): void {
    this.#socket.request(change(which, settings));
  }

  delete(which: string | number): void {
    this.#socket.request({
      what: `delete link ${which}`,
      type: RTM_DELLINK,
      body: (w) => writeTarget(w, which, {}),
    });
  }
}

const change = (which: string | number, settings: LinkSettings): NetlinkRequest => ({
  what: `set ${Object.keys(settings).join(", ")} of link ${which}`,
  type: RTM_NEWLINK,
  body: (w) => {
    writeTarget(w, which, settings);
    // Together with an index the name is the new one.
    if (settings.name !== undefined) w.string(IFLA_IFNAME, settings.name);
    writeSettings(w, settings);
  },
});

/** Without the alias: the kernel takes none for a link that is only being made. */
const creation = (link: NewLink): NetlinkRequest => ({
  what: `create ${link.type.kind} link ${link.name}`,
  type: RTM_NEWLINK,
  flags: NLM_F_CREATE | NLM_F_EXCL,
  body: (w) => {
    const { alias: _, ...rest } = link;
    writeNewLink(w, rest);
  },
});

/** What the kernel accepts: 1 to 15 bytes, no slash, colon or white space. */
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

/** Names a link and says nothing else about it. */
export const writeLinkTarget = (w: NetlinkWriter, which: string | number): void => writeTarget(w, which, {});

function writeTarget(w: NetlinkWriter, which: string | number, settings: LinkSettings): void {
  writeHeader(w, typeof which === "number" ? which : 0, settings.up);
  if (typeof which === "string") w.string(IFLA_IFNAME, which);
}

function writeSettings(w: NetlinkWriter, settings: LinkSettings): void {
  if (settings.mac !== undefined) w.bytes(IFLA_ADDRESS, macBytes(settings.mac));
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
        if (a.length === 6) link.mac = macText(a.bytes());
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
