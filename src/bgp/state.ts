// What BGP follows from, read once and typed: nodes, configurations, peers, filters, pools and this host's blocks. One
// object that makes no sense is reported and left out; the rest stands.
import {
  type Cidr,
  type IpAddress,
  type IpNetwork,
  type IpVersion,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
  tryParseNetwork,
} from "../lib/ip.ts";
import { JsonReader } from "../lib/json-reader.ts";
import {
  type BlockAffinity,
  isValueError,
  type Labels,
  lookupIn,
  type Matcher,
  compileSelector,
  parseAsNumber,
  parseDuration,
  parseSelector,
  type Pool,
  type Resource,
} from "../model/index.ts";

export interface BgpNode {
  readonly name: string;
  readonly labels: Labels;
  readonly asNumber: number | undefined;
  readonly networks: Readonly<Record<IpVersion, IpNetwork | undefined>>;
  /** A route reflector's; absent for all others. */
  readonly clusterId: string | undefined;
  readonly wireguard: Readonly<Record<IpVersion, IpAddress | undefined>>;
}

export interface SecretRef {
  readonly name: string;
  readonly key: string;
}
export interface PrefixAdvertisement {
  readonly cidr: string;
  readonly communities: readonly string[];
}
export interface BgpConfiguration {
  readonly logSeverity: string | undefined;
  readonly meshEnabled: boolean | undefined;
  readonly asNumber: number | undefined;
  readonly listenPort: number | undefined;
  readonly bindMode: string | undefined;
  readonly meshPassword: SecretRef | undefined;
  readonly meshRestartSeconds: number | undefined;
  readonly communities: Labels;
  readonly prefixAdvertisements: readonly PrefixAdvertisement[];
  readonly ignoredInterfaces: readonly string[];
  readonly programClusterRoutes: string | undefined;
  readonly routePriority: Readonly<Record<IpVersion, number>>;
  readonly serviceClusterIps: readonly string[];
  readonly serviceExternalIps: readonly string[];
  readonly serviceLoadBalancerIps: readonly string[];
  readonly serviceLoadBalancerAggregation: boolean;
}

export interface BgpPeer {
  readonly name: string;
  /** Which nodes it is for: one, those that match, or all. */
  readonly node: string | undefined;
  readonly nodeSelector: Matcher | undefined;
  readonly peerAddress: { readonly address: IpAddress; readonly port: number | undefined } | undefined;
  readonly peerSelector: Matcher | undefined;
  readonly isLocalWorkload: boolean;
  readonly asNumber: number | undefined;
  readonly localAsNumber: number | undefined;
  readonly keepOriginalNextHop: boolean;
  readonly nextHopMode: "Auto" | "Self" | "Keep" | undefined;
  readonly password: SecretRef | undefined;
  readonly sourceAddress: "UseNodeIP" | "None";
  readonly restartSeconds: number | undefined;
  readonly keepaliveSeconds: number | undefined;
  readonly numAllowedLocalAs: number | undefined;
  readonly ttlSecurity: number | undefined;
  readonly reachableBy: IpAddress | undefined;
  readonly filters: readonly string[];
  readonly isReversed: boolean;
}

/** A filter as stored; its rules are read by who needs them. */
export interface BgpFilter {
  readonly name: string;
  readonly spec: JsonReader;
}

export interface Block {
  readonly cidr: Cidr;
  readonly state: BlockAffinity["state"];
}

export interface Problem {
  /** Such as `BGPPeer(tor)`. */
  readonly object: string;
  readonly problem: string;
}

/** Everything, as of one moment. Names are in alphabetical order. */
export interface BgpState {
  readonly nodes: ReadonlyMap<string, BgpNode>;
  /** `default` and `node.<name>`. */
  readonly configurations: ReadonlyMap<string, BgpConfiguration>;
  readonly peers: ReadonlyMap<string, BgpPeer>;
  readonly filters: ReadonlyMap<string, BgpFilter>;
  readonly pools: readonly Pool[];
  /** Blocks with an affinity for the host in question. */
  readonly blocks: readonly Block[];
  readonly problems: readonly Problem[];
}

