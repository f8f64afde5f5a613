// The rule tree: rules as typed matches and actions, independent of the renderer. A match may contain a list (prefixes, ports),
// and an action may be a whole decision. If the kernel cannot express that in one rule, a renderer writes several.
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip/ip.ts";
import { ipProtocolNumber } from "../../lib/ip/ip-protocol.ts";

export type TableName = "raw" | "mangle" | "nat" | "filter";
export const TABLE_NAMES: readonly TableName[] = ["raw", "mangle", "nat", "filter"];

export type Side = "source" | "destination";
/** A name or a number, as in the policy. Both have the same meaning, but different text. */
export type Protocol = string | number;
/** The id of an IP set. Its name in the kernel depends on the renderer. */
export type SetId = string;

export interface PortRange {
  readonly first: number;
  readonly last: number;
}

export type CtState = "new" | "established" | "related" | "invalid" | "untracked";

export type Match =
  /** A trailing `*` matches any suffix. */
  | { readonly kind: "interface"; readonly direction: "in" | "out"; readonly name: string }
  /** For tables that process both families. */
  | { readonly kind: "family"; readonly version: IpVersion }
  | { readonly kind: "protocol"; readonly protocol: Protocol; readonly negated?: boolean }
  /** In any of the prefixes; negated: in none of them. All belong to one family. */
  | { readonly kind: "nets"; readonly side: Side; readonly nets: readonly Cidr[]; readonly negated?: boolean }
  /** One address, written without a prefix length. */
  | { readonly kind: "address"; readonly side: Side; readonly address: IpAddress }
  | { readonly kind: "ipSet"; readonly side: Side; readonly set: SetId; readonly negated?: boolean }
  /** Combinations of address, protocol and port. */
  | { readonly kind: "ipPortSet"; readonly side: Side; readonly set: SetId; readonly negated?: boolean }
  /**
   * One of the port numbers, or a combination of address and port in one of the sets; negated: none of them. The protocol
   * is that of the port numbers.
   */
  | {
      readonly kind: "ports";
      readonly side: Side;
      readonly protocol: Protocol;
      readonly ranges: readonly PortRange[];
      readonly sets?: readonly SetId[];
      readonly negated?: boolean;
    }
  /** One port in the form without a list, as Calico writes it in tunnel rules. */
  | { readonly kind: "udpPort"; readonly port: number }
  | { readonly kind: "icmp"; readonly type: number; readonly code?: number; readonly negated?: boolean }
  | { readonly kind: "mark"; readonly value: number; readonly mask: number; readonly negated?: boolean }
  | { readonly kind: "ctState"; readonly states: readonly CtState[] }
  | { readonly kind: "ctDnat"; readonly negated?: boolean }
  /** A reply would leave through another interface than the one from which the packet came. */
  | { readonly kind: "reversePathFails" }
  | {
      readonly kind: "localAddress";
      readonly side: Side;
      readonly negated?: boolean;
      /** Only addresses of the outgoing interface. */
      readonly onOutInterface?: boolean;
    }
  | { readonly kind: "limit"; readonly rate: string; readonly burst: number }
  /** A new TCP connection above this number. */
  | { readonly kind: "connectionsAbove"; readonly count: number }
  /** An ARP reply for this address. Only in the ARP table. */
  | { readonly kind: "arpReply"; readonly sender: IpAddress };

export type Decision = "allow" | "pass" | "deny";

export interface Nflog {
  readonly group: number;
  readonly prefix: string;
}

export type Action =
  | { readonly kind: "accept" | "drop" | "return" | "notrack" }
  | { readonly kind: "reject"; readonly with?: "tcp-reset" }
  | { readonly kind: "jump" | "goto"; readonly chain: string }
  /** Sets the masked bits to the value. */
  | { readonly kind: "setMark"; readonly value: number; readonly mask: number }
  | { readonly kind: "log"; readonly prefix: string }
  | ({ readonly kind: "nflog" } & Nflog)
  | { readonly kind: "masquerade"; readonly ports?: PortRange }
  | { readonly kind: "snat"; readonly to: IpAddress; readonly ports?: PortRange }
  | { readonly kind: "dnat"; readonly to: IpAddress; readonly port?: number }
  | { readonly kind: "dscp"; readonly value: number }
  | { readonly kind: "offload"; readonly flowtable: string }
  /** The decision of a policy: sets its mark, logs optionally, and leaves the chain. */
  | { readonly kind: "decide"; readonly decision: Decision; readonly nflog?: Nflog }
  /** Drops packets above the rate. */
  | {
      readonly kind: "dropOverRate";
      readonly packetsPerSecond: number;
      readonly burst: number;
      /** "ingress" or "egress", for the comments. */
      readonly what: string;
    };

export interface Rule {
  readonly match?: readonly Match[];
  /** Undefined: the rule has only a comment. */
  readonly action?: Action;
  readonly comments?: readonly string[];
  /** Annotations of the policy rule. They are comments of every kernel rule for this rule. */
  readonly annotations?: readonly string[];
  /**
   * What to program if the kernel rejects the rule, and its action does not determine that (fallback/fallback-rules.ts):
   * - `omit`: nothing, because no additional packet is accepted without the rule
   * - `drop`: a drop, although the chain is host-wide, because the rule matches only packets of workloads
   * - a chain that processes the packets instead
   */
  readonly ifRejected?: "omit" | "drop" | FallbackChain;
}

