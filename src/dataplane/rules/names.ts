// Builds the names of chains and sets in the kernel, exactly as Calico does. iptables allows 28 characters for a chain, ipset 31
// for a set; longer names end in a hash. The prefixes identify objects of Calico and calico-ts.
import { createHash } from "node:crypto";
import type { PolicyId } from "../../calc/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { hashedId, lengthLimitedId } from "../../model/index.ts";

export const IPTABLES_CHAIN_LENGTH = 28;
export const NFT_CHAIN_LENGTH = 256;
const SET_NAME_LENGTH = 31;

export type EndpointChainKind =
  | "toWorkload"
  | "fromWorkload"
  | "toHost"
  | "fromHost"
  | "toHostForward"
  | "fromHostForward";
const ENDPOINT_PREFIX: Readonly<Record<EndpointChainKind, string>> = {
  toWorkload: "cali-tw-",
  fromWorkload: "cali-fw-",
  toHost: "cali-th-",
  fromHost: "cali-fh-",
  toHostForward: "cali-thfw-",
  fromHostForward: "cali-fhfw-",
};
const SET_MARK_PREFIX = "cali-sm-";
/** Used in chain names for the endpoint `*`: all interfaces without an endpoint of their own. */
const ANY_INTERFACE = "any-interface-at-all";

const KIND_SHORT: Readonly<Record<string, string>> = {
  NetworkPolicy: "np",
  GlobalNetworkPolicy: "gnp",
  StagedNetworkPolicy: "snp",
  StagedGlobalNetworkPolicy: "sgnp",
  StagedKubernetesNetworkPolicy: "sknp",
  KubernetesNetworkPolicy: "knp",
  KubernetesClusterNetworkPolicy: "kcnp",
};

/** `gnp`, `np`, …: the short form of a policy's kind. */
export const shortKind = (id: PolicyId): string => KIND_SHORT[id.kind] ?? id.kind;
/** `np/default/web`, `gnp/web`: the policy in chain names and logs. */
export const policyPath = (id: PolicyId): string =>
  `${shortKind(id)}/${id.namespace === "" ? "" : `${id.namespace}/`}${id.name}`;
/** `NetworkPolicy default/web`, for comments. */
export const policyTitle = (id: PolicyId): string =>
  `${id.kind} ${id.namespace === "" ? "" : `${id.namespace}/`}${id.name}`;
export const isStaged = (id: PolicyId): boolean => id.kind.startsWith("Staged");

export type Direction = "ingress" | "egress";

export class ChainNames {
  /** @param limit the maximum length of a chain name */
  constructor(readonly limit: number) {}

  endpoint(kind: EndpointChainKind, interfaceName: string): string {
    return limitName(ENDPOINT_PREFIX[kind], interfaceName === "*" ? ANY_INTERFACE : interfaceName, this.limit);
  }
  setMark(interfaceName: string): string {
    return limitName(SET_MARK_PREFIX, interfaceName === "*" ? ANY_INTERFACE : interfaceName, this.limit);
  }
  policy(direction: Direction, id: PolicyId): string {
    return limitName(direction === "ingress" ? "cali-pi-" : "cali-po-", policyPath(id), this.limit);
  }
  profile(direction: Direction, name: string): string {
    return limitName(direction === "ingress" ? "cali-pri-" : "cali-pro-", name, this.limit);
  }
  arp(interfaceName: string): string {
    return limitName("cali-arp-", interfaceName, this.limit);
  }
}

/** Characters of one word in iptables input: no spaces, quotes or line breaks. */
const IS_ONE_WORD = /^[\x21-\x7e]+$/;
const MAY_QUOTE = /["'\\]/;
export const isOneWord = (text: string): boolean => IS_ONE_WORD.test(text) && !MAY_QUOTE.test(text);

/**
 * Returns prefix and suffix if they fit, otherwise the prefix, `_` and a hash of the suffix, truncated to the limit. A suffix
 * that is not a single word in rule text is hashed too, because names come from the datastore.
 */
export function limitName(prefix: string, suffix: string, limit: number): string {
  const isName = suffix === "" || isOneWord(suffix);
  return isName ? lengthLimitedId(prefix, suffix, limit) : hashedId(prefix, suffix, limit);
}

/** The kernel's name of an IP set: `cali40s:…`. */
export const setName = (version: IpVersion, id: string): string => `cali${version}0${id}`.slice(0, SET_NAME_LENGTH);

/** The name of the chain that consecutive policies with the same selector share: a hash of all of them. */
export function policyGroupName(direction: Direction, selector: string, policies: readonly PolicyId[]): string {
  const hash = createHash("sha3-224");
  hash.update(`${selector}\n${direction === "ingress" ? "inbound" : "outbound"}\n${policies.length}\n`);
  for (const { name, namespace, kind } of policies)
    hash.update(`{Name: ${name}, Namespace: ${namespace}, Kind: ${kind}}\n`);
  return `${direction === "ingress" ? "cali-gi-" : "cali-go-"}${hash.digest("base64url").slice(0, 20)}`;
}
