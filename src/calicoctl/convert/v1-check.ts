// Validates a v1 resource as calicoctl v1 did. A resource that v1 would have rejected was never in use, so it is reported
// instead of converted.
import {
  addressBits,
  cidrContains,
  type IpVersion,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
  tryParseNetwork,
} from "../../lib/ip/ip.ts";
import { describeJson } from "../../lib/encoding/lossless-json.ts";
import { isValueError, parseSelector } from "../../model/index.ts";
import { ConvertFault } from "./fault.ts";

type Json = Readonly<Record<string, unknown>>;
type Check = (metadata: Json, spec: Json) => void;

const NAME = /^[a-zA-Z0-9_.-]{1,128}$/;
/** A name that may include a namespace. */
const LONG_NAME = /^[a-zA-Z0-9_./-]{1,128}$/;
const INTERFACE = /^([a-zA-Z0-9_.-]{1,15}|\*)$/;
const LINK_LOCAL = { 4: "169.254.0.0/16", 6: "fe80::/10" } as const;
/** Blocks of v1 had 64 addresses. */
const BLOCK_BITS = 6;

const CHECKS: Readonly<Record<string, Check>> = {
  ippool: ({ cidr }, spec) => {
    const text = textOf(cidr);
    if (text === "") return;
    const network = tryParseNetwork(text);
    const masked = tryParseCidr(text);
    if (network === undefined) throw new ConvertFault("metadata.cidr", `'${text}' is not a CIDR`);
    if (masked === undefined || cidrAddress(masked) !== network.address)
      throw new ConvertFault("metadata.cidr", `'${text}' has host bits`);
    const version = ipVersion(network.address);
    const ipip = groupOf(spec["ipip"]);
    if (!["", "always", "cross-subnet"].includes(textOf(ipip["mode"])))
      throw new ConvertFault("spec.ipip.mode", "want always or cross-subnet");
    if (version === 6 && ipip["enabled"] === true)
      throw new ConvertFault("spec.ipip.enabled", "IPIP is not supported for IPv6 pools");
    if (spec["disabled"] !== true && network.length > addressBits(version) - BLOCK_BITS)
      throw new ConvertFault("metadata.cidr", `'${text}' is smaller than a block`);
    const linkLocal = tryParseCidr(LINK_LOCAL[version]);
    if (linkLocal !== undefined && (cidrContains(linkLocal, masked) || cidrContains(masked, linkLocal)))
      throw new ConvertFault("metadata.cidr", `'${text}' overlaps with link-local addresses`);
  },
  bgppeer: ({ node, peerIP }) => {
    checkText("metadata.node", node, NAME);
    const text = textOf(peerIP);
    if (text !== "" && tryParseAddress(text) === undefined)
      throw new ConvertFault("metadata.peerIP", `'${text}' is not an IP address`);
  },
  hostendpoint: ({ name, node }, spec) => {
    checkText("metadata.name", name, LONG_NAME);
    checkText("metadata.node", node, NAME);
    checkText("spec.interfaceName", spec["interfaceName"], INTERFACE);
    checkEach("spec.profiles", spec["profiles"], (field, profile) => checkText(field, profile, LONG_NAME));
    if (textOf(spec["interfaceName"]) === "" && listOf(spec["expectedIPs"]).length === 0)
      throw new ConvertFault("spec.interfaceName", "want interfaceName or expectedIPs");
    checkEach("spec.expectedIPs", spec["expectedIPs"], (field, address) => {
      if (tryParseAddress(textOf(address)) === undefined)
        throw new ConvertFault(field, `'${textOf(address)}' is not an IP address`);
    });
    checkPorts(spec);
  },
  policy: ({ name }, spec) => {
    checkText("metadata.name", name, LONG_NAME);
    checkSelector("spec.selector", spec["selector"]);
    if (spec["preDNAT"] === true && spec["doNotTrack"] === true)
      throw new ConvertFault("spec.preDNAT", "cannot be combined with doNotTrack");
    if (spec["preDNAT"] === true && (listOf(spec["egress"]).length > 0 || listOf(spec["types"]).includes("egress")))
      throw new ConvertFault("spec.egress", "a preDNAT policy can have only ingress rules");
    checkRules(spec);
  },
  profile: ({ name, tags }, spec) => {
    checkText("metadata.name", name, LONG_NAME);
    checkEach("metadata.tags", tags, (field, tag) => checkText(field, tag, NAME, "always"));
    checkRules(spec);
  },
  node: ({ name }, spec) => {
    checkText("metadata.name", name, NAME);
    if (spec["bgp"] === undefined || spec["bgp"] === null) return;
    const bgp = groupOf(spec["bgp"]);
    const versions = ([4, 6] as const).filter((version) => isNetworkOf(bgp, version));
    if (versions.length === 0) throw new ConvertFault("spec.bgp.ipv4Address", "want an IPv4 or IPv6 address");
  },
  workloadendpoint: (metadata, spec) => {
    for (const field of ["name", "workload", "orchestrator"])
      checkText(`metadata.${field}`, metadata[field], LONG_NAME);
    for (const field of ["node", "activeInstanceID"]) checkText(`metadata.${field}`, metadata[field], NAME);
    checkText("spec.interfaceName", spec["interfaceName"], INTERFACE, "always");
    checkEach("spec.profiles", spec["profiles"], (field, profile) => checkText(field, profile, LONG_NAME));
    checkEach("spec.ipNetworks", spec["ipNetworks"], (field, network) => {
      const read = tryParseNetwork(textOf(network));
      if (read === undefined || read.length !== addressBits(ipVersion(read.address)))
        throw new ConvertFault(field, `'${textOf(network)}' is not a single address`);
    });
    checkPorts(spec);
    checkTranslations(spec);
  },
};

