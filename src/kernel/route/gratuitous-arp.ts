// Watches a link for the announcement of a virtual machine that has migrated to this host: gratuitous ARP from the machine
// itself (RFC 5227 section 3), or reverse ARP (RFC 903), which the hypervisor sends when the machine starts on its new host.
// Such packets are rare and are watched only during a migration, so the sockets are polled by a timer.
import { ETH_P_ARP, ETH_P_RARP, openPacketSocket } from "./packet-socket.ts";
import * as sys from "../sys/sys.ts";

const ETHERNET_HEADER = 14;
const POLL_INTERVAL_MS = 20;

/**
 * @param link index of the host end of the machine's interface pair
 * @param onReceived called for each announcement
 */
export function watchGratuitousArp(link: number, onReceived: () => void): Disposable {
  const sockets = [ETH_P_ARP, ETH_P_RARP].map((protocol) => ({ protocol, fd: openPacketSocket(link, protocol) }));
  const buffer = sys.allocate(256);
  const timer = setInterval(() => {
    for (const { protocol, fd } of sockets)
      for (;;) {
        const length = sys.recv(fd, buffer, sys.MSG_DONTWAIT);
        if (length <= 0) break;
        if (protocol === ETH_P_RARP || isGratuitous(buffer.subarray(0, length))) return onReceived();
      }
  }, POLL_INTERVAL_MS);
  timer.unref();
  return {
    [Symbol.dispose]: () => {
      clearInterval(timer);
      for (const { fd } of sockets.splice(0)) sys.close(fd);
    },
  };
}

/** True for an ARP frame whose sender and target protocol addresses are the same and not 0.0.0.0. */
export function isGratuitous(frame: Uint8Array): boolean {
  const arp = frame.subarray(ETHERNET_HEADER);
  if (arp.length < 28) return false;
  const [sender, target] = [arp.subarray(14, 18), arp.subarray(24, 28)];
  return sender.some((byte) => byte !== 0) && sender.every((byte, i) => byte === target[i]);
}