/** A cluster ID that is none counts as absent: the node is no reflector, but there. */
export function parseNode(resource: Resource, report: (problem: string) => void): BgpNode {
  const spec = new JsonReader(resource.spec ?? {}, "spec");
  const bgp = spec.object("bgp");
  const wireguard = spec.object("wireguard");
  const clusterText = bgp?.filled("routeReflectorClusterID");
  const clusterId = clusterText === undefined ? undefined : tryParseAddress(clusterText);
  const isClusterId = clusterId !== undefined && ipVersion(clusterId) === 4;
  if (clusterText !== undefined && !isClusterId)
    report(`spec.bgp.routeReflectorClusterID: ${JSON.stringify(clusterText)} is no IPv4 address: not used`);
  return {
    name: resource.metadata.name,
    labels: resource.metadata.labels ?? {},
    asNumber: asNumberOf(bgp, "asNumber"),
    networks: { 4: networkOf(bgp, 4), 6: networkOf(bgp, 6) },
    clusterId: isClusterId ? clusterId : undefined,
    wireguard: { 4: wireguardOf(wireguard, 4), 6: wireguardOf(wireguard, 6) },
  };
}

function networkOf(bgp: JsonReader | undefined, version: IpVersion): IpNetwork | undefined {
  const text = bgp?.filled(`ipv${version}Address`);
  if (text === undefined) return undefined;
  const network = tryParseNetwork(text);
  return network !== undefined && ipVersion(network.address) === version
    ? network
    : bgp?.fail(`ipv${version}Address`, `an IPv${version} address`);
}

function wireguardOf(wireguard: JsonReader | undefined, version: IpVersion): IpAddress | undefined {
  return tryParseAddress(wireguard?.filled(`interfaceIPv${version}Address`) ?? "");
}

/**
 * Field by field: without the rest of its settings a node would be another's peer than was meant. What cannot be read of
 * the mesh is read as none.
 */
export function parseConfiguration(resource: Resource, report: (problem: string) => void): BgpConfiguration {
  const spec = new JsonReader(resource.spec ?? {}, "spec");
  const read = <T>(field: () => T, otherwise: T, how = "not used"): T => {
    try {
      return field();
    } catch (error) {
      if (!isValueError(error)) throw error;
      report(`${error.message}: ${how}`);
      return otherwise;
    }
  };
  const communities = read<Record<string, string>>(() => {
    const named = spec.objects("communities").map((each) => [each.text("name") ?? "", each.text("value") ?? ""]);
    return Object.fromEntries(named) as Record<string, string>;
  }, {});
  const cidrs = (name: string) =>
    read(() => spec.objects(name), []).flatMap((entry) =>
      read(() => {
        const cidr = entry.filled("cidr");
        if (cidr === undefined) return [];
        return tryParseCidr(cidr) === undefined ? entry.fail("cidr", `a CIDR, not ${JSON.stringify(cidr)}`) : [cidr];
      }, []),
    );
  const noMesh = "no mesh";
  const meshEnabled = read(() => spec.flag("nodeToNodeMeshEnabled"), false, noMesh);
  const meshPassword = read<SecretRef | "unreadable" | undefined>(
    () => secretOf(spec, "nodeMeshPassword"),
    "unreadable",
    noMesh,
  );
  const priority = (version: IpVersion) =>
    read(() => within(spec, `ipv${version}NormalRoutePriority`, 1, 2147483646), undefined) ?? DEFAULT_PRIORITY;
  const text = (name: string) => read(() => spec.filled(name), undefined);
  return {
    logSeverity: text("logSeverityScreen"),
    meshEnabled: meshPassword === "unreadable" ? false : meshEnabled,
    asNumber: read(() => asNumberOf(spec, "asNumber"), undefined),
    listenPort: read(() => within(spec, "listenPort", 0, 65535), undefined) || undefined,
    bindMode: text("bindMode"),
    meshPassword: meshPassword === "unreadable" ? undefined : meshPassword,
    meshRestartSeconds: read(() => secondsOf(spec, "nodeMeshMaxRestartTime", 0, MAX_RESTART), undefined),
    communities,
    prefixAdvertisements: read(() => spec.objects("prefixAdvertisements"), []).flatMap((entry) =>
      read(() => [{ cidr: entry.text("cidr") ?? "", communities: entry.texts("communities") }], []),
    ),
    ignoredInterfaces: read(() => spec.texts("ignoredInterfaces"), []),
    programClusterRoutes: text("programClusterRoutes"),
    routePriority: { 4: priority(4), 6: priority(6) },
    serviceClusterIps: cidrs("serviceClusterIPs"),
    serviceExternalIps: cidrs("serviceExternalIPs"),
    serviceLoadBalancerIps: cidrs("serviceLoadBalancerIPs"),
    serviceLoadBalancerAggregation: text("serviceLoadBalancerAggregation") !== "Disabled",
  };
}

export const DEFAULT_PRIORITY = 1024;

