// Reads fingerprints of legacy iptables tables, which show that another program has changed a table: number of entries,
// total size and offset of each hook. Reading one takes microseconds and needs neither a process nor the xtables lock.
// IPT_SO_GET_INFO of include/uapi/linux/netfilter_ipv4/ip_tables.h; IPv6 uses the same struct and number.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { errnoName } from "../sys/errno.ts";
import type { IptablesTable } from "./iptables.ts";
import { SyscallError, checkSyscall } from "../sys/kernel-error.ts";
import * as sys from "../sys/sys.ts";

export interface LegacyFingerprints {
  /** Undefined if the kernel does not support the table. The call creates a table that does not exist yet. */
  fingerprint(family: IpVersion, table: IptablesTable): string | undefined;
}

const LEVEL = { 4: 0, 6: 41 } as const; // SOL_IP, SOL_IPV6
const GET_INFO = 64;
const NAME_BYTES = 32;
/** Name, valid_hooks, hook_entry[5], underflow[5], num_entries, size. */
const INFO_BYTES = NAME_BYTES + 4 + 20 + 20 + 4 + 4;
const IPPROTO_RAW = 255;

export class LegacyTableFingerprints implements LegacyFingerprints, Disposable {
  readonly #sockets: ReadonlyMap<IpVersion, number>;
  readonly #info = new Uint8Array(new ArrayBuffer(INFO_BYTES));

  /** For the calling thread's network namespace. */
  constructor(families: readonly IpVersion[]) {
    this.#sockets = new Map(
      families.map((family) => {
        const domain = family === 4 ? sys.AF_INET : sys.AF_INET6;
        return [family, checkSyscall(sys.socket(domain, sys.SOCK_RAW, IPPROTO_RAW), `open a raw IPv${family} socket`)];
      }),
    );
  }

  fingerprint(family: IpVersion, table: IptablesTable): string | undefined {
    const socket = this.#sockets.get(family);
    if (socket === undefined) return undefined;
    this.#info.fill(0);
    this.#info.set(new TextEncoder().encode(table));
    const result = sys.getsockopt(socket, LEVEL[family], GET_INFO, this.#info);
    if (result >= 0) return Buffer.from(this.#info.subarray(NAME_BYTES)).toString("base64");
    const errno = errnoName(-result);
    if (errno === "ENOENT" || errno === "ENOPROTOOPT") return undefined; // ENOPROTOOPT: no legacy iptables at all
    throw new SyscallError(`read the fingerprint of IPv${family} table ${table}`, errno);
  }

  [Symbol.dispose](): void {
    for (const socket of this.#sockets.values()) sys.close(socket);
  }
}
