// Parses and formats the result of ADD in each version of the CNI specification. Internally there is one form, `CniResult`.
// https://www.cni.dev/docs/spec/#add-success
import {
  type Cidr,
  cidrAddress,
  cidrLength,
  type IpAddress,
  type IpNetwork,
  ipVersion,
  tryParseAddress,
  tryParseNetwork,
} from "../../lib/ip/ip.ts";
import { CniError, DECODING_FAILURE } from "../error.ts";
import type { CniVersion, JsonObject } from "./request.ts";

export interface ResultInterface {
  readonly name: string;
  readonly mac?: string;
  readonly mtu?: number;
  /** Path of its network namespace; undefined for an interface of the host. */
  readonly sandbox?: string;
}
export interface ResultAddress {
  /** With the prefix length that the IPAM plugin returned. */
  readonly address: IpNetwork;
  /** Index into `interfaces`. */
  readonly interface?: number;
  /** Returned by the IPAM plugin; not the gateway that Calico configures in the pod. */
  readonly gateway?: IpAddress;
}
export interface ResultRoute {
  readonly destination: IpNetwork;
  readonly gateway?: IpAddress;
}
/** DNS settings of the pod, if the IPAM plugin returns them. */
export interface ResultDns {
  readonly nameservers?: readonly string[];
  readonly domain?: string;
  readonly search?: readonly string[];
  readonly options?: readonly string[];
}
export interface CniResult {
  readonly interfaces: readonly ResultInterface[];
  readonly ips: readonly ResultAddress[];
  readonly routes: readonly ResultRoute[];
  readonly dns?: ResultDns;
}

const text = ({ address, length }: IpNetwork): string => `${address}/${length}`;
const filled = <N extends string, T>(name: N, list: readonly T[]): { [P in N]?: readonly T[] } =>
  (list.length === 0 ? {} : { [name]: list }) as { [P in N]?: readonly T[] };

/** Returns the result for addresses from Calico's pools, with a route to each. */
export function resultOf(addresses: readonly Cidr[]): CniResult {
  const networks = addresses.map((cidr): IpNetwork => ({ address: cidrAddress(cidr), length: cidrLength(cidr) }));
  return {
    interfaces: [],
    ips: networks.map((address) => ({ address })),
    routes: networks.map((destination) => ({ destination })),
  };
}

/** Returns the result in the JSON format of a CNI version. */
export function renderResult(result: CniResult, version: CniVersion): JsonObject {
  switch (version) {
    case "0.1.0":
    case "0.2.0":
      return renderLegacy(result, version);
    case "0.3.0":
    case "0.3.1":
    case "0.4.0":
      return {
        cniVersion: version,
        ...filled(
          "interfaces",
          result.interfaces.map(({ name, mac, sandbox }) => ({
            name,
            mac,
            sandbox,
          })),
        ),
        ...filled(
          "ips",
          result.ips.map((ip) => ({
            version: String(ipVersion(ip.address.address)),
            interface: ip.interface,
            address: text(ip.address),
          })),
        ),
        ...filled("routes", result.routes.map(renderRoute)),
        dns: result.dns ?? {},
      };
    default:
      return {
        cniVersion: version,
        ...filled(
          "interfaces",
          result.interfaces.map(({ name, mac, mtu, sandbox }) => ({
            name,
            mac,
            mtu: mtu === 0 ? undefined : mtu,
            sandbox,
          })),
        ),
        ...filled(
          "ips",
          result.ips.map((ip) => ({ interface: ip.interface, address: text(ip.address) })),
        ),
        ...filled("routes", result.routes.map(renderRoute)),
        dns: result.dns,
      };
  }
}

/** CNI 0.1.0 and 0.2.0: one address per family, no interfaces. */
function renderLegacy({ ips, routes, dns = {} }: CniResult, version: CniVersion): JsonObject {
  const family = (ofVersion: 4 | 6) => {
    const first = ips.find((ip) => ipVersion(ip.address.address) === ofVersion);
    if (first === undefined) return undefined;
    const own = routes.filter((route) => ipVersion(route.destination.address) === ofVersion);
    return { ip: text(first.address), ...filled("routes", own.map(renderRoute)) };
  };
  return { cniVersion: version, ip4: family(4), ip6: family(6), dns };
}

const renderRoute = ({ destination, gateway }: ResultRoute) => ({ dst: text(destination), gw: gateway });

