// Encodes and parses WireGuard devices in netlink messages.
// https://docs.kernel.org/networking/netlink_spec/wireguard.html
//
// A device may need several messages, in both directions. A peer that continues in the next message has its key there again.
import { type Cidr, cidrAddress, cidrLength, type IpAddress, ipVersion } from "../../lib/ip/ip.ts";
import { GENERIC_HEADER, writeGenericHeader } from "../netlink/generic-netlink.ts";
import { type NetlinkMessage, type NetlinkReader, prefixOf } from "../netlink/netlink-reader.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";
import { AF_INET, AF_INET6 } from "../sys/sys.ts";
import { readSocketAddress, socketAddress } from "../sys/socket-address.ts";

export const WG_CMD_GET_DEVICE = 0;
const WG_CMD_SET_DEVICE = 1;
const WGDEVICE_A_IFNAME = 2;
const WGDEVICE_A_PRIVATE_KEY = 3;
const WGDEVICE_A_PUBLIC_KEY = 4;
const WGDEVICE_A_FLAGS = 5;
const WGDEVICE_A_LISTEN_PORT = 6;
const WGDEVICE_A_FWMARK = 7;
const WGDEVICE_A_PEERS = 8;
const WGDEVICE_F_REPLACE_PEERS = 1;
const WGPEER_A_PUBLIC_KEY = 1;
const WGPEER_A_FLAGS = 3;
const WGPEER_A_ENDPOINT = 4;
const WGPEER_A_KEEPALIVE = 5;
const WGPEER_A_LAST_HANDSHAKE = 6;
const WGPEER_A_RX_BYTES = 7;
const WGPEER_A_TX_BYTES = 8;
const WGPEER_A_ALLOWEDIPS = 9;
const WGPEER_F_REMOVE_ME = 1;
const WGPEER_F_REPLACE_ALLOWEDIPS = 2;
const WGALLOWEDIP_A_FAMILY = 1;
const WGALLOWEDIP_A_IPADDR = 2;
const WGALLOWEDIP_A_CIDR_MASK = 3;
/** Both limits keep a message far below 64 KiB, the maximum size of an attribute. */
const PREFIXES_PER_PART = 500;
const BYTES_PER_MESSAGE = 24 * 1024;

export interface WireguardPeer {
  /** Base64, as `wg show` prints it. */
  readonly publicKey: string;
  readonly endpoint?: { readonly address: IpAddress; readonly port: number };
  readonly keepaliveSeconds?: number;
  readonly allowed: readonly Cidr[];
}

export interface WireguardPeerState extends WireguardPeer {
  /** Seconds since 1970; 0 if there was none. */
  readonly lastHandshake: number;
  readonly receivedBytes: bigint;
  readonly sentBytes: bigint;
}

export interface WireguardDevice {
  readonly name: string;
  /** Undefined until a private key is set. */
  readonly publicKey?: string;
  readonly port: number;
  readonly mark: number;
  readonly peers: readonly WireguardPeerState[];
}

export interface WireguardChange {
  /** Base64. Never logged. */
  readonly privateKey?: string;
  readonly port?: number;
  readonly mark?: number;
  /** Removes all peers that are not in `set`. */
  readonly replacePeers?: boolean;
  /** Peers to add or replace. */
  readonly set?: readonly WireguardPeer[];
  /** Public keys of peers to remove. */
  readonly remove?: readonly string[];
}

type PeerPart = { readonly peer: WireguardPeer; readonly allowed: readonly Cidr[]; readonly isFirst: boolean };

/** Returns functions that write the messages of a change, which must be sent sequentially. */
export function wireguardMessages(type: number, name: string, change: WireguardChange): ((w: NetlinkWriter) => void)[] {
  const parts = (change.set ?? []).flatMap(splitPeer);
  const messages: ((w: NetlinkWriter) => void)[] = [];
  const removals = change.remove ?? [];
  let next = 0;
  do {
    const isFirst = messages.length === 0;
    const start = next;
    let bytes = 0;
    while (next < parts.length && bytes < BYTES_PER_MESSAGE) bytes += estimatedBytes(parts[next++]);
    const ofMessage = parts.slice(start, next);
    messages.push((w) =>
      w.message(type, 0, () => {
        writeGenericHeader(w, WG_CMD_SET_DEVICE, 1);
        w.string(WGDEVICE_A_IFNAME, name);
        if (isFirst) writeDevice(w, change);
        w.nest(WGDEVICE_A_PEERS, () => {
          if (isFirst) for (const key of removals) writeRemoval(w, key);
          for (const part of ofMessage) writePeer(w, part);
        });
      }),
    );
  } while (next < parts.length);
  return messages;
}

function splitPeer(peer: WireguardPeer): PeerPart[] {
  const parts: PeerPart[] = [];
  for (let start = 0; start === 0 || start < peer.allowed.length; start += PREFIXES_PER_PART)
    parts.push({ peer, allowed: peer.allowed.slice(start, start + PREFIXES_PER_PART), isFirst: start === 0 });
  return parts;
}

const estimatedBytes = (part: PeerPart | undefined): number => 100 + (part?.allowed.length ?? 0) * 40;

