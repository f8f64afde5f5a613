// Opens packet sockets (packet(7)), which receive and send Ethernet frames of one protocol on one link.
import { checkSyscall } from "../sys/kernel-error.ts";
import * as sys from "../sys/sys.ts";

const AF_PACKET = 17;
export const ETH_P_ARP = 0x0806;
export const ETH_P_RARP = 0x8035;

/** @returns a non-blocking socket */
export function openPacketSocket(link: number, protocol: number): number {
  // Created with protocol 0, because the socket would otherwise receive frames of all links until bind() selects one.
  const type = sys.SOCK_RAW | sys.SOCK_NONBLOCK | sys.SOCK_CLOEXEC;
  const fd = checkSyscall(sys.socket(AF_PACKET, type, 0), "open a packet socket");
  try {
    checkSyscall(sys.bind(fd, packetAddress(link, protocol)), `bind a packet socket to link ${link}`);
    return fd;
  } catch (error) {
    sys.close(fd);
    throw error;
  }
}

/** A sockaddr_ll. */
export function packetAddress(link: number, protocol: number): sys.Bytes {
  const address = sys.allocate(20);
  const view = new DataView(address.buffer);
  view.setUint16(0, AF_PACKET, true);
  view.setUint16(2, protocol); // in network byte order
  view.setInt32(4, link, true);
  return address;
}
