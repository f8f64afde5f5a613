// The outline of the legacy iptables tables: how many entries, how long, where each hook begins. The kernel tells it in
// microseconds without a process or a lock, and says nothing about who changed what: another outline means that somebody
// did. IPT_SO_GET_INFO of <linux/netfilter_ipv4/ip_tables.h>; IPv6 has the same struct under the same number.
import type { IpVersion } from "../lib/ip.ts";
import { errnoName } from "./errno.ts";
import type { IptablesTable } from "./iptables.ts";
import { SyscallError, succeed } from "./netlink-error.ts";
import * as sys from "./sys.ts";

export interface LegacyOutlines {
  /** Equal texts: equal outlines. Nothing when there is no such table. A table nobody made yet is made by asking. */
  outline(family: IpVersion, table: IptablesTable): string | undefined;
}

const LEVEL = { 4: 0, 6: 41 } as const; // SOL_IP, SOL_IPV6
const GET_INFO = 64;
const NAME_BYTES = 32;
/** Name, valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const INFO_BYTES = NAME_BYTES + 4 + 20 + 20 + 4 + 4;
const IPPROTO_RAW = 255;

export class LegacyTables implements LegacyOutlines, Disposable {
  readonly #sockets: ReadonlyMap<IpVersion, number>;
  readonly #info = new Uint8Array(new ArrayBuffer(INFO_BYTES));

  /** Opens in the calling thread's network namespace, where it stays for good. */
  constructor(families: readonly IpVersion[]) {
    this.#sockets = new Map(
      families.map((family) => {
        const domain = family === 4 ? sys.AF_INET : sys.AF_INET6;
        return [family, succeed(sys.socket(domain, sys.SOCK_RAW, IPPROTO_RAW), `open a raw IPv${family} socket`)];
      }),
    );
  }

  outline(family: IpVersion, table: IptablesTable): string | undefined {
    const socket = this.#sockets.get(family);
    if (socket === undefined) return undefined;
    this.#info.fill(0);
    this.#info.set(new TextEncoder().encode(table));
    const result = sys.getsockopt(socket, LEVEL[family], GET_INFO, this.#info);
    if (result >= 0) return Buffer.from(this.#info.subarray(NAME_BYTES)).toString("base64");
    const errno = errnoName(-result);
    if (errno === "ENOENT" || errno === "ENOPROTOOPT") return undefined; // no such table, or no legacy tables at all
    throw new SyscallError(`read the outline of IPv${family} table ${table}`, errno);
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets.values()) sys.close(socket);
  }
}