/** A chain that accepts no packet that the rejected rule would have dropped, but drops fewer packets than a plain drop. */
export interface FallbackChain {
  readonly chain: string;
  /** Describes to an operator what happens to packets in this chain. */
  readonly effect: string;
}

/** A chain with plain rules. */
export interface RuleChain {
  readonly kind: "rules";
  readonly name: string;
  readonly rules: readonly Rule[];
  /** Written even if no other chain leads to it. */
  readonly isForced?: boolean;
  /** Packets of the host itself traverse the chain, before the failsafe ports are checked. */
  readonly isHostWide?: boolean;
}

/** A chain that dispatches packets to the chain of their interface. */
export interface DispatchChain {
  readonly kind: "dispatch";
  readonly name: string;
  readonly direction: "in" | "out";
  /** Chain by interface name. */
  readonly targets: ReadonlyMap<string, string>;
  /** Before the dispatch. */
  readonly before?: readonly Rule[];
  /** For interfaces without a target; at the end of every chain into which a renderer splits this one. */
  readonly otherwise: readonly Rule[];
  /** After the dispatch, only in the chain itself. */
  readonly after?: readonly Rule[];
  /** As in `RuleChain`. */
  readonly isHostWide?: boolean;
}

export type Chain = RuleChain | DispatchChain;

export const chain = (name: string, rules: readonly Rule[]): RuleChain => ({ kind: "rules", name, rules });

/** A chain that packets of the host itself traverse. */
export const hostChain = (name: string, rules: readonly Rule[]): RuleChain => ({
  ...chain(name, rules),
  isHostWide: true,
});

/** Returns all rules of a chain. The dispatch itself is not a rule. */
export const chainRules = (c: Chain): readonly Rule[] =>
  c.kind === "rules" ? c.rules : [...(c.before ?? []), ...c.otherwise, ...(c.after ?? [])];

/** Returns the chains to which a chain leads. */
export function chainTargets(c: Chain): Set<string> {
  const targets = new Set<string>();
  for (const rule of chainRules(c))
    if (rule.action !== undefined && "chain" in rule.action) targets.add(rule.action.chain);
  if (c.kind === "dispatch") for (const target of c.targets.values()) targets.add(target);
  return targets;
}

export const namesSet = (m: Match, set: SetId): boolean =>
  m.kind === "ports" ? m.sets?.includes(set) === true : (m.kind === "ipSet" || m.kind === "ipPortSet") && m.set === set;

// --- short forms ---------------------------------------------------------------------------------------------------

export const accept = { kind: "accept" } as const satisfies Action;
export const drop = { kind: "drop" } as const satisfies Action;
export const returnAction = { kind: "return" } as const satisfies Action;
export const notrack = { kind: "notrack" } as const satisfies Action;
export const jump = (to: string) => ({ kind: "jump", chain: to }) as const satisfies Action;
export const goto = (to: string) => ({ kind: "goto", chain: to }) as const satisfies Action;
export const setMark = (bits: number) => ({ kind: "setMark", value: bits, mask: bits }) as const satisfies Action;
export const clearMark = (bits: number) => ({ kind: "setMark", value: 0, mask: bits }) as const satisfies Action;

export const inInterface = (name: string): Match => ({ kind: "interface", direction: "in", name });
export const outInterface = (name: string): Match => ({ kind: "interface", direction: "out", name });
export const protocolIs = (protocol: Protocol): Match => ({ kind: "protocol", protocol });
export const markSet = (bits: number): Match => ({ kind: "mark", value: bits, mask: bits });
export const markClear = (bits: number): Match => ({ kind: "mark", value: 0, mask: bits });
export const markNotClear = (bits: number): Match => ({ kind: "mark", value: 0, mask: bits, negated: true });
export const inSet = (side: Side, set: SetId): Match => ({ kind: "ipSet", side, set });
export const notInSet = (side: Side, set: SetId): Match => ({ kind: "ipSet", side, set, negated: true });
export const isAddress = (side: Side, address: IpAddress): Match => ({ kind: "address", side, address });
export const isNet = (side: Side, net: Cidr): Match => ({ kind: "nets", side, nets: [net] });
export const destinationPort = (protocol: Protocol, port: number): Match => ({
  kind: "ports",
  side: "destination",
  protocol,
  ranges: [{ first: port, last: port }],
});
export const sourcePort = (protocol: Protocol, port: number): Match => ({
  kind: "ports",
  side: "source",
  protocol,
  ranges: [{ first: port, last: port }],
});
export const isLocal = (side: Side): Match => ({ kind: "localAddress", side });
export const established: Match = { kind: "ctState", states: ["related", "established"] };

/** Returns the number of a protocol that policies may name. */
export function protocolNumber(protocol: Protocol): number {
  const number = ipProtocolNumber(protocol);
  if (number === undefined) throw new RangeError(`protocol ${JSON.stringify(protocol)} has no number`);
  return number;
}
export const icmpProtocol = (version: IpVersion): Protocol => (version === 4 ? "icmp" : "icmpv6");
