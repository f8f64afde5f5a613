// Prints and parses the canonical text of a key: its path in etcd and SQLite. Keys that are not stored have a path in the
// same format. Parsing inverts printing; text that is not a key of Calico parses to undefined. In the paths of derived
// and status keys, `%` and `/` in names are escaped. The names of resources and IPAM handles are not escaped, so a name
// that contains `/` has no path.
import { type Cidr, type IpVersion, ipVersion, tryParseAddress, tryParseCidr } from "../../lib/ip/ip.ts";
import { unreachable } from "../../lib/unreachable.ts";
import type { Key, StoredKey } from "./keys.ts";
import { findKindByPlural, kindOf } from "../kinds.ts";
import { parseLegacyPolicyName, policyKindOf } from "./policy-key.ts";

export class InvalidKey extends Error {
  override readonly name = "InvalidKey";
  /** @param part the part of the key that cannot be part of a path */
  constructor(
    readonly key: Key,
    readonly part: string,
    readonly reason: string,
  ) {
    super(`${key.type} key ${JSON.stringify(key)}: ${JSON.stringify(part)} ${reason}`);
  }
}

export const RESOURCES = "/calico/resources/v3/projectcalico.org/";
export const IPAM = "/calico/ipam/v2/";
export const FELIX_STATUS = "/calico/felix/v2/";
export const HOST_ENDPOINT_STATUS = "/calico/felix/v1/host/";
const V1 = "/calico/v1/";
const V1_HOST = `${V1}host/`;
const BGP = "/calico/bgp/v1/";
const BGP_PORT = 179;

/** @throws InvalidKey for a key that has no path, such as that of a resource with `/` in its name */
export function keyPath(key: Key): string {
  switch (key.type) {
    case "resource": {
      const folder = `${RESOURCES}${kindOf(key.kind).plural}/`;
      if (key.namespace === undefined) return folder + plain(key, key.name);
      return `${folder}${plain(key, key.namespace)}/${plain(key, key.name)}`;
    }
    case "block":
      return `${IPAM}assignment/ipv${ipVersion(key.cidr)}/block/${cidrName(key.cidr)}`;
    case "blockAffinity":
      return `${IPAM}${key.affinityType}/${plain(key, key.host)}/ipv${ipVersion(key.cidr)}/block/${cidrName(key.cidr)}`;
    case "ipamHandle":
      return `${IPAM}handle/${plain(key, key.handleId)}`;
    case "ipamConfig":
      return `${IPAM}config`;
    case "ipamHost":
      return `${IPAM}host/${plain(key, key.host)}`;
    case "felixStatus":
      return `${regionPath(key)}host/${plain(key, key.host)}/${key.last ? "last_reported_status" : "status"}`;
    case "workloadStatus":
      return `${regionPath(key)}${workloadPath(key)}`;
    case "hostEndpointStatus":
      return `${HOST_ENDPOINT_STATUS}${plain(key, key.host)}/endpoint/${escapeName(key.endpoint)}`;
    case "ready":
      return `${V1}Ready`;
    case "globalConfig":
      return `${V1}config/${escapeName(key.name)}`;
    case "hostConfig":
      return `${V1}host/${plain(key, key.host)}/config/${escapeName(key.name)}`;
    case "workloadEndpoint":
      return `${V1}${workloadPath(key)}`;
    case "hostEndpoint":
      return `${V1}host/${plain(key, key.host)}/endpoint/${escapeName(key.endpoint)}`;
    case "policy":
      return `${V1}policy/${key.kind}/${escapeName(key.namespace)}/${escapeName(key.name)}`;
    case "profileRules":
      return `${V1}policy/profile/${escapeName(key.name)}/rules`;
    case "profileLabels":
      return `${V1}policy/profile/${escapeName(key.name)}/labels`;
    case "tier":
      return `${V1}policy/tier/${escapeName(key.name)}/metadata`;
    case "pool":
      return `${V1}ipam/v${ipVersion(key.cidr)}/pool/${cidrName(key.cidr)}`;
    case "networkSet":
      return `${V1}netset/${escapeName(key.name)}`;
    case "wireguard":
      return `${V1}host/${plain(key, key.host)}/wireguard`;
    case "hostIp":
      return `${V1}host/${plain(key, key.host)}/bird_ip`;
    case "bgpGlobalConfig":
      return `${BGP}global/${plain(key, key.name)}`;
    case "bgpHostConfig":
      return `${BGP}host/${plain(key, key.host)}/${plain(key, key.name)}`;
    case "bgpPeer": {
      const owner = key.host === undefined ? "global" : `host/${plain(key, key.host)}`;
      const port = key.port === undefined || key.port === BGP_PORT ? "" : `-${key.port}`;
      return `${BGP}${owner}/peer_v${ipVersion(key.ip)}/${key.ip}${port}`;
    }
    default:
      return unreachable(key);
  }
}

