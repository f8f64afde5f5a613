// Converts Nodes to the settings and addresses that Felix uses. Each update emits every key that a Node can have, set or
// deleted, so that the keys derived from a removed address are deleted. A field that cannot be read is reported, and its
// key is deleted.
import type { WrongShape } from "../../lib/encoding/json-reader.ts";
import type { Cidr } from "../../lib/ip/ip.ts";
import { type Node, readNode } from "../readers/node.ts";
import { affects, isWrongType, rejectWrongTypes } from "../readers/unreadable.ts";
import type { Block, Wireguard } from "../stored/derived.ts";
import {
  convertOrReport,
  type DerivedUpdate,
  limitDepth,
  passThroughIf,
  resourceKey,
  resourceOf,
  type UpdateProcessor,
} from "./processor.ts";

/** The fields of a Node that calculations read. */
const CALCULATED_FIELDS = [
  "spec.bgp",
  "spec.ipv4VXLANTunnelAddr",
  "spec.vxlanTunnelMACAddr",
  "spec.ipv6VXLANTunnelAddr",
  "spec.vxlanTunnelMACAddrV6",
  "spec.wireguard",
  "spec.addresses",
];
const WIREGUARD_FIELDS = ["spec.wireguard", "status.wireguardPublicKey", "status.wireguardPublicKeyV6"];

/** Passes Nodes through unchanged. */
export const nodeProcessor: UpdateProcessor = passThroughIf((resource) =>
  readNode(resource, rejectWrongTypes(...CALCULATED_FIELDS)),
);

/** @param options.usePodCidr derives blocks from the pod CIDRs of Nodes, for clusters in which Kubernetes assigns them */
export function felixNodeProcessor(options: { readonly usePodCidr: boolean }): UpdateProcessor {
  const podCidrs = new Map<string, ReadonlySet<Cidr>>();
  return {
    reset: () => podCidrs.clear(),
    process: (update, report) => {
      const key = resourceKey(update.key, "Node");
      const host = key.name;
      const resource = resourceOf(update);
      const errors: WrongShape[] = [];
      const node = resource === undefined ? undefined : readNode(resource, (error) => errors.push(error));
      for (const error of errors) report(error.message);
      const config = (name: string, value: string | undefined): DerivedUpdate => ({
        key: { type: "hostConfig", host, name },
        value,
      });
      const hasWireguard = !errors.some((error) => affects(error, WIREGUARD_FIELDS));
      const updates: DerivedUpdate[] = [
        config("IpInIpTunnelAddr", node?.tunnels.ipip[4]),
        config("IPv4VXLANTunnelAddr", node?.tunnels.vxlan[4]),
        config("VXLANTunnelMACAddr", node?.vxlanMacs[4]),
        config("IPv6VXLANTunnelAddr", node?.tunnels.vxlan[6]),
        config("VXLANTunnelMACAddrV6", node?.vxlanMacs[6]),
        {
          key: { type: "wireguard", host },
          value: node !== undefined && hasWireguard ? wireguardOf(node) : undefined,
        },
        { key: { type: "hostIp", host }, value: node?.networks[4]?.address },
      ];
      if (options.usePodCidr) {
        const before = podCidrs.get(host) ?? new Set<Cidr>();
        const now = new Set(node?.podCidrs);
        podCidrs.set(host, now);
        if (now.size === 0) podCidrs.delete(host);
        for (const cidr of before) if (!now.has(cidr)) updates.push({ key: { type: "block", cidr }, value: undefined });
        for (const cidr of now) updates.push({ key: { type: "block", cidr }, value: hostBlock(cidr, host) });
      }
      const isRejected = errors.some((error) => isWrongType(error) && affects(error, CALCULATED_FIELDS));
      updates.push({ key, value: isRejected ? undefined : convertOrReport(resource, limitDepth, report) });
      return updates;
    },
  };
}

function wireguardOf({ tunnels, wireguardKeys }: Node): Wireguard | undefined {
  const value = {
    ...(tunnels.wireguard[4] === undefined ? {} : { interfaceIpv4Addr: tunnels.wireguard[4] }),
    ...(wireguardKeys[4] === undefined ? {} : { publicKey: wireguardKeys[4] }),
    ...(tunnels.wireguard[6] === undefined ? {} : { interfaceIpv6Addr: tunnels.wireguard[6] }),
    ...(wireguardKeys[6] === undefined ? {} : { publicKeyV6: wireguardKeys[6] }),
  };
  return Object.keys(value).length === 0 ? undefined : value;
}

/** Returns a block that represents all pod addresses of a node. No address is allocated from it. */
function hostBlock(cidr: Cidr, host: string): Block {
  return {
    cidr,
    affinity: `host:${host}`,
    allocations: [],
    unallocated: [],
    attributes: [],
    sequenceNumber: 0n,
    sequenceNumberForAllocation: {},
    deleted: false,
  };
}
