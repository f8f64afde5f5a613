// Derived values as the v1 model writes them: raw text for settings, JSON for the rest. This is the form of the
// original's own streams; ours (typha/records.ts) carries them as they are in memory. Decoding inverts encoding.
import { type Cidr, type IpAddress, tryParseAddress, tryParseCidr } from "../lib/ip.ts";
import { JsonReader } from "../lib/json-reader.ts";
import { parseLosslessJson } from "../lib/lossless-json.ts";
import { unreachable } from "../lib/unreachable.ts";
import type {
  EndpointPort,
  HostEndpoint,
  NatEntry,
  NetworkSet,
  Policy,
  Pool,
  ProfileRules,
  Tier,
  ValueOf,
  Wireguard,
  WorkloadEndpoint,
} from "./derived.ts";
import { filled, policyFromJson, policyJson, profileRulesFromJson, profileRulesJson } from "./derived-rule-json.ts";
import { isInterfaceName } from "./formats.ts";
import { isStoredKey } from "./key-path.ts";
import type { DerivedKey, Key, StoredKey } from "./keys.ts";
import type { Labels } from "./resource.ts";
import { parseRuleProtocol } from "./rule-conversion.ts";
import { decodeValue, encodeValue } from "./stored-values.ts";
import { UnreadableValue } from "./unreadable-value.ts";
import { isValueError } from "./value-error.ts";

/** Any key's value as text, stored ones as they are stored. */
export function encodeAnyValue<K extends Key>(key: K, value: ValueOf<K>): string {
  return isStoredKey(key) ? encodeValue(key as StoredKey, value as never) : encodeDerived(key as DerivedKey, value);
}

/** Throws `UnreadableValue`. */
export function decodeAnyValue<K extends Key>(key: K, text: string): ValueOf<K> {
  if (isStoredKey(key)) return decodeValue(key as StoredKey, text) as ValueOf<K>;
  try {
    return decodeDerived(key as DerivedKey, text) as ValueOf<K>;
  } catch (error) {
    if (!isValueError(error) && !(error instanceof SyntaxError)) throw error;
    throw new UnreadableValue(error.message, { cause: error });
  }
}

function encodeDerived(key: DerivedKey, value: unknown): string {
  switch (key.type) {
    case "ready":
    case "globalConfig":
    case "hostConfig":
    case "bgpGlobalConfig":
    case "bgpHostConfig":
    case "hostIp":
      return String(value);
    case "workloadEndpoint":
      return JSON.stringify(workloadJson(value as WorkloadEndpoint));
    case "hostEndpoint":
      return JSON.stringify(hostEndpointJson(value as HostEndpoint));
    case "policy":
      return JSON.stringify(policyJson(value as Policy));
    case "profileRules":
      return JSON.stringify(profileRulesJson(value as ProfileRules));
    case "profileLabels":
      return JSON.stringify(value);
    case "tier":
      return JSON.stringify({ order: (value as Tier).order, defaultAction: (value as Tier).defaultAction });
    case "pool":
      return JSON.stringify(poolJson(value as Pool));
    case "networkSet": {
      const { nets, labels, profileIds } = value as NetworkSet;
      return JSON.stringify({ nets, labels, profile_ids: profileIds });
    }
    case "wireguard": {
      const { interfaceIpv4Addr, publicKey, interfaceIpv6Addr, publicKeyV6 } = value as Wireguard;
      return JSON.stringify({
        interfaceIPv4Addr: interfaceIpv4Addr,
        publicKey,
        interfaceIPv6Addr: interfaceIpv6Addr,
        publicKeyV6,
      });
    }
    case "bgpPeer": {
      const { ip, asNumber } = value as ValueOf<Extract<DerivedKey, { type: "bgpPeer" }>>;
      return JSON.stringify({ ip, as_num: asNumber });
    }
    default:
      return unreachable(key);
  }
}

