// Builds packets as bytes, with correct checksums. Each contains a number that identifies it.
import { addressBytes, ipVersion } from "../../../src/lib/ip/ip.ts";
import type { Packet } from "../../../src/policy/index.ts";

const MAGIC = 0x63616c69; // "cali"

/** Returns the IP packet. TCP packets are SYN, SCTP packets are INIT. */
export function ipPacket(packet: Packet, nonce: number): Uint8Array {
  const version = ipVersion(packet.destination);
  const source = addressBytes(packet.source);
  const destination = addressBytes(packet.destination);
  const payload = transport(packet, nonce, source, destination);
  if (version === 4) {
    const header = new Uint8Array(20);
    const view = new DataView(header.buffer);
    header[0] = 0x45;
    view.setUint16(2, 20 + payload.length);
    view.setUint16(4, nonce & 0xffff);
    header[8] = 64;
    header[9] = packet.protocol;
    header.set(source, 12);
    header.set(destination, 16);
    view.setUint16(10, checksum([header]));
    return join(header, payload);
  }
  const header = new Uint8Array(40);
  header[0] = 0x60;
  new DataView(header.buffer).setUint16(4, payload.length);
  header[6] = packet.protocol;
  header[7] = 64;
  header.set(source, 8);
  header.set(destination, 24);
  return join(header, payload);
}

function transport(packet: Packet, nonce: number, source: Uint8Array, destination: Uint8Array): Uint8Array {
  const mark = new Uint8Array(8);
  const markView = new DataView(mark.buffer);
  markView.setUint32(0, MAGIC);
  markView.setUint32(4, nonce);
  const pseudo = pseudoHeader(packet.protocol, source, destination);
  if (packet.protocol === 6) {
    const tcp = new Uint8Array(20 + 8);
    const view = new DataView(tcp.buffer);
    view.setUint16(0, packet.sourcePort ?? 0);
    view.setUint16(2, packet.destinationPort ?? 0);
    view.setUint32(4, nonce);
    tcp[12] = 0x50;
    tcp[13] = 0x02; // SYN
    view.setUint16(14, 1024);
    tcp.set(mark, 20);
    view.setUint16(16, checksum([pseudo(tcp.length), tcp]));
    return tcp;
  }
  if (packet.protocol === 17) {
    const udp = new Uint8Array(8 + 8);
    const view = new DataView(udp.buffer);
    view.setUint16(0, packet.sourcePort ?? 0);
    view.setUint16(2, packet.destinationPort ?? 0);
    view.setUint16(4, udp.length);
    udp.set(mark, 8);
    view.setUint16(6, checksum([pseudo(udp.length), udp]) || 0xffff);
    return udp;
  }
  if (packet.protocol === 1 || packet.protocol === 58) {
    const icmp = new Uint8Array(8 + 8);
    const view = new DataView(icmp.buffer);
    icmp[0] = packet.icmp?.type ?? 0;
    icmp[1] = packet.icmp?.code ?? 0;
    view.setUint16(4, nonce & 0xffff);
    icmp.set(mark, 8);
    view.setUint16(2, checksum(packet.protocol === 58 ? [pseudo(icmp.length), icmp] : [icmp]));
    return icmp;
  }
  if (packet.protocol === 132) {
    const sctp = new Uint8Array(12 + 20);
    const view = new DataView(sctp.buffer);
    view.setUint16(0, packet.sourcePort ?? 0);
    view.setUint16(2, packet.destinationPort ?? 0);
    sctp[12] = 1; // INIT
    view.setUint16(14, 20);
    sctp.set(mark, 16); // as initiate tag and window
    view.setUint16(24, 1);
    view.setUint16(26, 1);
    view.setUint32(8, crc32c(sctp), true);
    return sctp;
  }
  return mark;
}

/** CRC32c, the checksum of SCTP: https://www.rfc-editor.org/rfc/rfc9260#appendix-A */
function crc32c(bytes: Uint8Array): number {
  let crc = 0xffffffff;
  for (const byte of bytes) {
    crc ^= byte;
    for (let bit = 0; bit < 8; bit++) crc = (crc & 1) === 1 ? (crc >>> 1) ^ 0x82f63b78 : crc >>> 1;
  }
  return ~crc >>> 0;
}

export const pseudoHeader = (protocol: number, source: Uint8Array, destination: Uint8Array) => (length: number) => {
  const header = new Uint8Array(source.length * 2 + (source.length === 4 ? 4 : 8));
  header.set(source, 0);
  header.set(destination, source.length);
  const view = new DataView(header.buffer);
  if (source.length === 4) {
    view.setUint16(8, protocol);
    view.setUint16(10, length);
  } else {
    view.setUint32(32, length);
    view.setUint32(36, protocol);
  }
  return header;
};

export function checksum(parts: readonly Uint8Array[]): number {
  let sum = 0;
  for (const part of parts) for (let i = 0; i < part.length; i += 2) sum += ((part[i] ?? 0) << 8) | (part[i + 1] ?? 0);
  while (sum > 0xffff) sum = (sum & 0xffff) + (sum >>> 16);
  return ~sum & 0xffff;
}

export function join(a: Uint8Array, b: Uint8Array): Uint8Array {
  const bytes = new Uint8Array(a.length + b.length);
  bytes.set(a);
  bytes.set(b, a.length);
  return bytes;
}

/** Returns the number of a packet that was built here, at any position in the bytes. */
export function nonceOf(bytes: Uint8Array, length: number): number | undefined {
  for (let i = 0; i + 8 <= length; i += 2)
    if (bytes[i] === 0x63 && bytes[i + 1] === 0x61 && bytes[i + 2] === 0x6c && bytes[i + 3] === 0x69)
      return (
        (((bytes[i + 4] ?? 0) << 24) |
          ((bytes[i + 5] ?? 0) << 16) |
          ((bytes[i + 6] ?? 0) << 8) |
          (bytes[i + 7] ?? 0)) >>>
        0
      );
  return undefined;
}
