// Prepares the configuration of the stock IPAM plugin `host-local`: replaces `usePodCidr` with the node's pod CIDRs, and reads
// the routes of its `ipam` section.
import { addressBits, type Cidr, ipVersion, tryParseCidr } from "../../lib/ip/ip.ts";
import { defaultRoutes } from "../attach/interface-pair.ts";
import { CniError, INTERNAL } from "../error.ts";
import type { KubernetesApi } from "../kubernetes/api.ts";
import type { JsonObject } from "../request/request.ts";

type Json = unknown;
/** Returns the CIDR for `usePodCidr` (4) or `usePodCidrIPv6` (6). */
type PodCidrOf = (version: 4 | 6) => string;

const podCidrVersion = (subnet: Json): 4 | 6 | undefined => {
  if (typeof subnet !== "string") return undefined;
  const lower = subnet.toLowerCase();
  return lower === "usepodcidr" ? 4 : lower === "usepodcidripv6" ? 6 : undefined;
};

/** Replaces every `usePodCidr`. The Kubernetes API is called only if there is one. */
export async function withPodCidrs(
  config: JsonObject,
  node: string,
  kubernetes: () => Promise<KubernetesApi>,
): Promise<JsonObject> {
  if (!subnetsOf(config).some((subnet) => podCidrVersion(subnet) !== undefined)) return config;
  const { spec } = await (await kubernetes()).node(node);
  const cidrs = spec.podCIDRs ?? (spec.podCIDR === undefined ? [] : [spec.podCIDR]);
  return replacePodCidrs(config, podCidrs(cidrs, node));
}

/** For DEL and CHECK: host-local finds the container by its ID, so any CIDR is accepted and the API is not needed. */
export function withAnyCidrs(config: JsonObject): JsonObject {
  return replacePodCidrs(config, (version) => (version === 4 ? "0.0.0.0/0" : "::/0"));
}

export function podCidrs(cidrs: readonly string[], node: string): PodCidrOf {
  if (cidrs.length === 0) throw new CniError(INTERNAL, `no podCidr for node ${node}`);
  const found = new Map<4 | 6, string>();
  for (const text of cidrs) {
    const cidr = tryParseCidr(text);
    if (cidr === undefined) throw new CniError(INTERNAL, `node ${node}: podCIDR ${JSON.stringify(text)} is not a CIDR`);
    const version = ipVersion(cidr);
    if (found.has(version)) throw new CniError(INTERNAL, `node ${node} has more than one IPv${version} podCIDR`);
    found.set(version, cidr);
  }
  return (version) => {
    const cidr = found.get(version);
    if (cidr === undefined)
      throw new CniError(INTERNAL, `usePodCidr found but there is no IPv${version} CIDR configured on node ${node}`);
    return cidr;
  };
}

function subnetsOf(config: JsonObject): Json[] {
  const ipam = asObject(config["ipam"]);
  const ranges = Array.isArray(ipam["ranges"]) ? ipam["ranges"].flat() : [];
  return [ipam["subnet"], ...ranges.map((range) => asObject(range)["subnet"])];
}

function replacePodCidrs(config: JsonObject, cidrFor: PodCidrOf): JsonObject {
  const replaceSubnet = (range: Json): Json => {
    const object = asObject(range);
    const version = podCidrVersion(object["subnet"]);
    return version === undefined ? range : { ...object, subnet: cidrFor(version) };
  };
  const ipam = asObject(replaceSubnet(config["ipam"] ?? {}));
  const ranges = ipam["ranges"];
  if (!Array.isArray(ranges)) return { ...config, ipam };
  return {
    ...config,
    ipam: { ...ipam, ranges: ranges.map((set: Json) => (Array.isArray(set) ? set.map(replaceSubnet) : set)) },
  };
}

/** Returns the pod's routes: those of the `ipam` section or, if there are none, default routes. */
export function containerRoutes(config: JsonObject, includeDefaultRoutes: boolean): Cidr[] {
  const ipam = asObject(config["ipam"]);
  const custom = ipam["type"] === "host-local" ? customRoutes(ipam["routes"]) : [];
  if (custom.length === 0) return defaultRoutes();
  return includeDefaultRoutes ? [...custom, ...defaultRoutes()] : custom;
}

function customRoutes(routes: Json): Cidr[] {
  if (routes === undefined || routes === null) return [];
  if (!Array.isArray(routes)) throw new CniError(INTERNAL, "ipam.routes: want a list of {dst}");
  return routes.map((route: Json) => {
    const { dst } = asObject(route);
    const cidr = typeof dst === "string" && dst.includes("/") ? tryParseCidr(dst) : undefined;
    if (cidr === undefined || Number(cidr.split("/")[1]) > addressBits(ipVersion(cidr)))
      throw new CniError(
        INTERNAL,
        `ipam.routes: invalid CIDR address: ${dst === undefined ? "no dst" : JSON.stringify(dst)}`,
      );
    return cidr;
  });
}

const asObject = (value: Json): Record<string, Json> =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Record<string, Json>) : {};
