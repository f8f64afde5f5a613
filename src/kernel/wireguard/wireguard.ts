// Reads and changes WireGuard devices over generic netlink. The link itself is created with `Links`.
import { findGenericFamily, writeGenericHeader } from "../netlink/generic-netlink.ts";
import type { NamespaceHandle } from "../sys/namespace.ts";
import { hasErrno, NetlinkError } from "../sys/kernel-error.ts";
import { NETLINK_GENERIC, NetlinkSocket } from "../netlink/netlink-socket.ts";
import type { NetlinkWriter } from "../netlink/netlink-writer.ts";
import {
  WG_CMD_GET_DEVICE,
  type WireguardChange,
  WireguardDumpParser,
  type WireguardDevice,
  wireguardMessages,
} from "./wireguard-message.ts";

const WGDEVICE_A_IFNAME = 2;

export interface Wireguard extends Disposable {
  /** Undefined if the device does not exist or is not a WireGuard device. */
  get(name: string): WireguardDevice | undefined;
  set(name: string, change: WireguardChange): void;
}

/** Undefined if the kernel does not support WireGuard. */
export function openWireguard(namespace?: NamespaceHandle): Wireguard | undefined {
  const socket = NetlinkSocket.open(NETLINK_GENERIC, { namespace });
  const family = findGenericFamily(socket, "wireguard");
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
    const parser = new WireguardDumpParser();
    const body = (w: NetlinkWriter): void => {
      writeGenericHeader(w, WG_CMD_GET_DEVICE, 1);
      w.string(WGDEVICE_A_IFNAME, name);
    };
    try {
      this.#socket.dump({ operation: `get WireGuard device ${name}`, type: this.#family, body }, (message) =>
        parser.add(message),
      );
    } catch (error) {
      if (hasErrno(error, "ENODEV", "EOPNOTSUPP")) return undefined;
      throw error;
    }
    return parser.device();
  }

  set(name: string, change: WireguardChange): void {
    for (const write of wireguardMessages(this.#family, name, change)) {
      const w = this.#socket.startBatch();
      write(w);
      const operation = `set WireGuard device ${name}`;
      const [rejected] = this.#socket.sendBatch(w, operation);
      if (rejected !== undefined) throw new NetlinkError(operation, rejected.errno, rejected.extack);
    }
  }

  [Symbol.dispose](): void {
    this.#socket[Symbol.dispose]();
  }
}