export function parsePeer(resource: Resource): BgpPeer {
  const spec = new JsonReader(resource.spec ?? {}, "spec");
  const mode = spec.filled("nextHopMode");
  if (mode !== undefined && mode !== "Auto" && mode !== "Self" && mode !== "Keep")
    spec.fail("nextHopMode", "Auto, Self or Keep");
  const peerAddress = peerAddressOf(spec);
  const reachable = spec.filled("reachableBy");
  const reachableBy =
    reachable === undefined ? undefined : (tryParseAddress(reachable) ?? spec.fail("reachableBy", "an IP address"));
  if (
    reachableBy !== undefined &&
    peerAddress !== undefined &&
    ipVersion(reachableBy) !== ipVersion(peerAddress.address)
  )
    spec.fail("reachableBy", `an IPv${ipVersion(peerAddress.address)} address, as peerIP is`);
  return {
    name: resource.metadata.name,
    node: spec.filled("node"),
    nodeSelector: matcherOf(spec, "nodeSelector"),
    peerAddress,
    peerSelector: matcherOf(spec, "peerSelector"),
    isLocalWorkload: spec.filled("localWorkloadSelector") !== undefined,
    asNumber: asNumberOf(spec, "asNumber"),
    localAsNumber: asNumberOf(spec, "localASNumber"),
    keepOriginalNextHop: spec.flag("keepOriginalNextHop") ?? false,
    nextHopMode: mode as BgpPeer["nextHopMode"],
    password: secretOf(spec, "password"),
    sourceAddress: spec.text("sourceAddress") === "None" ? "None" : "UseNodeIP",
    restartSeconds: secondsOf(spec, "maxRestartTime", 0, MAX_RESTART),
    keepaliveSeconds: secondsOf(spec, "keepaliveTime", 1, 65535),
    numAllowedLocalAs: within(spec, "numAllowedLocalASNumbers", 0, 255),
    ttlSecurity: within(spec, "ttlSecurity", 0, 255) || undefined,
    reachableBy,
    filters: spec.texts("filters"),
    isReversed: spec.text("reversePeering") !== "Manual",
  };
}

/** `10.0.0.1`, `10.0.0.1:179`, `fd00::1` or `[fd00::1]:179`. */
function peerAddressOf(spec: JsonReader): BgpPeer["peerAddress"] {
  const text = spec.filled("peerIP");
  if (text === undefined) return undefined;
  const bare = tryParseAddress(text);
  if (bare !== undefined) return { address: bare, port: undefined };
  const [, v6, v4, portText] = /^(?:\[([^\]]+)\]|([^:]+)):(\d{1,5})$/.exec(text) ?? [];
  const address = tryParseAddress(v6 ?? v4 ?? "");
  const port = Number(portText);
  if (address === undefined || port < 1 || port > 65535)
    return spec.fail("peerIP", "an address, with or without :port");
  return { address, port };
}

function matcherOf(spec: JsonReader, name: string): Matcher | undefined {
  const text = spec.filled(name);
  return text === undefined ? undefined : compileSelector(parseSelector(text));
}

export const matchesNode = (matcher: Matcher, node: BgpNode): boolean => matcher(lookupIn(node.labels));

function asNumberOf(spec: JsonReader | undefined, name: string): number | undefined {
  const value = spec?.raw(name);
  if (value === undefined) return undefined;
  return parseAsNumber(value) || spec?.fail(name, "an AS number such as 64512 or 1.10");
}

/** The protocol has 12 bits for it. */
const MAX_RESTART = 4095;

/** Whole seconds; halves go up. What the protocol cannot say is moved to what it can. */
function secondsOf(spec: JsonReader, name: string, min: number, max: number): number | undefined {
  const text = spec.filled(name);
  if (text === undefined) return undefined;
  const ns = parseDuration(text) ?? spec.fail(name, "a duration such as 90s");
  return Math.min(max, Math.max(min, Math.round(ns / 1e9)));
}

function within(spec: JsonReader, name: string, min: number, max: number): number | undefined {
  const value = spec.whole(name);
  return value === undefined || (value >= min && value <= max) ? value : spec.fail(name, `${min} to ${max}`);
}

function secretOf(spec: JsonReader, name: string): SecretRef | undefined {
  const ref = spec.object(name)?.object("secretKeyRef");
  const [secret, key] = [ref?.filled("name"), ref?.filled("key")];
  return secret === undefined || key === undefined ? undefined : { name: secret, key };
}

/** Reads one object; what it cannot read is a problem. */
export function parseOrReport<T>(
  resource: Resource,
  parse: (resource: Resource, report: (problem: string) => void) => T,
  problems: Problem[],
): T | undefined {
  const object = `${resource.kind}(${resource.metadata.name})`;
  try {
    return parse(resource, (problem) => problems.push({ object, problem }));
  } catch (error) {
    if (!isValueError(error)) throw error;
    problems.push({ object, problem: `${error.message}: left out` });
    return undefined;
  }
}
