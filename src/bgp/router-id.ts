// Determines the router ID, a unique number written as an IPv4 address: the setting, else the node's IPv4 address, else a hash
// of its name.
import { ipVersion, tryParseAddress } from "../lib/ip/ip.ts";
import type { Node } from "../model/index.ts";
import type { Problem } from "./state.ts";

/** @param setting CALICO_ROUTER_ID: an address, or `hash` */
export function routerIdOf(node: Node, setting: string | undefined, problems: Problem[]): string {
  if (setting === "hash") return hashedRouterId(node.name);
  const own = node.networks[4]?.address ?? hashedRouterId(node.name);
  if (setting === undefined || setting === "") return own;
  const literal = tryParseAddress(setting);
  if (literal !== undefined && ipVersion(literal) === 4 && literal !== "0.0.0.0") return literal;
  problems.push({
    object: "CALICO_ROUTER_ID",
    problem: `${JSON.stringify(setting)} is not an IPv4 address: using ${own}`,
  });
  return own;
}

/** The first four bytes of a hash; the first byte is at most 223, because higher values are multicast or reserved. */
export function hashedRouterId(name: string): string {
  const hash = new Bun.CryptoHasher("sha256").update(name).digest();
  const first = hash[0] ?? 0;
  return [first > 223 ? first - 32 : first, hash[1], hash[2], hash[3]].join(".");
}