/** Parses a result of any version: the output of an IPAM plugin, or a `prevResult`. */
export function parseResult(json: unknown): CniResult {
  const object = asObject(json, "the result");
  const isLegacy = object["ip4"] !== undefined || object["ip6"] !== undefined;
  return { ...(isLegacy ? parseLegacy(object) : parseModern(object)), dns: parseDns(object["dns"]) };
}

/** Returns undefined if there are no DNS settings. */
function parseDns(value: unknown): ResultDns | undefined {
  const object = asObject(value ?? {}, "dns");
  const texts = (name: string): readonly string[] =>
    asList(object[name], `dns.${name}`).map((item) => asText(item, `dns.${name}`));
  const dns: ResultDns = {
    ...filled("nameservers", texts("nameservers")),
    ...(typeof object["domain"] === "string" && object["domain"] !== "" ? { domain: object["domain"] } : {}),
    ...filled("search", texts("search")),
    ...filled("options", texts("options")),
  };
  return Object.keys(dns).length === 0 ? undefined : dns;
}

function parseModern(object: JsonObject): CniResult {
  const interfaces = asList(object["interfaces"], "interfaces").map((value): ResultInterface => {
    const item = asObject(value, "interfaces");
    return {
      name: asText(item["name"] ?? "", "interfaces[].name"),
      ...(typeof item["mac"] === "string" ? { mac: item["mac"] } : {}),
      ...(typeof item["mtu"] === "number" ? { mtu: item["mtu"] } : {}),
      ...(typeof item["sandbox"] === "string" && item["sandbox"] !== "" ? { sandbox: item["sandbox"] } : {}),
    };
  });
  const ips = asList(object["ips"], "ips").map((value): ResultAddress => {
    const item = asObject(value, "ips");
    const index = item["interface"];
    const gateway = typeof item["gateway"] === "string" ? tryParseAddress(item["gateway"]) : undefined;
    return {
      address: asNetwork(item["address"], "ips[].address"),
      ...(typeof index === "number" ? { interface: index } : {}),
      gateway,
    };
  });
  return { interfaces, ips, routes: parseRoutes(object["routes"]) };
}

function parseLegacy(object: JsonObject): CniResult {
  const ips: ResultAddress[] = [];
  const routes: ResultRoute[] = [];
  for (const name of ["ip4", "ip6"] as const) {
    if (object[name] === undefined || object[name] === null) continue;
    const family = asObject(object[name], name);
    const gateway = typeof family["gateway"] === "string" ? tryParseAddress(family["gateway"]) : undefined;
    ips.push({ address: asNetwork(family["ip"], `${name}.ip`), gateway });
    routes.push(...parseRoutes(family["routes"]));
  }
  return { interfaces: [], ips, routes };
}

function parseRoutes(value: unknown): ResultRoute[] {
  return asList(value, "routes").map((entry) => {
    const item = asObject(entry, "routes");
    const gateway = typeof item["gw"] === "string" ? tryParseAddress(item["gw"]) : undefined;
    return { destination: asNetwork(item["dst"], "routes[].dst"), gateway };
  });
}

function asObject(value: unknown, what: string): JsonObject {
  if (typeof value !== "object" || value === null || Array.isArray(value)) throw malformed(what, "an object");
  return value as JsonObject;
}
function asList(value: unknown, what: string): readonly unknown[] {
  if (value === undefined || value === null) return [];
  if (!Array.isArray(value)) throw malformed(what, "a list");
  return value;
}
function asText(value: unknown, what: string): string {
  if (typeof value !== "string") throw malformed(what, "text");
  return value;
}
function asNetwork(value: unknown, what: string): IpNetwork {
  const network = typeof value === "string" ? tryParseNetwork(value) : undefined;
  if (network === undefined) throw malformed(what, `an address with its length, not ${JSON.stringify(value)}`);
  return network;
}
const malformed = (what: string, wanted: string): CniError =>
  new CniError(DECODING_FAILURE, `malformed result: ${what}: want ${wanted}`);

/** Returns the address with the full prefix length (/32, /128), as the pod has it. */
export const hostNetwork = (network: IpNetwork): IpNetwork => ({
  address: network.address,
  length: ipVersion(network.address) === 4 ? 32 : 128,
});

export const cidrText = (network: IpNetwork): Cidr => text(network) as Cidr;