function decodeDerived(key: DerivedKey, text: string): unknown {
  switch (key.type) {
    case "ready":
      return text === "true";
    case "globalConfig":
    case "hostConfig":
    case "bgpGlobalConfig":
    case "bgpHostConfig":
      return text;
    case "hostIp":
      return tryParseAddress(text) ?? new JsonReader({}).fail("bird_ip", "an IP address");
    default: {
      const json = new JsonReader(parseLosslessJson(text));
      return decodeObject(key, json);
    }
  }
}

function decodeObject(
  key: Exclude<
    DerivedKey,
    { type: "ready" | "globalConfig" | "hostConfig" | "bgpGlobalConfig" | "bgpHostConfig" | "hostIp" }
  >,
  json: JsonReader,
): unknown {
  switch (key.type) {
    case "workloadEndpoint":
      return workloadFromJson(json);
    case "hostEndpoint":
      return hostEndpointFromJson(json);
    case "policy":
      return policyFromJson(json);
    case "profileRules":
      return profileRulesFromJson(json);
    case "profileLabels":
      return Object.fromEntries(json.names.map((name) => [name, json.text(name)])) as Labels;
    case "tier":
      return filled({
        order: json.number("order"),
        defaultAction: json.text("defaultAction") === "Pass" ? "Pass" : "Deny",
      });
    case "pool":
      return poolFromJson(json);
    case "networkSet":
      return { nets: cidrs(json, "nets"), labels: json.map("labels") ?? {}, profileIds: json.texts("profile_ids") };
    case "wireguard":
      return filled({
        interfaceIpv4Addr: json.filled("interfaceIPv4Addr"),
        publicKey: json.filled("publicKey"),
        interfaceIpv6Addr: json.filled("interfaceIPv6Addr"),
        publicKeyV6: json.filled("publicKeyV6"),
      });
    case "bgpPeer":
      return { ip: address(json, "ip"), asNumber: json.text("as_num") ?? "" };
    default:
      return unreachable(key);
  }
}

const natJson = (nats: readonly NatEntry[] | undefined) =>
  nats?.map((nat) => ({ int_ip: nat.internal, ext_ip: nat.external }));

function natFromJson(json: JsonReader, name: string): readonly NatEntry[] | undefined {
  const nats = json
    .objects(name)
    .map((nat) => ({ internal: address(nat, "int_ip"), external: address(nat, "ext_ip") }));
  return nats.length === 0 ? undefined : nats;
}

function workloadJson(endpoint: WorkloadEndpoint): object {
  return filled({
    state: endpoint.state,
    name: endpoint.name,
    active_instance_id: endpoint.activeInstanceId,
    mac: endpoint.mac,
    profile_ids: endpoint.profileIds,
    ipv4_nets: endpoint.ipv4Nets,
    ipv6_nets: endpoint.ipv6Nets,
    ipv4_nat: natJson(endpoint.ipv4Nat),
    ipv6_nat: natJson(endpoint.ipv6Nat),
    labels: endpoint.labels,
    ipv4_gateway: endpoint.ipv4Gateway,
    ipv6_gateway: endpoint.ipv6Gateway,
    ports: endpoint.ports,
    generate_name: endpoint.generateName,
    allow_spoofed_source_ips: endpoint.allowSpoofedSourcePrefixes,
    annotations: endpoint.annotations,
    qosControls: endpoint.qosControls,
  });
}

function workloadFromJson(json: JsonReader): object {
  const prefixes = cidrs(json, "allow_spoofed_source_ips");
  return filled({
    state: json.text("state") ?? "active",
    name: interfaceName(json, isInterfaceName),
    activeInstanceId: json.filled("active_instance_id"),
    mac: json.filled("mac"),
    profileIds: json.texts("profile_ids"),
    ipv4Nets: cidrs(json, "ipv4_nets"),
    ipv6Nets: cidrs(json, "ipv6_nets"),
    ipv4Nat: natFromJson(json, "ipv4_nat"),
    ipv6Nat: natFromJson(json, "ipv6_nat"),
    ipv4Gateway: json.filled("ipv4_gateway") === undefined ? undefined : address(json, "ipv4_gateway"),
    ipv6Gateway: json.filled("ipv6_gateway") === undefined ? undefined : address(json, "ipv6_gateway"),
    labels: json.map("labels") ?? {},
    ports: ports(json),
    generateName: json.filled("generate_name"),
    allowSpoofedSourcePrefixes: prefixes.length === 0 ? undefined : prefixes,
    annotations: json.map("annotations"),
    qosControls: qosControls(json),
  });
}

