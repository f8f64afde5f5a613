// Lists, adds and deletes interface addresses over rtnetlink (rtnetlink(7)).
import { type IpAddress, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import { type NetlinkMessage, prefixOf } from "../netlink/netlink-reader.ts";
import type { NetlinkSocket } from "../netlink/netlink-socket.ts";
import { type NetlinkWriter, NLM_F_CREATE, NLM_F_EXCL, NLM_F_REPLACE } from "../netlink/netlink-writer.ts";
import { scopeNumber, type Scope, scopeOf } from "./route-constants.ts";
import { AF_INET, AF_INET6 } from "../sys/sys.ts";

export const RTM_NEWADDR = 20;
export const RTM_DELADDR = 21;
const RTM_GETADDR = 22;
const IFA_ADDRESS = 1;
const IFA_LOCAL = 2;
const IFA_LABEL = 3;
const IFA_BROADCAST = 4;
const IFA_FLAGS = 8;
const IFA_F_NODAD = 0x02;
const IFA_F_DADFAILED = 0x08;
const IFA_F_TENTATIVE = 0x40;
const IFA_F_NOPREFIXROUTE = 0x200;
const HEADER = 8; // ifaddrmsg

export interface InterfaceAddress {
  /** Index of the interface. */
  readonly link: number;
  readonly address: IpAddress;
  readonly length: number;
  readonly scope: Scope;
  /** The other end of a point-to-point address. */
  readonly peer?: IpAddress;
  readonly broadcast?: IpAddress;
  readonly label?: string;
  /** IPv6: duplicate address detection has not finished or has failed, so the address is not usable. */
  readonly isTentative: boolean;
}

export interface NewAddress {
  readonly link: number;
  readonly address: IpAddress;
  readonly length: number;
  readonly scope?: Scope;
  readonly broadcast?: IpAddress;
  readonly label?: string;
  /** IPv6: skips duplicate address detection (IFA_F_NODAD). */
  readonly noDuplicateDetection?: boolean;
  /** The kernel adds no route for the address's prefix (IFA_F_NOPREFIXROUTE). */
  readonly noPrefixRoute?: boolean;
}

export interface Addresses {
  list(filter?: { readonly version?: IpVersion; readonly link?: number }): InterfaceAddress[];
  add(address: NewAddress): void;
  /** Adds the address, or changes the existing one. */
  replace(address: NewAddress): void;
  delete(address: Pick<NewAddress, "link" | "address" | "length">): void;
}

export class NetlinkAddresses implements Addresses {
  readonly #socket: NetlinkSocket;
  constructor(socket: NetlinkSocket) {
    this.#socket = socket;
  }

  list(filter: { readonly version?: IpVersion; readonly link?: number } = {}): InterfaceAddress[] {
    const versions: readonly IpVersion[] = filter.version === undefined ? [4, 6] : [filter.version];
    return versions.flatMap((version) => {
      const body = (w: NetlinkWriter): void => {
        w.putU8(version === 4 ? AF_INET : AF_INET6);
        w.putZero(3);
        w.putU32(filter.link ?? 0);
      };
      return this.#socket.dump({ operation: `list IPv${version} addresses`, type: RTM_GETADDR, body }, (message) => {
        const address = parseInterfaceAddress(message);
        return filter.link === undefined || address?.link === filter.link ? address : undefined;
      });
    });
  }

  add(address: NewAddress): void {
    this.#request("add", RTM_NEWADDR, NLM_F_CREATE | NLM_F_EXCL, address);
  }
  replace(address: NewAddress): void {
    this.#request("set", RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, address);
  }
  delete(address: Pick<NewAddress, "link" | "address" | "length">): void {
    this.#request("delete", RTM_DELADDR, 0, address);
  }

  #request(verb: string, type: number, flags: number, address: NewAddress): void {
    const operation = `${verb} address ${address.address}/${address.length} on link ${address.link}`;
    this.#socket.request({ operation, type, flags, body: (w) => writeAddress(w, address) });
  }
}

function writeAddress(w: NetlinkWriter, address: NewAddress): void {
  const version = ipVersion(address.address);
  w.putU8(version === 4 ? AF_INET : AF_INET6);
  w.putU8(address.length);
  w.putU8(0);
  w.putU8(scopeNumber(address.scope ?? "universe"));
  w.putU32(address.link);
  w.address(IFA_LOCAL, address.address);
  w.address(IFA_ADDRESS, address.address);
  if (address.broadcast !== undefined) w.address(IFA_BROADCAST, address.broadcast);
  if (address.label !== undefined) w.string(IFA_LABEL, address.label);
  const flags =
    (address.noDuplicateDetection === true ? IFA_F_NODAD : 0) |
    (address.noPrefixRoute === true ? IFA_F_NOPREFIXROUTE : 0);
  if (flags !== 0) w.u32(IFA_FLAGS, flags);
}

export function parseInterfaceAddress(message: NetlinkMessage): InterfaceAddress | undefined {
  if (message.type !== RTM_NEWADDR && message.type !== RTM_DELADDR) return undefined;
  let flags = message.u8(2);
  let local: IpAddress | undefined;
  let address: IpAddress | undefined;
  const rest: { broadcast?: IpAddress; label?: string } = {};
  const a = message.attributes(HEADER);
  while (a.next())
    switch (a.type) {
      case IFA_LOCAL:
        local = a.address();
        break;
      case IFA_ADDRESS:
        address = a.address();
        break;
      case IFA_BROADCAST:
        rest.broadcast = a.address();
        break;
      case IFA_LABEL:
        rest.label = a.string();
        break;
      case IFA_FLAGS:
        flags = a.u32();
        break;
    }
  const own = local ?? address;
  if (own === undefined) return undefined;
  const length = message.u8(1);
  prefixOf(own, length); // throws if the length is too large
  return {
    link: message.u32(4),
    address: own,
    length,
    scope: scopeOf(message.u8(3)),
    ...(address !== undefined && address !== own ? { peer: address } : {}),
    ...rest,
    isTentative: (flags & (IFA_F_TENTATIVE | IFA_F_DADFAILED)) !== 0,
  };
}