/** Returns undefined for a path that is not a key of Calico, has the wrong scope, or is not canonical. */
export function parseKeyPath(path: string): Key | undefined {
  if (path.startsWith(RESOURCES)) return parseResource(path.slice(RESOURCES.length).split("/"));
  if (path === `${V1}Ready`) return { type: "ready" };
  // The older layouts are also read without their first slash.
  const absolute = path.startsWith("/") ? path : `/${path}`;
  if (absolute.startsWith(IPAM)) return parseIpam(absolute.slice(IPAM.length).split("/"));
  if (absolute.startsWith(FELIX_STATUS)) return parseStatus(absolute.slice(FELIX_STATUS.length).split("/"));
  if (absolute.startsWith(HOST_ENDPOINT_STATUS)) {
    const [host = "", literal, endpoint = "", ...rest] = absolute.slice(HOST_ENDPOINT_STATUS.length).split("/");
    if (host === "" || literal !== "endpoint" || endpoint === "" || rest.length > 0) return undefined;
    return { type: "hostEndpointStatus", host, endpoint: unescapeName(endpoint) };
  }
  if (absolute.startsWith(V1_HOST)) return parseV1Host(absolute.slice(V1_HOST.length).split("/"));
  if (absolute.startsWith(V1)) return parseV1(absolute.slice(V1.length).split("/"));
  if (absolute.startsWith(BGP)) return parseBgp(absolute.slice(BGP.length).split("/"));
  return undefined;
}

const STORED_TYPES: ReadonlySet<string> = new Set<StoredKey["type"]>([
  "resource",
  "block",
  "blockAffinity",
  "ipamHandle",
  "ipamConfig",
  "ipamHost",
  "felixStatus",
  "workloadStatus",
  "hostEndpointStatus",
]);
export const isStoredKey = (key: Key): key is StoredKey => STORED_TYPES.has(key.type);

/** Parses a path of a datastore. Returns undefined for derived keys, which are never stored. */
export function parseStoredPath(path: string): StoredKey | undefined {
  const key = parseKeyPath(path);
  return key !== undefined && isStoredKey(key) ? key : undefined;
}

function escapeName(name: string): string {
  if (!name.includes("/") && !name.includes("%")) return name;
  return name.replaceAll("%", "%25").replaceAll("/", "%2f");
}
function unescapeName(text: string): string {
  return text.includes("%") ? text.replaceAll("%2f", "/").replaceAll("%25", "%") : text;
}
const cidrName = (cidr: Cidr): string => cidr.replace("/", "-");

function parseCidrName(text: string, family: IpVersion): Cidr | undefined {
  const cidr = tryParseCidr(text.replace("-", "/"));
  return cidr !== undefined && ipVersion(cidr) === family && cidrName(cidr) === text ? cidr : undefined;
}

/** Checks a name that is not escaped in the path. */
function plain(key: Key, name: string): string {
  if (name === "") throw new InvalidKey(key, name, "is empty");
  if (name.includes("/")) throw new InvalidKey(key, name, "contains a /, which is not allowed in names");
  return name;
}

interface WorkloadNames {
  readonly host: string;
  readonly orchestrator: string;
  readonly workload: string;
  readonly endpoint: string;
}
function workloadPath(key: Key & WorkloadNames): string {
  const { orchestrator, workload, endpoint } = key;
  return `host/${plain(key, key.host)}/workload/${escapeName(orchestrator)}/${escapeName(workload)}/endpoint/${escapeName(endpoint)}`;
}

/** Parses `[…, orchestrator, workload, "endpoint", endpoint]`, where `orchestrator` has the index `at`. */
function parseWorkload(host: string, parts: readonly string[], at: number): WorkloadNames | undefined {
  const orchestrator = parts[at] ?? "";
  const workload = parts[at + 1] ?? "";
  const endpoint = parts[at + 3] ?? "";
  if (parts.length !== at + 4 || parts[at + 2] !== "endpoint") return undefined;
  if (host === "" || orchestrator === "" || workload === "" || endpoint === "") return undefined;
  return {
    host,
    orchestrator: unescapeName(orchestrator),
    workload: unescapeName(workload),
    endpoint: unescapeName(endpoint),
  };
}

const isRegion = (text: string): boolean => text === "no-region" || /^region-[^/]+$/.test(text);

function regionPath(key: Key & { readonly region: string }): string {
  if (!isRegion(key.region))
    throw new InvalidKey(key, key.region, "is not a region: want no-region or region-<name> without /");
  return `${FELIX_STATUS}${key.region}/`;
}

function parseResource([plural = "", ...names]: readonly string[]): Key | undefined {
  const kind = findKindByPlural(plural);
  if (kind === undefined || names.length !== (kind.namespaced ? 2 : 1) || names.includes("")) return undefined;
  const [first = "", second = ""] = names;
  return kind.namespaced
    ? { type: "resource", kind: kind.name, namespace: first, name: second }
    : { type: "resource", kind: kind.name, name: first };
}

