// Workload endpoints, host endpoints and network sets as calculations need them.
import { type Cidr, type IpAddress, ipVersion, tryParseAddress, tryParseCidr } from "../../lib/ip.ts";
import { JsonReader } from "../../lib/json-reader.ts";
import { describeJson } from "../../lib/lossless-json.ts";
import type { EndpointPort, HostEndpoint, NatEntry, NetworkSet, QosControls, WorkloadEndpoint } from "../derived.ts";
import { isInterfaceName } from "../formats.ts";
import type { HostEndpointKey, NetworkSetKey, ResourceKey, WorkloadEndpointKey } from "../keys.ts";
import {
  isSystemLabel,
  NAMESPACE_LABEL,
  NAMESPACE_PREFIX,
  NAMESPACE_PROFILE,
  SERVICE_ACCOUNT_LABEL,
  SERVICE_ACCOUNT_PREFIX,
} from "../labels.ts";
import type { Labels, Resource } from "../resource.ts";
import { parseRuleProtocol } from "../rule-conversion.ts";
import { NotConvertible, type ReportProblem } from "../value-error.ts";
import { parseWorkloadEndpointName } from "../workload-name.ts";
import { conflictResolving } from "./conflict-cache.ts";
import { convertOrReport, oneToOne, type UpdateProcessor } from "./processor.ts";

// --- workload endpoints ------------------------------------------------------------------------------------------
export const workloadEndpointProcessor: UpdateProcessor = oneToOne(workloadEndpointKey, convertWorkloadEndpoint);

function workloadEndpointKey(key: ResourceKey): WorkloadEndpointKey | undefined {
  const identity = parseWorkloadEndpointName(key.name);
  if (identity === undefined) return undefined;
  return {
    type: "workloadEndpoint",
    host: identity.node,
    orchestrator: identity.orchestrator,
    workload: `${key.namespace ?? ""}/${identity.workload}`,
    endpoint: identity.endpoint,
  };
}

/** Nothing for an endpoint without addresses: its workload is finished or not yet there. */
function convertWorkloadEndpoint(resource: Resource, report: ReportProblem): WorkloadEndpoint | undefined {
  const spec = new JsonReader(resource.spec, "spec");
  const nets = spec
    .texts("ipNetworks")
    .map((text) => tryParseCidr(text) ?? spec.fail("ipNetworks", `CIDRs, not ${text}`));
  if (nets.length === 0) return undefined;
  const nats = spec.objects("ipNATs").flatMap((nat) => natOf(nat, report));
  const prefixes = spec
    .texts("allowSpoofedSourcePrefixes")
    .map((text) => tryParseCidr(text) ?? spec.fail("allowSpoofedSourcePrefixes", `CIDRs, not ${text}`));
  const qos = qosOf(spec);
  const v4Gateway = addressOf(spec, "ipv4Gateway");
  const v6Gateway = addressOf(spec, "ipv6Gateway");
  const { generateName, annotations } = resource.metadata;
  const mac = spec.filled("mac");
  return {
    state: "active",
    name: workloadInterface(spec),
    ...(mac === undefined ? {} : { mac: macOf(spec, mac) }),
    profileIds: spec.texts("profiles"),
    ipv4Nets: ofFamily(nets, 4),
    ipv6Nets: ofFamily(nets, 6),
    ...(nats.length === 0
      ? {}
      : {
          ...lists(
            "ipv4Nat",
            nats.filter((nat) => ipVersion(nat.internal) === 4),
          ),
          ...lists(
            "ipv6Nat",
            nats.filter((nat) => ipVersion(nat.internal) === 6),
          ),
        }),
    ...(v4Gateway === undefined ? {} : { ipv4Gateway: v4Gateway }),
    ...(v6Gateway === undefined ? {} : { ipv6Gateway: v6Gateway }),
    labels: workloadLabels(resource.metadata.labels ?? {}, spec.filled("serviceAccountName")),
    ports: portsOf(spec),
    ...(generateName === undefined || generateName === "" ? {} : { generateName }),
    ...lists("allowSpoofedSourcePrefixes", prefixes),
    ...(annotations === undefined || Object.keys(annotations).length === 0 ? {} : { annotations }),
    ...(qos === undefined ? {} : { qosControls: qos }),
  };
}

/** It becomes part of rules: a wildcard, a blank or a line break in it would be read as more than a name. */
function workloadInterface(spec: JsonReader): string {
  const name = spec.filled("interfaceName") ?? "";
  return isInterfaceName(name)
    ? name
    : spec.fail("interfaceName", "an interface's name of at most 15 letters, digits, _, . and -");
}

