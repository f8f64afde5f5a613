// Receives the NFLOG messages of a group, as a flow log does, and returns their prefixes in order.
// https://github.com/torvalds/linux/blob/master/include/uapi/linux/netfilter/nfnetlink_log.h
import { NETLINK_NETFILTER, NetlinkSocket } from "../../../src/kernel/netlink/netlink-socket.ts";
import type { NetlinkWriter } from "../../../src/kernel/netlink/netlink-writer.ts";
import { drainEvents } from "../kernel/drain-events.ts";

const NFNL_SUBSYS_ULOG = 4 << 8;
const NFULNL_MSG_PACKET = NFNL_SUBSYS_ULOG | 0;
const NFULNL_MSG_CONFIG = NFNL_SUBSYS_ULOG | 1;
const NFULA_CFG_CMD = 1;
const NFULA_CFG_MODE = 2;
const NFULA_CFG_QTHRESH = 5;
const NFULA_PREFIX = 10;

export class NflogListener implements Disposable {
  readonly #socket: NetlinkSocket;
  readonly #seen: string[] = [];

  /** Listens in the network namespace of the caller. */
  constructor(groups: readonly number[]) {
    this.#socket = NetlinkSocket.open(NETLINK_NETFILTER);
    for (const group of groups) {
      this.#configure(group, (w) => w.bytes(NFULA_CFG_CMD, Uint8Array.of(1))); // bind
      this.#configure(group, (w) => {
        w.bytes(NFULA_CFG_MODE, Uint8Array.of(0, 0, 0, 80, 2, 0)); // 80 bytes of the packet
        w.be32(NFULA_CFG_QTHRESH, 1); // no batching
      });
    }
  }

  #configure(group: number, attributes: (w: NetlinkWriter) => void): void {
    this.#socket.request({
      operation: `listen to log group ${group}`,
      type: NFULNL_MSG_CONFIG,
      body: (w) => {
        w.putU8(0);
        w.putU8(0);
        w.putU8(group >> 8);
        w.putU8(group & 0xff);
        attributes(w);
      },
    });
  }

  /** Returns the prefixes since the last call. */
  take(): string[] {
    drainEvents(this.#socket, (message) => {
      if (message.type !== NFULNL_MSG_PACKET) return;
      const a = message.attributes(4);
      while (a.next()) if (a.type === NFULA_PREFIX) this.#seen.push(a.string());
    });
    return this.#seen.splice(0);
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }
}