function writeDevice(w: NetlinkWriter, change: WireguardChange): void {
  if (change.replacePeers === true) w.u32(WGDEVICE_A_FLAGS, WGDEVICE_F_REPLACE_PEERS);
  if (change.privateKey !== undefined) w.bytes(WGDEVICE_A_PRIVATE_KEY, keyBytes(change.privateKey));
  if (change.port !== undefined) w.u16(WGDEVICE_A_LISTEN_PORT, change.port);
  if (change.mark !== undefined) w.u32(WGDEVICE_A_FWMARK, change.mark);
}

function writeRemoval(w: NetlinkWriter, publicKey: string): void {
  w.nest(0, () => {
    w.bytes(WGPEER_A_PUBLIC_KEY, keyBytes(publicKey));
    w.u32(WGPEER_A_FLAGS, WGPEER_F_REMOVE_ME);
  });
}

function writePeer(w: NetlinkWriter, { peer, allowed, isFirst }: PeerPart): void {
  w.nest(0, () => {
    w.bytes(WGPEER_A_PUBLIC_KEY, keyBytes(peer.publicKey));
    if (isFirst) {
      w.u32(WGPEER_A_FLAGS, WGPEER_F_REPLACE_ALLOWEDIPS);
      if (peer.endpoint !== undefined)
        w.bytes(
          WGPEER_A_ENDPOINT,
          socketAddress(ipVersion(peer.endpoint.address), peer.endpoint.address, peer.endpoint.port),
        );
      if (peer.keepaliveSeconds !== undefined) w.u16(WGPEER_A_KEEPALIVE, peer.keepaliveSeconds);
    }
    w.nest(WGPEER_A_ALLOWEDIPS, () => {
      for (const cidr of allowed)
        w.nest(0, () => {
          w.u16(WGALLOWEDIP_A_FAMILY, ipVersion(cidr) === 4 ? AF_INET : AF_INET6);
          w.address(WGALLOWEDIP_A_IPADDR, cidrAddress(cidr));
          w.u8(WGALLOWEDIP_A_CIDR_MASK, cidrLength(cidr));
        });
    });
  });
}

type PeerDraft = { -readonly [K in keyof WireguardPeerState]: WireguardPeerState[K] } & { allowed: Cidr[] };

/** Joins the messages of one dump. */
export class WireguardDumpParser {
  #name = "";
  #publicKey: string | undefined;
  #port = 0;
  #mark = 0;
  readonly #peers: PeerDraft[] = [];

  add(message: NetlinkMessage): void {
    const a = message.attributes(GENERIC_HEADER);
    while (a.next())
      switch (a.type) {
        case WGDEVICE_A_IFNAME:
          this.#name = a.string();
          break;
        case WGDEVICE_A_PUBLIC_KEY:
          this.#publicKey = keyText(a.bytes());
          break;
        case WGDEVICE_A_LISTEN_PORT:
          this.#port = a.u16();
          break;
        case WGDEVICE_A_FWMARK:
          this.#mark = a.u32();
          break;
        case WGDEVICE_A_PEERS:
          for (const peers = a.nested(); peers.next(); ) this.#addPeer(readPeer(peers.nested()));
          break;
      }
  }

  device(): WireguardDevice {
    return {
      name: this.#name,
      publicKey: this.#publicKey,
      port: this.#port,
      mark: this.#mark,
      peers: this.#peers,
    };
  }

  #addPeer(peer: PeerDraft): void {
    const last = this.#peers.at(-1);
    if (last?.publicKey === peer.publicKey) last.allowed.push(...peer.allowed);
    else this.#peers.push(peer);
  }
}

function readPeer(a: NetlinkReader): PeerDraft {
  const peer: PeerDraft = { publicKey: "", allowed: [], lastHandshake: 0, receivedBytes: 0n, sentBytes: 0n };
  while (a.next())
    switch (a.type) {
      case WGPEER_A_PUBLIC_KEY:
        peer.publicKey = keyText(a.bytes());
        break;
      case WGPEER_A_ENDPOINT:
        if (a.length === (a.u16() === AF_INET ? 16 : 28)) peer.endpoint = readSocketAddress(a.bytes());
        break;
      case WGPEER_A_KEEPALIVE:
        if (a.u16() !== 0) peer.keepaliveSeconds = a.u16();
        break;
      case WGPEER_A_LAST_HANDSHAKE:
        peer.lastHandshake = Number(a.u64());
        break;
      case WGPEER_A_RX_BYTES:
        peer.receivedBytes = a.u64();
        break;
      case WGPEER_A_TX_BYTES:
        peer.sentBytes = a.u64();
        break;
      case WGPEER_A_ALLOWEDIPS:
        for (const prefixes = a.nested(); prefixes.next(); ) {
          const prefix = readPrefix(prefixes.nested());
          if (prefix !== undefined) peer.allowed.push(prefix);
        }
        break;
    }
  return peer;
}

function readPrefix(a: NetlinkReader): Cidr | undefined {
  let address: IpAddress | undefined;
  let length = 0;
  while (a.next())
    if (a.type === WGALLOWEDIP_A_IPADDR) address = a.address();
    else if (a.type === WGALLOWEDIP_A_CIDR_MASK) length = a.u8();
  return address === undefined ? undefined : prefixOf(address, length);
}

export function keyBytes(text: string): Uint8Array {
  const bytes = Uint8Array.from(atob(text), (character) => character.charCodeAt(0));
  if (bytes.length !== 32) throw new RangeError(`a WireGuard key has 32 bytes, not ${bytes.length}`);
  return bytes;
}

const keyText = (bytes: Uint8Array): string => btoa(String.fromCharCode(...bytes));
