// Names of chains and sets in the kernel. iptables gives a chain 28 characters, ipset a set 31; longer names end in a
// hash. The prefixes tell which are ours.
import { createHash } from "node:crypto";
import type { PolicyId } from "../../calc/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
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
/** Stands for `*`, every interface without an endpoint of its own. */
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
/** `np/default/web`, `gnp/web`: what the chain's name and logs call the policy. */
export const policyPath = (id: PolicyId): string =>
  `${shortKind(id)}/${id.namespace === "" ? "" : `${id.namespace}/`}${id.name}`;
/** `NetworkPolicy default/web`, for comments. */
export const policyTitle = (id: PolicyId): string =>
  `${id.kind} ${id.namespace === "" ? "" : `${id.namespace}/`}${id.name}`;
export const isStaged = (id: PolicyId): boolean => id.kind.startsWith("Staged");

export type Direction = "ingress" | "egress";

export class ChainNames {
  /** @param limit how long a chain's name may be */
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

/** What iptables reads as part of a word: no blank, no quote, nothing that ends a line. */
const IS_ONE_WORD = /^[\x21-\x7e]+$/;
const MAY_QUOTE = /["'\\]/;
export const isOneWord = (text: string): boolean => IS_ONE_WORD.test(text) && !MAY_QUOTE.test(text);

/**
 * Prefix and suffix if they fit, else the prefix, `_` and a hash of the suffix, cut to the limit. Names come from the
 * datastore: one that rule text could not hold as a single word is hashed too.
 */
export function limitName(prefix: string, suffix: string, limit: number): string {
  const isName = suffix === "" || isOneWord(suffix);
  return isName ? lengthLimitedId(prefix, suffix, limit) : hashedId(prefix, suffix, limit);
}

/** The kernel's name of a set of addresses: `cali40s:…`. */
export const setName = (version: IpVersion, id: string): string => `cali${version}0${id}`.slice(0, SET_NAME_LENGTH);

/** Consecutive policies with one selector share a chain named by all they are. */
export function policyGroupName(direction: Direction, selector: string, policies: readonly PolicyId[]): string {
  const hash = createHash("sha3-224");
  hash.update(`${selector}\n${direction === "ingress" ? "inbound" : "outbound"}\n${policies.length}\n`);
  for (const { name, namespace, kind } of policies)
    hash.update(`{Name: ${name}, Namespace: ${namespace}, Kind: ${kind}}\n`);
  return `${direction === "ingress" ? "cali-gi-" : "cali-go-"}${hash.digest("base64url").slice(0, 20)}`;
}