/** @throws ConvertFault with the first field that v1 would have rejected */
export function checkV1(kind: string, document: unknown): void {
  const { metadata, spec } = groupOf(document);
  CHECKS[kind.toLowerCase()]?.(groupOf(metadata), groupOf(spec));
}

function isNetworkOf(bgp: Json, version: IpVersion): boolean {
  const text = textOf(bgp[`ipv${version}Address`]);
  if (text === "") return false;
  const network = tryParseNetwork(text);
  if (network !== undefined && ipVersion(network.address) === version) return true;
  throw new ConvertFault(`spec.bgp.ipv${version}Address`, `'${text}' is not an IPv${version} address`);
}

function checkTranslations(spec: Json): void {
  const networks = listOf(spec["ipNetworks"]).map((text) => tryParseCidr(textOf(text)));
  checkEach("spec.ipNATs", spec["ipNATs"], (field, item) => {
    const addresses = ["internalIP", "externalIP"].map((name) => {
      const text = textOf(groupOf(item)[name]);
      const address = tryParseAddress(text);
      if (address === undefined) throw new ConvertFault(`${field}.${name}`, `'${text}' is not an IP address`);
      return address;
    });
    const [internal, external] = addresses;
    if (internal === undefined || external === undefined || ipVersion(internal) !== ipVersion(external))
      throw new ConvertFault(field, "want two addresses of the same IP version");
    if (!networks.some((network) => network !== undefined && cidrContains(network, internal)))
      throw new ConvertFault(field, `${internal} is not an address of the endpoint`);
  });
}

function checkPorts(spec: Json): void {
  checkEach("spec.ports", spec["ports"], (field, item) => {
    const { name, protocol, port } = groupOf(item);
    checkText(`${field}.name`, name, NAME, "always");
    if (!["tcp", "udp", "sctp"].includes(textOf(protocol).toLowerCase()))
      throw new ConvertFault(`${field}.protocol`, "want tcp, udp or sctp");
    if (typeof port !== "number" || port < 1) throw new ConvertFault(`${field}.port`, "want 1 to 65535");
  });
}

function checkRules(spec: Json): void {
  for (const direction of ["ingress", "egress"])
    checkEach(`spec.${direction}`, spec[direction], (field, item) => {
      const rule = groupOf(item);
      const entities = [groupOf(rule["source"]), groupOf(rule["destination"])];
      const isUsed = (...names: readonly string[]) =>
        entities.some((entity) => names.some((name) => listOf(entity[name]).length > 0 || isText(entity[name])));
      if (isUsed("net", "notNet") && isUsed("nets", "notNets"))
        throw new ConvertFault(field, "net and notNet cannot be combined with nets and notNets");
      for (const side of ["source", "destination"]) {
        const entity = groupOf(rule[side]);
        for (const name of ["tag", "notTag"]) checkText(`${field}.${side}.${name}`, entity[name], NAME);
        for (const name of ["selector", "notSelector"]) checkSelector(`${field}.${side}.${name}`, entity[name]);
      }
    });
}

function checkSelector(field: string, value: unknown): void {
  try {
    parseSelector(textOf(value));
  } catch (error) {
    if (!isValueError(error)) throw error;
    throw new ConvertFault(field, `'${textOf(value)}' is not a valid selector: ${error.message}`);
  }
}

function checkText(field: string, value: unknown, pattern: RegExp, when: "always" | "given" = "given"): void {
  const text = textOf(value);
  if ((text !== "" || when === "always") && !pattern.test(text))
    throw new ConvertFault(field, `'${text}' is not a valid name`);
}

function checkEach(field: string, value: unknown, check: (field: string, item: unknown) => void): void {
  for (const [i, item] of listOf(value).entries()) check(`${field}[${i}]`, item);
}

const cidrAddress = (cidr: string): string => cidr.slice(0, cidr.indexOf("/"));
const isText = (value: unknown): boolean => typeof value === "string" && value !== "";
const textOf = (value: unknown): string =>
  value === undefined || value === null ? "" : typeof value === "object" ? describeJson(value) : String(value);
const listOf = (value: unknown): readonly unknown[] => (Array.isArray(value) ? value : []);
const groupOf = (value: unknown): Json =>
  typeof value === "object" && value !== null && !Array.isArray(value) ? (value as Json) : {};
