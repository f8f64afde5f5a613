// The rule tree: what both renderers write, and nothing of how. A match may hold a list (any of these prefixes, none of
// those ports) and an action may be a whole decision; a renderer whose kernel side cannot say that in one rule writes
// several.
import type { Cidr, IpAddress, IpVersion } from "../../lib/ip.ts";
import { ipProtocolNumber } from "../../lib/ip-protocol.ts";

export type Layer = "raw" | "mangle" | "nat" | "filter";
export const LAYERS: readonly Layer[] = ["raw", "mangle", "nat", "filter"];

export type Side = "source" | "destination";
/** As the rule's author wrote it: a name or a number. Both mean the same packet but print differently. */
export type Protocol = string | number;
/** The id of a set of addresses; the renderer knows the kernel's name for it. */
export type SetId = string;

export interface PortRange {
  readonly first: number;
  readonly last: number;
}

export type CtState = "new" | "established" | "related" | "invalid" | "untracked";

export type Match =
  /** A trailing `*` stands for any ending. */
  | { readonly kind: "interface"; readonly direction: "in" | "out"; readonly name: string }
  /** For a table that sees both families. */
  | { readonly kind: "family"; readonly version: IpVersion }
  | { readonly kind: "protocol"; readonly protocol: Protocol; readonly negated?: boolean }
  /** In any of the prefixes; negated: in none. All of one family. */
  | { readonly kind: "nets"; readonly side: Side; readonly nets: readonly Cidr[]; readonly negated?: boolean }
  /** One address, printed without a length. */
  | { readonly kind: "address"; readonly side: Side; readonly address: IpAddress }
  | { readonly kind: "ipSet"; readonly side: Side; readonly set: SetId; readonly negated?: boolean }
  /** Address, protocol and port together. */
  | { readonly kind: "ipPortSet"; readonly side: Side; readonly set: SetId; readonly negated?: boolean }
  /**
   * One of the numbers or, by address and port, in one of the sets; negated: none of either. The protocol is the one
   * the numbers are of.
   */
  | {
      readonly kind: "ports";
      readonly side: Side;
      readonly protocol: Protocol;
      readonly ranges: readonly PortRange[];
      readonly sets?: readonly SetId[];
      readonly negated?: boolean;
    }
  /** One port in the form without a list, as the tunnel rules have it. */
  | { readonly kind: "udpPort"; readonly port: number }
  | { readonly kind: "icmp"; readonly type: number; readonly code?: number; readonly negated?: boolean }
  | { readonly kind: "mark"; readonly value: number; readonly mask: number; readonly negated?: boolean }
  | { readonly kind: "ctState"; readonly states: readonly CtState[] }
  | { readonly kind: "ctDnat"; readonly negated?: boolean }
  /** The packet did not come from where an answer would go. */
  | { readonly kind: "reversePathFails" }
  | {
      readonly kind: "localAddress";
      readonly side: Side;
      readonly negated?: boolean;
      /** Local to the interface the packet leaves by. */
      readonly onOutInterface?: boolean;
    }
  | { readonly kind: "limit"; readonly rate: string; readonly burst: number }
  /** A new TCP connection that would be one too many. */
  | { readonly kind: "connectionsAbove"; readonly count: number }
  /** "That address is mine", said in ARP; only where ARP is looked at. */
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
  /** A policy's word on the packet: the mark that says so, an optional log, and the way out of the chain. */
  | { readonly kind: "decide"; readonly decision: Decision; readonly nflog?: Nflog }
  /** Drops what exceeds the rate; what stays below goes on. */
  | {
      readonly kind: "dropOverRate";
      readonly packetsPerSecond: number;
      readonly burst: number;
      /** "ingress" or "egress", for the comments. */
      readonly what: string;
    };

export interface Rule {
  readonly match?: readonly Match[];
  /** Nothing: the rule only carries its comment. */
  readonly action?: Action;
  readonly comments?: readonly string[];
  /** What the policy's author noted: stands on every kernel rule made from this one. */
  readonly annotations?: readonly string[];
  /**
   * For a kernel that refuses it, where the action does not tell: `leaveOut`, since without it no more passes; `close`,
   * since it is about workloads only, in a chain of the whole host; or where its packets go instead.
   */
  readonly ifRefused?: "leaveOut" | "close" | Detour;
}

/** A chain that lets no more pass than the rule that leads there instead would have, and why it is not simply a drop. */
export interface Detour {
  readonly chain: string;
  /** What becomes of packets there, for an operator. */
  readonly meaning: string;
}

/** One chain of ours. */
export interface RuleChain {
  readonly kind: "rules";
  readonly name: string;
  readonly rules: readonly Rule[];
  /** Written even if nothing leads to it. */
  readonly isForced?: boolean;
  /** The host's own packets come here, before its failsafe ports are asked. */
  readonly isHostWide?: boolean;
}

/** A chain that leads each interface's packets to that interface's own chain. */
export interface DispatchChain {
  readonly kind: "dispatch";
  readonly name: string;
  readonly direction: "in" | "out";
  /** Chain by interface name. */
  readonly targets: ReadonlyMap<string, string>;
  /** Before the choice. */
  readonly before?: readonly Rule[];
  /** For interfaces without a target, at the end of every part the renderer makes. */
  readonly otherwise: readonly Rule[];
  /** After the choice, only in the chain itself. */
  readonly after?: readonly Rule[];
  /** As of a chain of rules. */
  readonly isHostWide?: boolean;
}

export type Chain = RuleChain | DispatchChain;

export const chain = (name: string, rules: readonly Rule[]): RuleChain => ({ kind: "rules", name, rules });

/** One that the host's own packets walk, failsafe ports or not. */
export const hostChain = (name: string, rules: readonly Rule[]): RuleChain => ({
  ...chain(name, rules),
  isHostWide: true,
});

/** All rules of a chain; a dispatch's choice is none. */
export const chainRules = (c: Chain): readonly Rule[] =>
  c.kind === "rules" ? c.rules : [...(c.before ?? []), ...c.otherwise, ...(c.after ?? [])];

/** What a dispatch, rule or chain leads to. */
export function chainTargets(c: Chain): Set<string> {
  const targets = new Set<string>();
  for (const rule of chainRules(c))
    if (rule.action !== undefined && "chain" in rule.action) targets.add(rule.action.chain);
  if (c.kind === "dispatch") for (const target of c.targets.values()) targets.add(target);
  return targets;
}

export const namesSet = (m: Match, set: SetId): boolean =>
  m.kind === "ports" ? m.sets?.includes(set) === true : (m.kind === "ipSet" || m.kind === "ipPortSet") && m.set === set;

// --- short forms, so that chains read like their description ------------------------------------------------------

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

/** The protocol's number, for those a policy may name. */
export function protocolNumber(protocol: Protocol): number {
  const number = ipProtocolNumber(protocol);
  if (number === undefined) throw new RangeError(`protocol ${JSON.stringify(protocol)} has no number`);
  return number;
}
export const icmpProtocol = (version: IpVersion): Protocol => (version === 4 ? "icmp" : "icmpv6");
