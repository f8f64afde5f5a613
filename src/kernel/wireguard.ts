// WireGuard devices: read and change. The link itself is made with `links`.
import { genericFamily, writeGenericHeader } from "./generic-netlink.ts";
import type { Place } from "./namespace.ts";
import { hasErrno, NetlinkError } from "./netlink-error.ts";
import { NETLINK_GENERIC, NetlinkSocket } from "./netlink-socket.ts";
import type { NetlinkWriter } from "./netlink-writer.ts";
import {
  WG_CMD_GET_DEVICE,
  type WireguardChange,
  WireguardCollector,
  type WireguardDevice,
  wireguardMessages,
} from "./wireguard-wire.ts";

const WGDEVICE_A_IFNAME = 2;

export interface Wireguard extends Disposable {
  /** Nothing when there is no such device or it is none of WireGuard. */
  get(name: string): WireguardDevice | undefined;
  set(name: string, change: WireguardChange): void;
}

/** Nothing when the kernel has no WireGuard. */
export function openWireguard(namespace?: Place): Wireguard | undefined {
  const socket = NetlinkSocket.open(NETLINK_GENERIC, { namespace });
  const family = genericFamily(socket, "wireguard");
  if (family !== undefined) return new NetlinkWireguard(socket, family);
  socket[Symbol.dispose]();
  return undefined;
}

class NetlinkWireguard implements Wireguard {
  readonly #socket: NetlinkSocket;
  readonly #family: number;
  constructor(socket: NetlinkSocket, family: number) {
    this.#socket = socket;
    this.#family = family;
  }

  get(name: string): WireguardDevice | undefined {
    const collector = new WireguardCollector();
    const body = (w: NetlinkWriter): void => {
      writeGenericHeader(w, WG_CMD_GET_DEVICE, 1);
      w.string(WGDEVICE_A_IFNAME, name);
    };
    try {
      this.#socket.dump({ what: `get WireGuard device ${name}`, type: this.#family, body }, (message) =>
        collector.add(message),
      );
    } catch (error) {
      if (hasErrno(error, "ENODEV", "EOPNOTSUPP")) return undefined;
      throw error;
    }
    return collector.device();
  }

  set(name: string, change: WireguardChange): void {
    for (const write of wireguardMessages(this.#family, name, change)) {
      const w = this.#socket.batch();
      write(w);
      const what = `set WireGuard device ${name}`;
      const [fault] = this.#socket.sendBatch(w, what);
      if (fault !== undefined) throw new NetlinkError(what, fault.errno, fault.extack);
    }
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }
}
