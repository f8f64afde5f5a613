// Converts names of calicoctl v1 resources to v3 names: lower case, with dots and dashes only. If this changes the name, a
// part of the SHA-1 of the v1 name is appended to keep names unique.
import { createHash } from "node:crypto";
import { addressToBigInt, ipVersion, parseAddress } from "../../lib/ip/ip.ts";

export function normalizeName(name: string): string {
  return name
    .toLowerCase()
    .replaceAll("/", ".")
    .replace(/[^-.a-z0-9]+/g, "-")
    .replace(/[.-]*\.[.-]*/g, ".")
    .replace(/^[.-]+|[.-]+$/g, "");
}

export const convertName = (name: string): string => qualified(name, normalizeName(name));

export const convertNameWithoutDots = (name: string): string =>
  qualified(name, normalizeName(name).replaceAll(".", "-"));

function qualified(original: string, converted: string): string {
  if (original === converted) return converted;
  return `${converted}-${createHash("sha1").update(original).digest("hex").slice(0, 8)}`;
}

/** In v3, profiles of Kubernetes namespaces have another prefix. */
export const convertProfileName = (name: string): string => convertName(name.replace(/^k8s_ns\./, "kns."));

/** `10.1.0.0/16` is `10-1-0-0-16`. */
export const cidrName = (cidr: string): string => cidr.replace(/[.:/]/g, "-");

/** `192.168.1.1` is `192-168-1-1`; IPv6 addresses are written without abbreviation. */
export function addressName(text: string): string {
  const address = parseAddress(text);
  if (ipVersion(address) === 4) return address.replaceAll(".", "-");
  const digits = addressToBigInt(address).toString(16).padStart(32, "0");
  return (digits.match(/.{4}/g) ?? []).join("-");
}
