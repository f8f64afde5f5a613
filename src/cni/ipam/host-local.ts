// The stock IPAM plugin `host-local`, with the node's pod CIDRs filled in for it, and the routes its section may name.
import { addressBits, type Cidr, ipVersion, tryParseCidr } from "../../lib/ip/ip.ts";
import { defaultRoutes } from "../attach/veth.ts";
import { CniError, INTERNAL } from "../error.ts";
import type { KubernetesApi } from "../kubernetes/api.ts";
import type { JsonObject } from "../request/request.ts";

type Json = unknown;
/** Gives the CIDR for `usePodCidr` (4) or `usePodCidrIPv6` (6). */
type Substitute = (version: 4 | 6) => string;

const asksForPodCidr = (subnet: Json): 4 | 6 | undefined => {
  if (typeof subnet !== "string") return undefined;
  const lower = subnet.toLowerCase();
  return lower === "usepodcidr" ? 4 : lower === "usepodcidripv6" ? 6 : undefined;
};

/** The configuration with every `usePodCidr` replaced; the API is only asked when there is one. */
export async function withPodCidrs(
  config: JsonObject,
  node: string,
  kubernetes: () => Promise<KubernetesApi>,
): Promise<JsonObject> {
  if (!subnetsOf(config).some((subnet) => asksForPodCidr(subnet) !== undefined)) return config;
  const { spec } = await (await kubernetes()).node(node);
  const cidrs = spec.podCIDRs ?? (spec.podCIDR === undefined ? [] : [spec.podCIDR]);
  return substitute(config, podCidrs(cidrs, node));
}

/** For DEL: host-local looks the container up by name, any CIDR will do, and the API may be gone. */
export function withAnyCidrs(config: JsonObject): JsonObject {
  return substitute(config, (version) => (version === 4 ? "0.0.0.0/0" : "::/0"));
}

export function podCidrs(cidrs: readonly string[], node: string): Substitute {
  if (cidrs.length === 0) throw new CniError(INTERNAL, `no podCidr for node ${node}`);
  const found = new Map<4 | 6, string>();
  for (const text of cidrs) {
    const cidr = tryParseCidr(text);
    if (cidr === undefined) throw new CniError(INTERNAL, `node ${node}: ${JSON.stringify(text)} is no CIDR`);
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

function substitute(config: JsonObject, cidrFor: Substitute): JsonObject {
  const fix = (holder: Json): Json => {
    const object = asObject(holder);
    const version = asksForPodCidr(object["subnet"]);
    return version === undefined ? holder : { ...object, subnet: cidrFor(version) };
  };
  const ipam = asObject(fix(config["ipam"] ?? {}));
  const ranges = ipam["ranges"];
  if (!Array.isArray(ranges)) return { ...config, ipam };
  return {
    ...config,
    ipam: { ...ipam, ranges: ranges.map((set: Json) => (Array.isArray(set) ? set.map(fix) : set)) },
  };
}

/** The pod's routes: those of the `ipam` section, else everything. */
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
