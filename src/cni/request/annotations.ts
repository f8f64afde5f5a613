// Parses the annotations of a pod and its namespace that set network options. The pod's annotations take precedence.
import {
  type Cidr,
  type IpAddress,
  type IpVersion,
  ipVersion,
  tryParseAddress,
  tryParseCidr,
} from "../../lib/ip/ip.ts";
import { quote, shorten } from "../../lib/shorten.ts";
import type { Labels } from "../../model/index.ts";
import { CniError, INTERNAL } from "../error.ts";
import type { IpamSettings } from "./net-conf.ts";

const PREFIX = "cni.projectcalico.org/";

export interface PodOptions {
  /** Assign exactly these addresses through IPAM. */
  readonly ipAddrs?: readonly IpAddress[];
  /** Use exactly these addresses, without IPAM. */
  readonly ipAddrsNoIpam?: readonly IpAddress[];
  readonly floatingIps?: readonly IpAddress[];
  readonly hwAddr?: string;
  readonly allowedSourcePrefixes?: readonly Cidr[];
}

export function parsePodOptions(annotations: Labels): PodOptions {
  const ipAddrs = addressList(annotations, "ipAddrs");
  const ipAddrsNoIpam = addressList(annotations, "ipAddrsNoIpam");
  if (ipAddrs !== undefined && ipAddrsNoIpam !== undefined)
    throw new CniError(INTERNAL, `can't have both annotations: ${PREFIX}ipAddrs and ${PREFIX}ipAddrsNoIpam`);
  const floating = textList(annotations, "floatingIPs");
  const prefixes = textList(annotations, "allowedSourcePrefixes") ?? [];
  const hwAddr = annotations[`${PREFIX}hwAddr`];
  return {
    ipAddrs,
    ipAddrsNoIpam,
    floatingIps: floating?.map((text) => address(text, "floatingIPs")),
    ...(hwAddr === undefined || hwAddr === "" ? {} : { hwAddr: macAddress(hwAddr) }),
    ...(prefixes.length === 0 ? {} : { allowedSourcePrefixes: prefixes.map(prefix) }),
  };
}

/** Returns the IPAM settings, with pools and families overridden by annotations. */
export function withAnnotations(settings: IpamSettings, pod: Labels, namespace: Labels): IpamSettings {
  const choose = (name: string) => textList(pod, name) ?? textList(namespace, name);
  const families = choose("ipFamilies");
  if (families?.some((family) => family !== "IPv4" && family !== "IPv6") || families?.length === 0)
    throw new CniError(
      INTERNAL,
      `error parsing ipFamilies: want a list of "IPv4" and "IPv6", got ${shorten(JSON.stringify(families))}`,
    );
  return {
    ...settings,
    ipv4Pools: choose("ipv4pools") ?? settings.ipv4Pools,
    ipv6Pools: choose("ipv6pools") ?? settings.ipv6Pools,
    ...(families === undefined ? {} : { assignIpv4: families.includes("IPv4"), assignIpv6: families.includes("IPv6") }),
  };
}

/** @throws CniError if there is more than one address of a family */
function addressList(annotations: Labels, name: string): readonly IpAddress[] | undefined {
  const list = textList(annotations, name);
  if (list === undefined) return undefined;
  if (list.length === 0) throw new CniError(INTERNAL, `annotation "${PREFIX}${name}" specified but empty`);
  const addresses = list.map((text) => address(text, name));
  for (const version of [4, 6] as const satisfies readonly IpVersion[])
    if (addresses.filter((ip) => ipVersion(ip) === version).length > 1)
      throw new CniError(INTERNAL, `annotation "${PREFIX}${name}": more than one IPv${version} address; a pod has one`);
  return addresses;
}

function textList(annotations: Labels, name: string): readonly string[] | undefined {
  const text = annotations[`${PREFIX}${name}`];
  if (text === undefined || text === "") return undefined;
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch {
    throw notAList(name, text);
  }
  if (!Array.isArray(value) || !value.every((item) => typeof item === "string")) throw notAList(name, text);
  return value;
}

const notAList = (name: string, text: string): CniError =>
  new CniError(INTERNAL, `failed to parse annotation "${PREFIX}${name}" ${quote(text)}: want a JSON list like ["a"]`);

function address(text: string, name: string): IpAddress {
  const parsed = tryParseAddress(text);
  if (parsed === undefined)
    throw new CniError(INTERNAL, `failed to parse annotation "${PREFIX}${name}": invalid IP ${quote(text)}`);
  return parsed;
}

function prefix(text: string): Cidr {
  const cidr = text.includes("/") ? tryParseCidr(text) : undefined;
  if (cidr === undefined)
    throw new CniError(
      INTERNAL,
      `failed to parse annotation "${PREFIX}allowedSourcePrefixes": invalid CIDR ${quote(text)}`,
    );
  return cidr;
}

function macAddress(text: string): string {
  // 02:00:00:00:00:07, 02-00-00-00-00-07 or 0200.0000.0007
  const digits = text.replaceAll(/[:.-]/g, "").toLowerCase();
  if (!/^[0-9a-f]{2}([:-])(?:[0-9a-f]{2}\1){4}[0-9a-f]{2}$|^[0-9a-f]{4}\.[0-9a-f]{4}\.[0-9a-f]{4}$/i.test(text))
    throw new CniError(INTERNAL, `failed to parse annotation "${PREFIX}hwAddr": invalid MAC address ${quote(text)}`);
  return digits.replaceAll(/(..)(?!$)/g, "$1:");
}
