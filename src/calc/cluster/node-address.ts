// Chooses the address that other nodes use for a node.
import { type IpNetwork, type IpVersion, ipVersion } from "../../lib/ip/ip.ts";
import type { Node } from "../../model/index.ts";

/** Returns the node's BGP address, otherwise its first internal address, otherwise its first external address. */
export const nodeAddress = (node: Node, version: IpVersion): IpNetwork | undefined =>
  node.networks[version] ?? firstOfType(node, "InternalIP", version) ?? firstOfType(node, "ExternalIP", version);

const firstOfType = (node: Node, type: string, version: IpVersion): IpNetwork | undefined =>
  node.addresses.find((each) => each.type === type && ipVersion(each.network.address) === version)?.network;
