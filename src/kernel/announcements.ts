// Hears a machine say where it is: gratuitous ARP of the machine itself, and reverse ARP, which a hypervisor sends for a
// machine that just arrived. Packets of these two protocols are rare, so looking a few times a second is cheap, and it is
// done only while somebody waits.
import { errnoName } from "./errno.ts";
import { SyscallError } from "./netlink-error.ts";
import * as sys from "./sys.ts";

const AF_PACKET = 17;
const ETH_P_ARP = 0x0806;
const ETH_P_RARP = 0x8035;
const ETHERNET_HEADER = 14;
const LOOK_MS = 20;

/** @param link the host's end of the machine's wire */
export function listenForAnnouncement(link: number, onHeard: () => void): Disposable {
  const sockets = [ETH_P_ARP, ETH_P_RARP].map((protocol) => ({ protocol, fd: openSocket(link, protocol) }));
  const buffer = sys.allocate(256);
  const timer = setInterval(() => {
    for (const { protocol, fd } of sockets)
      for (;;) {
        const length = sys.recv(fd, buffer, sys.MSG_DONTWAIT);
        if (length <= 0) break;
        if (protocol === ETH_P_RARP || isGratuitous(buffer.subarray(0, length))) return onHeard();
      }
  }, LOOK_MS);
  timer.unref();
  return {
    [Symbol.dispose]: () => {
      clearInterval(timer);
      for (const { fd } of sockets.splice(0)) sys.close(fd);
    },
  };
}

/** An ARP packet over Ethernet, whose sender speaks about his own address. */
export function isGratuitous(frame: Uint8Array): boolean {
  const arp = frame.subarray(ETHERNET_HEADER);
  if (arp.length < 28) return false;
  const [sender, target] = [arp.subarray(14, 18), arp.subarray(24, 28)];
  return sender.some((byte) => byte !== 0) && sender.every((byte, i) => byte === target[i]);
}

function openSocket(link: number, protocol: number): number {
  // Bound to nothing at first: a socket made for a protocol hears it on every link until it is bound to one.
  const fd = sys.socket(AF_PACKET, sys.SOCK_RAW | sys.SOCK_NONBLOCK | sys.SOCK_CLOEXEC, 0);
  if (fd < 0) throw new SyscallError("open a packet socket", errnoName(-fd));
  const address = sys.allocate(20);
  const view = new DataView(address.buffer);
  view.setUint16(0, AF_PACKET, true);
  view.setUint16(2, protocol); // in network order
  view.setInt32(4, link, true);
  const outcome = sys.bind(fd, address);
  if (outcome >= 0) return fd;
  sys.close(fd);
  throw new SyscallError(`listen on link ${link}`, errnoName(-outcome));
}
