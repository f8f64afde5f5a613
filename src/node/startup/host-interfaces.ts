// Lists the host's interfaces with their addresses.
import { ipVersion, type IpAddress, type IpNetwork, type IpVersion } from "../../lib/ip/ip.ts";
import { openRtnetlink } from "../../kernel/index.ts";

export interface HostInterface {
  readonly name: string;
  readonly index: number;
  /** In the order in which they were added, IPv4 first. */
  readonly networks: readonly IpNetwork[];
}

export function readHostInterfaces(): readonly HostInterface[] {
  using kernel = openRtnetlink();
  const addresses = Map.groupBy(kernel.addresses.list(), (address) => address.link);
  return kernel.links
    .list()
    .toSorted((a, b) => a.index - b.index)
    .map(({ name, index }) => ({
      name,
      index,
      networks: (addresses.get(index) ?? []).map(({ address, length }) => ({ address, length })),
    }));
}

/** Interfaces of containers, tunnels and virtual machines; they never have the node's address. */
const SKIPPED = [
  "docker.*",
  "cbr.*",
  "dummy.*",
  "podman.*",
  "virbr.*",
  "lxcbr.*",
  "veth.*",
  "lo",
  "br-.*",
  "cali.*",
  "tunl.*",
  "flannel.*",
  "kube-ipvs.*",
  "cni.*",
  "vxlan\\.calico.*",
  "vxlan-v6\\.calico.*",
  "wireguard\\.cali.*",
  "wg-v6\\.cali.*",
  "nodelocaldns.*",
];
const SKIP_PATTERN = new RegExp(`^(?:${SKIPPED.join("|")})`);

export const isSkipped = (name: string): boolean => SKIP_PATTERN.test(name);

/** Excludes loopback, link-local, multicast, unspecified and broadcast addresses. */
export function isGlobalUnicast(address: IpAddress): boolean {
  if (ipVersion(address) === 6) return !/^(::1?$|fe[89ab]|ff)/i.test(address);
  const [first = 0, second = 0] = address.split(".").map(Number);
  return !(
    first === 127 ||
    (first === 0 && address === "0.0.0.0") ||
    (first === 169 && second === 254) ||
    (first >= 224 && first < 240) ||
    address === "255.255.255.255"
  );
}

export const networksOf = ({ networks }: HostInterface, version: IpVersion): readonly IpNetwork[] =>
  networks.filter(({ address }) => ipVersion(address) === version);
