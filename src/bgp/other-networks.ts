// Finds the networks of a host's interfaces that do not have the Node's address. A BGP peer in such a network expects the
// host's address there, but BIRD opens sessions from the Node's address.
import {
  type Cidr,
  cidrContains,
  type IpAddress,
  type IpNetwork,
  type IpVersion,
  ipVersion,
  maskCidr,
} from "../lib/ip/ip.ts";

export interface HostInterface {
  readonly name: string;
  /** The prefix length is known only for the host that runs this code. */
  readonly addresses: readonly { readonly address: IpAddress; readonly length?: number }[];
}

export interface OtherNetwork {
  /** The network of the Node's own address. */
  readonly own: Cidr;
  /** The interface that has the Node's address, if any has it. */
  readonly holder: string | undefined;
  readonly interface: string;
  /** The host's address in the network. */
  readonly address: IpAddress;
  readonly network: Cidr;
}

export const interfaceWithAddress = (
  interfaces: readonly HostInterface[],
  address: IpAddress,
): HostInterface | undefined => interfaces.find((each) => each.addresses.some((own) => own.address === address));

export function* otherNetworks(
  networks: Readonly<Record<IpVersion, IpNetwork | undefined>>,
  interfaces: readonly HostInterface[],
): Generator<OtherNetwork> {
  for (const version of [4, 6] as const) {
    const own = networks[version];
    if (own === undefined) continue;
    const holder = interfaceWithAddress(interfaces, own.address);
    for (const each of interfaces)
      for (const { address, length } of each.addresses) {
        if (each === holder || ipVersion(address) !== version) continue;
        yield {
          own: maskCidr(own.address, own.length),
          holder: holder?.name,
          interface: each.name,
          address,
          network: maskCidr(address, length ?? likelyLength(own.length, version)),
        };
      }
  }
}

/** For an address without a prefix length: that of the Node's own network, unless it is a single address or a point-to-point link. */
function likelyLength(own: number, version: IpVersion): number {
  const usual = version === 4 ? 24 : 64;
  return own < (version === 4 ? 31 : 127) ? own : usual;
}

/** True if the peer expects the host's address in this network, not the Node's. */
export const isPeerOf = ({ own, address, network }: OtherNetwork, neighbor: IpAddress): boolean =>
  neighbor !== address && cidrContains(network, neighbor) && !cidrContains(own, neighbor);