/** The labels of its namespace and service account come from profiles, and the account's name from the spec alone. */
function workloadLabels(own: Labels, serviceAccount: string | undefined): Labels {
  const isRemoved = (name: string) =>
    name.startsWith(NAMESPACE_PREFIX) ||
    name.startsWith(SERVICE_ACCOUNT_PREFIX) ||
    (serviceAccount === undefined && name === SERVICE_ACCOUNT_LABEL);
  const kept = withoutLabels(own, isRemoved);
  return serviceAccount === undefined ? kept : { ...kept, [SERVICE_ACCOUNT_LABEL]: serviceAccount };
}

/** The map itself if nothing is removed, as for almost all endpoints. */
function withoutLabels(labels: Labels, isRemoved: (name: string) => boolean): Labels {
  for (const name in labels)
    if (isRemoved(name)) return Object.fromEntries(Object.entries(labels).filter(([other]) => !isRemoved(other)));
  return labels;
}

function natOf(nat: JsonReader, report: ReportProblem): readonly NatEntry[] {
  const internal = tryParseAddress(nat.text("internalIP") ?? "");
  const external = tryParseAddress(nat.text("externalIP") ?? "");
  if (internal !== undefined && external !== undefined) return [{ internal, external }];
  report(`${nat.at(internal === undefined ? "internalIP" : "externalIP")}: no IP address, entry left out`);
  return [];
}

function macOf(spec: JsonReader, text: string): string {
  return /^([0-9a-fA-F]{2}[:-]){5}[0-9a-fA-F]{2}$/.test(text)
    ? text.toLowerCase().replaceAll("-", ":")
    : spec.fail("mac", "an address such as ee:ee:ee:ee:ee:ee");
}

function addressOf(spec: JsonReader, name: string): IpAddress | undefined {
  const text = spec.filled(name);
  return text === undefined ? undefined : (tryParseAddress(text) ?? spec.fail(name, "an IP address"));
}

/** Only named ports matter to policy; others exist for host ports. */
const portsOf = (spec: JsonReader): readonly EndpointPort[] => spec.objects("ports").flatMap(portOf);

function portOf(port: JsonReader): readonly EndpointPort[] {
  const name = port.filled("name");
  if (name === undefined) return [];
  const number = port.whole("port") ?? 0;
  const protocol = parseRuleProtocol(port.raw("protocol") ?? "TCP") ?? port.fail("protocol", "a protocol");
  if (number < 1 || number > 65535) return port.fail("port", "1 to 65535");
  return [{ name, protocol, port: number }];
}

/** What each item gives; one that makes no sense gives nothing and is reported. */
function eachOrReport<T, R>(items: readonly T[], read: (item: T) => readonly R[], report: ReportProblem): readonly R[] {
  return items.flatMap((item) => convertOrReport(item, read, (problem) => report(`${problem}: left out`)) ?? []);
}

const QOS_FIELDS = [
  "ingressBandwidth",
  "egressBandwidth",
  "ingressBurst",
  "egressBurst",
  "ingressPeakrate",
  "egressPeakrate",
  "ingressMinburst",
  "egressMinburst",
  "ingressPacketRate",
  "egressPacketRate",
  "ingressPacketBurst",
  "egressPacketBurst",
  "ingressMaxConnections",
  "egressMaxConnections",
] as const satisfies readonly (keyof QosControls)[];

function qosOf(spec: JsonReader): QosControls | undefined {
  const controls = spec.object("qosControls");
  if (controls === undefined) return undefined;
  const found: Record<string, number> = {};
  for (const field of QOS_FIELDS) {
    const value = controls.number(field);
    if (value !== undefined && value !== 0) found[field] = value;
  }
  const dscp = controls.raw("dscp");
  if (dscp !== undefined)
    found["dscp"] = parseDscp(dscp) ?? controls.fail("dscp", "0 to 63 or a name such as EF, AF11, CS1");
  return Object.keys(found).length === 0 ? undefined : found;
}

/** 0–63, or the name of a per-hop behaviour in any case; undefined when it is none. */
export function parseDscp(value: unknown): number | undefined {
  if (typeof value === "number") return Number.isInteger(value) && value >= 0 && value <= 63 ? value : undefined;
  if (typeof value !== "string") return undefined;
  if (/^\d+$/.test(value)) return parseDscp(Number(value));
  const name = value.toUpperCase();
  if (name === "DF") return 0;
  if (name === "EF") return 46;
  const [, assured, drop] = /^AF([1-4])([1-3])$/.exec(name) ?? [];
  if (assured !== undefined) return Number(assured) * 8 + Number(drop) * 2;
  const [, selector] = /^CS([0-6])$/.exec(name) ?? [];
  return selector === undefined ? undefined : Number(selector) * 8;
}