/** Absent, or a name; nothing else gets into rules. */
function interfaceName(json: JsonReader, isName: (text: string) => boolean): string {
  const name = json.text("name") ?? "";
  return name === "" || isName(name) ? name : json.fail("name", "an interface's name");
}

/** Numbers, which rules will hold. */
function qosControls(json: JsonReader): unknown {
  const controls = json.object("qosControls");
  for (const name of controls?.names ?? []) controls?.number(name);
  return json.raw("qosControls");
}

function hostEndpointJson(endpoint: HostEndpoint): object {
  return filled({
    name: endpoint.name,
    expected_ipv4_addrs: endpoint.expectedIpv4Addrs,
    expected_ipv6_addrs: endpoint.expectedIpv6Addrs,
    labels: endpoint.labels,
    profile_ids: endpoint.profileIds,
    ports: endpoint.ports,
    qosControls: endpoint.qosControls,
  });
}

function hostEndpointFromJson(json: JsonReader): object {
  const addresses = (name: string) =>
    json.texts(name).map((text) => tryParseAddress(text) ?? json.fail(name, `IP addresses, not ${text}`));
  return filled({
    name: interfaceName(json, (name) => name === "*" || isInterfaceName(name)),
    expectedIpv4Addrs: addresses("expected_ipv4_addrs"),
    expectedIpv6Addrs: addresses("expected_ipv6_addrs"),
    labels: json.map("labels") ?? {},
    profileIds: json.texts("profile_ids"),
    ports: ports(json),
    qosControls: qosControls(json),
  });
}

function poolJson(pool: Pool): object {
  return {
    cidr: pool.cidr,
    ipip: pool.ipipMode === "" ? "" : "tunl0",
    ipip_mode: pool.ipipMode,
    vxlan_mode: pool.vxlanMode,
    masquerade: pool.masquerade,
    ipam: pool.ipam,
    disabled: pool.disabled,
    disableBGPExport: pool.disableBgpExport,
    assignment_mode: pool.assignmentMode,
    allowed_uses: pool.allowedUses,
    ...(pool.nodeSelector !== undefined && { node_selector: pool.nodeSelector }),
  };
}

function poolFromJson(json: JsonReader): Pool {
  const mode = (name: string): Pool["ipipMode"] => {
    const value = json.text(name) ?? "";
    return value === "" || value === "always" || value === "cross-subnet"
      ? value
      : json.fail(name, "always or cross-subnet");
  };
  const nodeSelector = json.text("node_selector");
  return {
    cidr: tryParseCidr(json.text("cidr") ?? "") ?? json.fail("cidr", "a CIDR"),
    ipipMode: mode("ipip_mode"),
    vxlanMode: mode("vxlan_mode"),
    masquerade: json.flag("masquerade") ?? false,
    ipam: json.flag("ipam") ?? false,
    disabled: json.flag("disabled") ?? false,
    disableBgpExport: json.flag("disableBGPExport") ?? false,
    assignmentMode: json.text("assignment_mode") === "Manual" ? "Manual" : "Automatic",
    allowedUses: json.texts("allowed_uses"),
    ...(nodeSelector !== undefined && { nodeSelector }),
  };
}

function ports(json: JsonReader): readonly EndpointPort[] {
  return json.objects("ports").map((port) => ({
    name: port.text("name") ?? "",
    protocol: parseRuleProtocol(port.raw("protocol") ?? "tcp") ?? port.fail("protocol", "a protocol"),
    port: port.whole("port") ?? port.fail("port", "a port's number"),
  }));
}

function cidrs(json: JsonReader, name: string): readonly Cidr[] {
  return json.texts(name).map((text) => tryParseCidr(text) ?? json.fail(name, `CIDRs, not ${text}`));
}

function address(json: JsonReader, name: string): IpAddress {
  return tryParseAddress(json.text(name) ?? "") ?? json.fail(name, "an IP address");
}
