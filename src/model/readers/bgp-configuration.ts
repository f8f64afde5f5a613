// Reads BGPConfigurations.
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import { JsonReader } from "../../lib/encoding/json-reader.ts";
import { quote } from "../../lib/shorten.ts";
import type { Labels, Resource } from "../resource.ts";
import { isInterfacePattern } from "../validation/formats.ts";
import { MAX_RESTART_SECONDS } from "./bgp-peer.ts";
import {
  asNumberIn,
  type ByFamily,
  cidrIn,
  integerIn,
  networkIn,
  type SecretRef,
  secondsIn,
  secretIn,
} from "./fields.ts";
import { fieldReader, type OnUnreadable } from "./unreadable.ts";

export interface BgpConfiguration {
  readonly logSeverity: string | undefined;
  readonly meshEnabled: boolean | undefined;
  readonly asNumber: number | undefined;
  readonly listenPort: number | undefined;
  readonly bindMode: string | undefined;
  readonly meshPassword: SecretRef | undefined;
  readonly meshRestartSeconds: number | undefined;
  /** Values by name. */
  readonly communities: Labels;
  readonly prefixAdvertisements: readonly PrefixAdvertisement[];
  /** Patterns such as `eth*`. */
  readonly ignoredInterfaces: readonly string[];
  readonly programClusterRoutes: string | undefined;
  readonly routePriority: Readonly<Record<IpVersion, number>>;
  /** CIDRs in the spelling of their author, which the BGP plan shows. */
  readonly serviceClusterIps: readonly string[];
  readonly serviceExternalIps: readonly string[];
  readonly serviceLoadBalancerIps: readonly string[];
  readonly serviceLoadBalancerAggregation: boolean;
  /** The addresses of the host for BGP sessions with local workloads. */
  readonly localWorkloadPeeringIps: ByFamily<IpAddress>;
}
export interface PrefixAdvertisement {
  readonly cidr: Cidr;
  /** Communities, or their names. */
  readonly communities: readonly string[];
}

export const DEFAULT_ROUTE_PRIORITY = 1024;
const MAX_ROUTE_PRIORITY = 2147483646;

/**
 * An unreadable entry of a list does not affect the other entries. If the fields that enable the mesh or set its password
 * cannot be read, the mesh is disabled: sessions that may be unwanted or without a password must not be established.
 */
export function readBgpConfiguration(resource: Resource, onUnreadable: OnUnreadable): BgpConfiguration {
  const read = fieldReader(onUnreadable);
  const spec = read(() => new JsonReader(resource.spec ?? {}, "spec"), undefined) ?? new JsonReader({}, "spec");
  const text = (name: string) => read(() => spec.filled(name), undefined);
  const entries = <T>(name: string, readEntry: (entry: JsonReader) => readonly T[]): readonly T[] =>
    read(() => spec.objects(name), []).flatMap((entry) => read(() => readEntry(entry), []));
  const cidrs = (name: string) =>
    entries(name, (entry) => (cidrIn(entry, "cidr") === undefined ? [] : [entry.text("cidr") ?? ""]));
  const meshEnabled = read(() => spec.flag("nodeToNodeMeshEnabled"), false);
  const meshPassword = read(() => secretIn(spec, "nodeMeshPassword"), "unreadable");
  const priority = (version: IpVersion) =>
    read(() => integerIn(spec, `ipv${version}NormalRoutePriority`, 1, MAX_ROUTE_PRIORITY), undefined) ??
    DEFAULT_ROUTE_PRIORITY;
  const peeringIp = (version: IpVersion) =>
    read(() => networkIn(spec, `localWorkloadPeeringIPV${version}`, version)?.address, undefined);
  return {
    logSeverity: text("logSeverityScreen"),
    meshEnabled: meshPassword === "unreadable" ? false : meshEnabled,
    asNumber: read(() => asNumberIn(spec, "asNumber"), undefined),
    listenPort: read(() => integerIn(spec, "listenPort", 0, 65535), undefined) || undefined,
    bindMode: text("bindMode"),
    meshPassword: meshPassword === "unreadable" ? undefined : meshPassword,
    meshRestartSeconds: read(() => secondsIn(spec, "nodeMeshMaxRestartTime", 0, MAX_RESTART_SECONDS), undefined),
    communities: read(() => communitiesIn(spec), {}),
    prefixAdvertisements: entries("prefixAdvertisements", advertisementsIn),
    ignoredInterfaces: read(() => spec.texts("ignoredInterfaces"), []).flatMap((name) =>
      read(() => [checkInterface(spec, name)], []),
    ),
    programClusterRoutes: text("programClusterRoutes"),
    routePriority: { 4: priority(4), 6: priority(6) },
    serviceClusterIps: cidrs("serviceClusterIPs"),
    serviceExternalIps: cidrs("serviceExternalIPs"),
    serviceLoadBalancerIps: cidrs("serviceLoadBalancerIPs"),
    serviceLoadBalancerAggregation: text("serviceLoadBalancerAggregation") !== "Disabled",
    localWorkloadPeeringIps: { 4: peeringIp(4), 6: peeringIp(6) },
  };
}

function communitiesIn(spec: JsonReader): Labels {
  return Object.fromEntries(
    spec.objects("communities").map((each) => [each.text("name") ?? "", each.text("value") ?? ""] as const),
  );
}

function advertisementsIn(entry: JsonReader): readonly PrefixAdvertisement[] {
  const cidr = cidrIn(entry, "cidr") ?? entry.fail("cidr", 'a CIDR, not ""');
  return [{ cidr, communities: entry.texts("communities") }];
}

/** The name is written to BIRD's configuration between quotes, so its characters are restricted. */
const checkInterface = (spec: JsonReader, name: string): string =>
  isInterfacePattern(name)
    ? name
    : spec.fail("ignoredInterfaces", `interface names, which may contain *, not ${quote(name)}`);
