// A Node as Felix sees it. Every key it can set is told each time, set or gone, so a Node that loses
// an address loses what was derived from it. An address that is none deletes its key and is reported.
import { type Cidr, tryParseAddress, tryParseCidr, tryParseNetwork } from "../../lib/ip.ts";
import { JsonReader } from "../../lib/json-reader.ts";
import type { Block, Wireguard } from "../derived.ts";
import type { Resource } from "../resource.ts";
import { isValueError, type ReportProblem } from "../value-error.ts";
import { convertOrReport, type DerivedUpdate, resourceKey, resourceOf, type UpdateProcessor } from "./processor.ts";
import { shapely } from "./shapes.ts";

const TUNNEL_FIELDS = [
  ["IPv4VXLANTunnelAddr", "ipv4VXLANTunnelAddr"],
  ["VXLANTunnelMACAddr", "vxlanTunnelMACAddr"],
  ["IPv6VXLANTunnelAddr", "ipv6VXLANTunnelAddr"],
  ["VXLANTunnelMACAddrV6", "vxlanTunnelMACAddrV6"],
] as const;

/** @param usePodCidr derive blocks from the nodes' pod CIDRs, where addresses come from Kubernetes itself */
export function felixNodeProcessor(options: { readonly usePodCidr: boolean }): UpdateProcessor {
  const podCidrs = new Map<string, ReadonlySet<Cidr>>();
  return {
    restart: () => podCidrs.clear(),
    process: (update, report) => {
      const key = resourceKey(update.key, "Node");
      const host = key.name;
      const resource = resourceOf(update);
      const fields = readNode(resource, report);
      const bgp = attempt(() => fields?.object("bgp"), report);
      const config = (name: string, value: string | undefined): DerivedUpdate => ({
        key: { type: "hostConfig", host, name },
        value,
      });
      const updates: DerivedUpdate[] = [
        config(
          "IpInIpTunnelAddr",
          attempt(() => address(bgp, "ipv4IPIPTunnelAddr"), report),
        ),
        ...TUNNEL_FIELDS.map(([name, field]) =>
          config(
            name,
            attempt(() => (field.includes("MAC") ? fields?.filled(field) : address(fields, field)), report),
          ),
        ),
        { key: { type: "wireguard", host }, value: attempt(() => wireguardOf(fields, resource), report) },
        { key: { type: "hostIp", host }, value: attempt(() => networkAddress(bgp, "ipv4Address"), report) },
      ];
      if (options.usePodCidr) {
        const before = podCidrs.get(host) ?? new Set<Cidr>();
        const now = new Set(attempt(() => podCidrsOf(resource), report) ?? []);
        podCidrs.set(host, now);
        if (now.size === 0) podCidrs.delete(host);
        for (const cidr of before) if (!now.has(cidr)) updates.push({ key: { type: "block", cidr }, value: undefined });
        for (const cidr of now) updates.push({ key: { type: "block", cidr }, value: hostBlock(cidr, host) });
      }
      updates.push({ key, value: convertOrReport(resource, (node) => shapely("Node", node), report) });
      return updates;
    },
  };
}

function readNode(resource: Resource | undefined, report: ReportProblem): JsonReader | undefined {
  return resource === undefined ? undefined : attempt(() => new JsonReader(resource.spec, "spec"), report);
}

function attempt<T>(read: () => T, report: ReportProblem): T | undefined {
  try {
    return read();
  } catch (error) {
    if (!isValueError(error)) throw error;
    report(error.message);
    return undefined;
  }
}

function address(fields: JsonReader | undefined, name: string) {
  const text = fields?.filled(name);
  return text === undefined ? undefined : (tryParseAddress(text) ?? fields?.fail(name, "an IP address"));
}

/** The address of a field that also says the network's length. */
function networkAddress(fields: JsonReader | undefined, name: string) {
  const text = fields?.filled(name);
  return text === undefined
    ? undefined
    : (tryParseNetwork(text)?.address ?? fields?.fail(name, "an address such as 10.0.0.1/24"));
}

function wireguardOf(fields: JsonReader | undefined, resource: Resource | undefined): Wireguard | undefined {
  const settings = fields?.object("wireguard");
  const status = resource?.status === undefined ? undefined : new JsonReader(resource.status, "status");
  const v4 = address(settings, "interfaceIPv4Address");
  const v6 = address(settings, "interfaceIPv6Address");
  const publicKey = status?.filled("wireguardPublicKey");
  const publicKeyV6 = status?.filled("wireguardPublicKeyV6");
  if (v4 === undefined && v6 === undefined && publicKey === undefined && publicKeyV6 === undefined) return undefined;
  return {
    ...(v4 === undefined ? {} : { interfaceIpv4Addr: v4 }),
    ...(publicKey === undefined ? {} : { publicKey }),
    ...(v6 === undefined ? {} : { interfaceIpv6Addr: v6 }),
    ...(publicKeyV6 === undefined ? {} : { publicKeyV6 }),
  };
}

function podCidrsOf(resource: Resource | undefined): readonly Cidr[] {
  if (resource?.status === undefined) return [];
  const status = new JsonReader(resource.status, "status");
  return status.texts("podCIDRs").map((text) => tryParseCidr(text) ?? status.fail("podCIDRs", `CIDRs, not ${text}`));
}

/** A block that stands for all of a node's pod addresses; nobody allocates from it. */
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