// --- host endpoints ----------------------------------------------------------------------------------------------
export const hostEndpointProcessor = (): UpdateProcessor => conflictResolving(convertHostEndpoint);

const DSCP_ANNOTATION = "qos.projectcalico.org/dscp";

/** Without its endpoint an interface has no policy at all: what makes no sense is left out of it, not with it. */
function convertHostEndpoint(
  resource: Resource,
  report: ReportProblem,
): { readonly key: HostEndpointKey; readonly value: HostEndpoint } {
  const spec = new JsonReader(resource.spec, "spec");
  const host = spec.filled("node") ?? spec.fail("node", "the node's name");
  if (host.includes("/")) spec.fail("node", "a node's name, which holds no /");
  const addresses = eachOrReport(
    spec.list("expectedIPs"),
    (item) => [tryParseAddress(item) ?? spec.fail("expectedIPs", `IP addresses, not ${describeJson(item)}`)],
    report,
  );
  const name = spec.text("interfaceName") ?? "";
  if (name !== "" && name !== "*" && !isInterfaceName(name))
    spec.fail("interfaceName", "an interface's name of at most 15 letters, digits, _, . and -, or *");
  if (name === "" && addresses.length === 0) throw new NotConvertible("spec: want interfaceName or expectedIPs");
  // A host endpoint's packets are marked by annotation alone.
  const mark = resource.metadata.annotations?.[DSCP_ANNOTATION];
  const dscp = mark === undefined ? undefined : parseDscp(mark);
  if (mark !== undefined && dscp === undefined)
    report(`${DSCP_ANNOTATION}: ${JSON.stringify(mark)} is no DSCP, left out`);
  return {
    key: { type: "hostEndpoint", host, endpoint: resource.metadata.name },
    value: {
      name,
      expectedIpv4Addrs: addresses.filter(isFamily(4)),
      expectedIpv6Addrs: addresses.filter(isFamily(6)),
      labels: resource.metadata.labels ?? {},
      profileIds: spec.texts("profiles"),
      ports: eachOrReport(spec.objects("ports"), portOf, report),
      ...(dscp === undefined ? {} : { qosControls: { dscp } }),
    },
  };
}

// --- network sets ------------------------------------------------------------------------------------------------
export const networkSetProcessor: UpdateProcessor = oneToOne(
  (key): NetworkSetKey => ({ type: "networkSet", name: `${key.namespace ?? ""}/${key.name}` }),
  (resource, report) => {
    const namespace = resource.metadata.namespace ?? "";
    const set = convertNets(resource, report);
    for (const name in set.labels)
      if (isSystemLabel(name)) report(`metadata.labels.${name}: only the system sets this label: left out`);
    return {
      ...set,
      labels: networkSetLabels(set.labels, namespace),
      profileIds: [NAMESPACE_PROFILE + namespace],
    };
  },
);

/** A set matches selectors by its own labels and its namespace's, which it inherits from the namespace's profile. */
export const networkSetLabels = (own: Labels, namespace: string): Labels => ({
  ...withoutLabels(own, isSystemLabel),
  [NAMESPACE_LABEL]: namespace,
});

export const globalNetworkSetProcessor = (): UpdateProcessor =>
  conflictResolving((resource, report) => ({
    key: { type: "networkSet", name: resource.metadata.name },
    value: convertNets(resource, report),
  }));

/**
 * Addresses count as /32 and /128; host bits are cleared. What is neither is left out alone: the set may say whom to
 * deny, and one bad entry of a thousand must not let the others in.
 */
function convertNets(resource: Resource, report: ReportProblem): NetworkSet {
  const spec = new JsonReader(resource.spec, "spec");
  const nets: Cidr[] = [];
  for (const item of spec.list("nets")) {
    const net = tryParseCidr(item);
    if (net !== undefined) nets.push(net);
    else eachOrReport([item], () => spec.fail("nets", `CIDRs, not ${describeJson(item)}`), report);
  }
  return { nets, labels: resource.metadata.labels ?? {}, profileIds: [] };
}

const isFamily =
  (version: 4 | 6) =>
  <T extends Cidr | IpAddress>(text: T): boolean =>
    ipVersion(text) === version;

/** The list itself where it holds nothing else, as it mostly does. */
function ofFamily<T extends Cidr | IpAddress>(texts: readonly T[], version: 4 | 6): readonly T[] {
  const [only] = texts;
  if (texts.length === 1 && only !== undefined) return ipVersion(only) === version ? texts : [];
  return texts.filter(isFamily(version));
}

function lists<N extends string, T>(name: N, items: readonly T[]): { readonly [P in N]?: readonly T[] } {
  return (items.length === 0 ? {} : { [name]: items }) as { readonly [P in N]?: readonly T[] };
}
