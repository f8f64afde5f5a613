// Encodes and parses the attributes that depend on the kind of a link (IFLA_LINKINFO).
import { type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import { parseMac } from "./mac.ts";
import type { NetlinkReader } from "../netlink/netlink-reader.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";

const IFLA_ADDRESS = 1;
const IFLA_IFNAME = 3;
const IFLA_MTU = 4;
const IFLA_NET_NS_FD = 28;
export const IFLA_NUM_TX_QUEUES = 31;
export const IFLA_NUM_RX_QUEUES = 32;
const IFLA_INFO_KIND = 1;
const IFLA_INFO_DATA = 2;
const VETH_INFO_PEER = 1;
const IFLA_NETKIT_PEER_INFO = 1;
const IFLA_NETKIT_POLICY = 3;
const IFLA_NETKIT_PEER_POLICY = 4;
const IFLA_NETKIT_MODE = 5;
const NETKIT_L2 = 0;
const NETKIT_PASS = 0;

const IFLA_VXLAN_ID = 1;
const IFLA_VXLAN_LINK = 3;
const IFLA_VXLAN_LOCAL = 4;
const IFLA_VXLAN_TTL = 5;
const IFLA_VXLAN_LEARNING = 7;
const IFLA_VXLAN_PORT = 15;
const IFLA_VXLAN_LOCAL6 = 17;
const IFLA_VXLAN_UDP_CSUM = 18;
const IFLA_VXLAN_UDP_ZERO_CSUM6_TX = 19;
const IFLA_VXLAN_UDP_ZERO_CSUM6_RX = 20;

const IFLA_IPTUN_LINK = 1;
const IFLA_IPTUN_LOCAL = 2;
const IFLA_IPTUN_REMOTE = 3;
const IFLA_IPTUN_TTL = 4;
const IFLA_IPTUN_PMTUDISC = 10;

const IFLA_BR_STP_STATE = 5;

/**
 * The other end of a new veth pair. It is created directly in its namespace, because moving it there later costs an RCU
 * grace period. It is always created down: the kernel cannot set an end up before the pair exists.
 */
export interface VethPeer {
  readonly name: string;
  /** By default, the namespace of the first end. */
  readonly namespaceFd?: number;
  readonly mac?: string;
  readonly mtu?: number;
  /** By default, one per CPU. */
  readonly queues?: number;
}

export interface VxlanSettings {
  readonly id: number;
  readonly port: number;
  /** Index of the underlying device. */
  readonly device?: number;
  readonly local?: IpAddress;
  readonly learning: boolean;
  readonly ttl?: number;
  readonly udpChecksum?: boolean;
}

export interface IpipSettings {
  readonly local?: IpAddress;
  readonly remote?: IpAddress;
  readonly ttl?: number;
  readonly device?: number;
  readonly pathMtuDiscovery?: boolean;
}

export type LinkKind =
  | { readonly kind: "veth"; readonly peer: VethPeer }
  /** The host end of a pair for BPF programs, in layer 2 mode and without a program: it forwards like veth. */
  | { readonly kind: "netkit"; readonly peer: VethPeer }
  | ({ readonly kind: "vxlan" } & VxlanSettings)
  | ({ readonly kind: "ipip" } & IpipSettings)
  | { readonly kind: "bridge"; readonly stp?: boolean }
  | { readonly kind: "wireguard" | "dummy" | "ifb" };

/** Writes IFLA_INFO_KIND and IFLA_INFO_DATA. */
export function writeLinkKind(w: NetlinkWriter, kind: LinkKind): void {
  w.string(IFLA_INFO_KIND, kind.kind);
  switch (kind.kind) {
    case "veth":
      return w.nest(IFLA_INFO_DATA, () => w.nest(VETH_INFO_PEER, () => writePeer(w, kind.peer)));
    case "netkit":
      return w.nest(IFLA_INFO_DATA, () => {
        w.u32(IFLA_NETKIT_MODE, NETKIT_L2);
        w.u32(IFLA_NETKIT_POLICY, NETKIT_PASS);
        w.u32(IFLA_NETKIT_PEER_POLICY, NETKIT_PASS);
        w.nest(IFLA_NETKIT_PEER_INFO, () => writePeer(w, kind.peer));
      });
    case "vxlan":
      return w.nest(IFLA_INFO_DATA, () => writeVxlan(w, kind));
    case "ipip":
      return w.nest(IFLA_INFO_DATA, () => writeIpip(w, kind));
    case "bridge":
      return w.nest(IFLA_INFO_DATA, () => {
        if (kind.stp !== undefined) w.u32(IFLA_BR_STP_STATE, kind.stp ? 1 : 0);
      });
    default:
      return; // no further attributes
  }
}

function writePeer(w: NetlinkWriter, peer: VethPeer): void {
  w.putZero(16); // ifinfomsg
  w.string(IFLA_IFNAME, peer.name);
  if (peer.mac !== undefined) w.bytes(IFLA_ADDRESS, parseMac(peer.mac));
  if (peer.mtu !== undefined) w.u32(IFLA_MTU, peer.mtu);
  if (peer.namespaceFd !== undefined) w.u32(IFLA_NET_NS_FD, peer.namespaceFd);
  if (peer.queues !== undefined) {
    w.u32(IFLA_NUM_TX_QUEUES, peer.queues);
    w.u32(IFLA_NUM_RX_QUEUES, peer.queues);
  }
}

function writeVxlan(w: NetlinkWriter, vxlan: VxlanSettings): void {
  w.u32(IFLA_VXLAN_ID, vxlan.id);
  if (vxlan.device !== undefined) w.u32(IFLA_VXLAN_LINK, vxlan.device);
  if (vxlan.local !== undefined)
    w.address(ipVersion(vxlan.local) === 4 ? IFLA_VXLAN_LOCAL : IFLA_VXLAN_LOCAL6, vxlan.local);
  if (vxlan.ttl !== undefined) w.u8(IFLA_VXLAN_TTL, vxlan.ttl);
  w.u8(IFLA_VXLAN_LEARNING, vxlan.learning ? 1 : 0);
  w.be16(IFLA_VXLAN_PORT, vxlan.port);
  if (vxlan.udpChecksum !== undefined) {
    w.u8(IFLA_VXLAN_UDP_CSUM, vxlan.udpChecksum ? 1 : 0);
    w.u8(IFLA_VXLAN_UDP_ZERO_CSUM6_TX, vxlan.udpChecksum ? 0 : 1);
    w.u8(IFLA_VXLAN_UDP_ZERO_CSUM6_RX, vxlan.udpChecksum ? 0 : 1);
  }
}

function writeIpip(w: NetlinkWriter, ipip: IpipSettings): void {
  if (ipip.device !== undefined) w.u32(IFLA_IPTUN_LINK, ipip.device);
  if (ipip.local !== undefined) w.address(IFLA_IPTUN_LOCAL, ipip.local);
  if (ipip.remote !== undefined) w.address(IFLA_IPTUN_REMOTE, ipip.remote);
  w.u8(IFLA_IPTUN_TTL, ipip.ttl ?? 0);
  w.u8(IFLA_IPTUN_PMTUDISC, ipip.pathMtuDiscovery === false ? 0 : 1);
}

export function readVxlan(a: NetlinkReader): VxlanSettings {
  const found: { -readonly [K in keyof VxlanSettings]: VxlanSettings[K] } = { id: 0, port: 0, learning: false };
  while (a.next())
    switch (a.type) {
      case IFLA_VXLAN_ID:
        found.id = a.u32();
        break;
      case IFLA_VXLAN_LINK:
        found.device = a.u32();
        break;
      case IFLA_VXLAN_LOCAL:
      case IFLA_VXLAN_LOCAL6:
        found.local = a.address();
        break;
      case IFLA_VXLAN_TTL:
        found.ttl = a.u8();
        break;
      case IFLA_VXLAN_LEARNING:
        found.learning = a.u8() !== 0;
        break;
      case IFLA_VXLAN_PORT:
        found.port = a.be16();
        break;
      case IFLA_VXLAN_UDP_CSUM:
        found.udpChecksum = a.u8() !== 0;
        break;
    }
  return found;
}

export function readIpip(a: NetlinkReader): IpipSettings {
  const found: { -readonly [K in keyof IpipSettings]: IpipSettings[K] } = {};
  while (a.next())
    switch (a.type) {
      case IFLA_IPTUN_LINK:
        if (a.u32() !== 0) found.device = a.u32();
        break;
      case IFLA_IPTUN_LOCAL:
        if (a.u32() !== 0) found.local = a.address();
        break;
      case IFLA_IPTUN_REMOTE:
        if (a.u32() !== 0) found.remote = a.address();
        break;
      case IFLA_IPTUN_TTL:
        found.ttl = a.u8();
        break;
      case IFLA_IPTUN_PMTUDISC:
        found.pathMtuDiscovery = a.u8() !== 0;
        break;
    }
  return found;
}