function parseIpam(parts: readonly string[]): Key | undefined {
  const [first, second = "", third, fourth = "", fifth = ""] = parts;
  if (first === "config") return parts.length === 1 ? { type: "ipamConfig" } : undefined;
  if (parts.length === 2 && second !== "") {
    if (first === "handle") return { type: "ipamHandle", handleId: second };
    if (first === "host") return { type: "ipamHost", host: second };
  }
  if (first === "assignment" && parts.length === 4 && third === "block") {
    const cidr = parseFamilyCidr(second, fourth);
    return cidr === undefined ? undefined : { type: "block", cidr };
  }
  if ((first === "host" || first === "virtual") && parts.length === 5 && fourth === "block" && second !== "") {
    const cidr = parseFamilyCidr(third ?? "", fifth);
    return cidr === undefined ? undefined : { type: "blockAffinity", affinityType: first, host: second, cidr };
  }
  return undefined;
}

function parseFamilyCidr(family: string, name: string): Cidr | undefined {
  if (family === "ipv4" || family === "v4") return parseCidrName(name, 4);
  if (family === "ipv6" || family === "v6") return parseCidrName(name, 6);
  return undefined;
}

function parseStatus([region = "", literal, host = "", type, ...rest]: readonly string[]): Key | undefined {
  if (!isRegion(region) || literal !== "host" || host === "") return undefined;
  if (type === "workload") {
    const names = parseWorkload(host, rest, 0);
    return names === undefined ? undefined : { type: "workloadStatus", region, ...names };
  }
  if (rest.length > 0 || (type !== "status" && type !== "last_reported_status")) return undefined;
  return { type: "felixStatus", region, host, last: type === "last_reported_status" };
}

function parseV1([folder, ...parts]: readonly string[]): Key | undefined {
  const [first = "", second = "", third = ""] = parts;
  switch (folder) {
    case "config":
      return parts.length === 1 && first !== "" ? { type: "globalConfig", name: unescapeName(first) } : undefined;
    case "netset":
      return parts.length === 1 && first !== "" ? { type: "networkSet", name: unescapeName(first) } : undefined;
    case "ipam": {
      if (parts.length !== 3 || second !== "pool") return undefined;
      const cidr = parseFamilyCidr(first, third);
      return cidr === undefined ? undefined : { type: "pool", cidr };
    }
    case "policy":
      return parsePolicy(parts);
    default:
      return undefined;
  }
}

/** Parses `[host, type, …]`. Most keys of a cluster are workload endpoints, so this function copies no lists. */
function parseV1Host(parts: readonly string[]): Key | undefined {
  const [host = "", type, name = ""] = parts;
  if (host === "") return undefined;
  switch (type) {
    case "config":
      return parts.length === 3 && name !== "" ? { type: "hostConfig", host, name: unescapeName(name) } : undefined;
    case "endpoint":
      if (parts.length !== 3 || name === "") return undefined;
      return { type: "hostEndpoint", host, endpoint: unescapeName(name) };
    case "workload": {
      const names = parseWorkload(host, parts, 2);
      return names === undefined ? undefined : { type: "workloadEndpoint", ...names };
    }
    case "wireguard":
      return parts.length === 2 ? { type: "wireguard", host } : undefined;
    case "bird_ip":
      return parts.length === 2 ? { type: "hostIp", host } : undefined;
    default:
      return undefined;
  }
}

function parsePolicy(parts: readonly string[]): Key | undefined {
  const [first = "", second = "", third = "", fourth = ""] = parts;
  if (first === "profile" || first === "tier") {
    if (second === "") return undefined;
    const name = unescapeName(second);
    if (parts.length === 3 && first === "profile" && third === "rules") return { type: "profileRules", name };
    if (parts.length === 3 && first === "profile" && third === "labels") return { type: "profileLabels", name };
    if (parts.length === 3 && first === "tier" && third === "metadata") return { type: "tier", name };
    if (parts.length === 4 && first === "tier" && third === "policy")
      return parseLegacyPolicyName(unescapeName(fourth));
    return undefined;
  }
  const kind = policyKindOf(first);
  if (kind === undefined || parts.length !== 3 || third === "" || kind.namespaced !== (second !== "")) return undefined;
  return { type: "policy", kind: kind.name, namespace: unescapeName(second), name: unescapeName(third) };
}

function parseBgp([owner, ...parts]: readonly string[]): Key | undefined {
  const host = owner === "host" ? parts[0] : undefined;
  const names = owner === "host" ? parts.slice(1) : parts;
  if ((owner !== "host" && owner !== "global") || host === "" || names.includes("")) return undefined;
  const [name = "", peer = ""] = names;
  const owned = host === undefined ? {} : { host };
  if (names.length === 1) {
    return host === undefined ? { type: "bgpGlobalConfig", name } : { type: "bgpHostConfig", host, name };
  }
  if (names.length !== 2 || (name !== "peer_v4" && name !== "peer_v6")) return undefined;
  const [, ipText = "", portText] = /^([^-]+)(?:-([1-9]\d{0,4}))?$/.exec(peer) ?? [];
  const ip = tryParseAddress(ipText);
  if (ip === undefined || ip !== ipText || name !== `peer_v${ipVersion(ip)}`) return undefined;
  if (portText === undefined) return { type: "bgpPeer", ...owned, ip };
  const port = Number(portText);
  return port > 65535 || port === BGP_PORT ? undefined : { type: "bgpPeer", ...owned, ip, port };
}
