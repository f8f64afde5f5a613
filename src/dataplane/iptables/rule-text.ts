// Renders matches and actions as arguments of iptables. The text is part of the rule's hash, so it must be identical to
// Calico's.
import type { IpVersion } from "../../lib/ip/ip.ts";
import { unreachable } from "../../lib/unreachable.ts";
import { setName } from "../rules/names.ts";
import type { Action, Match, PortRange, SetId, Side } from "../rules/rule.ts";

/** Features of the iptables tools and the kernel of this host. */
export interface IptablesFeatures {
  readonly masqueradeRandomFully: boolean;
  readonly snatRandomFully: boolean;
  /** True: use `--nflog-size`; false: `--nflog-range`. */
  readonly nflogSize: boolean;
}

/** The parameters of matches. */
export interface MatchContext {
  readonly version: IpVersion;
  /** Returns the kernel's name of a set. By default the name that Calico gives it. */
  readonly setName?: (id: SetId) => string;
}

export const ALL_FEATURES: IptablesFeatures = { masqueradeRandomFully: true, snatRandomFully: true, nflogSize: true };

/** Actions that are one iptables target. */
export type PlainAction =
  | Exclude<Action, { kind: "decide" | "dropOverRate" | "offload" }>
  /** Like setMark, except that Calico writes a zero value as 0x0 here. */
  | { readonly kind: "beginBlocks"; readonly value: number; readonly mask: number };

const SIDE_SHORT: Readonly<Record<Side, string>> = { source: "src", destination: "dst" };
const hex = (value: number): string => (value === 0 ? "0" : `0x${value.toString(16)}`);
const bang = (negated: boolean | undefined): string => (negated === true ? "! " : "");
const ports = (ranges: readonly PortRange[]): string =>
  ranges.map(({ first, last }) => (first === last ? `${first}` : `${first}:${last}`)).join(",");
const LOG_PREFIX_LENGTH = 29;
const NFLOG_SIZE = 80;

export function matchText(m: Match, context: MatchContext): string {
  const { version } = context;
  switch (m.kind) {
    case "interface":
      return `--${m.direction}-interface ${m.name.replace(/\*$/, "+")}`;
    case "protocol":
      return `${bang(m.negated)}-p ${m.protocol}`;
    case "nets":
      return `${bang(m.negated)}--${m.side} ${m.nets.join(",")}`;
    case "address":
      return `--${m.side} ${m.address}`;
    case "ipSet":
      return `-m set ${bang(m.negated)}--match-set ${nameOf(context, m.set)} ${SIDE_SHORT[m.side]}`;
    case "ipPortSet":
      return ipPortSetText(m.set, m.side, context, m.negated);
    case "ports":
      return `-m multiport ${bang(m.negated)}--${m.side}-ports ${ports(m.ranges)}`;
    case "udpPort":
      return `-p udp --dport ${m.port}`;
    case "icmp": {
      const name = version === 4 ? "icmp" : "icmp6";
      const option = version === 4 ? "icmp-type" : "icmpv6-type";
      return `-m ${name} ${bang(m.negated)}--${option} ${m.type}${m.code === undefined ? "" : `/${m.code}`}`;
    }
    case "mark":
      return `-m mark ${bang(m.negated)}--mark ${hex(m.value)}/${hex(m.mask)}`;
    case "ctState":
      return `-m conntrack --ctstate ${m.states.map((state) => state.toUpperCase()).join(",")}`;
    case "ctDnat":
      return `-m conntrack ${bang(m.negated)}--ctstate DNAT`;
    case "reversePathFails":
      return "-m rpfilter --invert --validmark";
    case "localAddress": {
      const type = `${bang(m.negated)}--${SIDE_SHORT[m.side]}-type LOCAL`;
      return `-m addrtype ${type}${m.onOutInterface === true ? " --limit-iface-out" : ""}`;
    }
    case "limit":
      return `-m limit --limit ${m.rate} --limit-burst ${m.burst}`;
    case "connectionsAbove":
      return `-p tcp -m tcp --tcp-flags FIN,SYN,RST,ACK SYN -m connlimit --connlimit-above ${m.count} --connlimit-mask 0`;
    case "family":
      throw new Error("iptables tables process one IP family only");
    case "arpReply":
      throw new Error("iptables does not process ARP packets");
    default:
      return unreachable(m);
  }
}

const nameOf = (context: MatchContext, set: SetId): string => context.setName?.(set) ?? setName(context.version, set);

export const ipPortSetText = (set: SetId, side: Side, context: MatchContext, negated?: boolean): string =>
  `-m set ${bang(negated)}--match-set ${nameOf(context, set)} ${SIDE_SHORT[side]},${SIDE_SHORT[side]}`;

export function actionText(a: PlainAction, features: IptablesFeatures): string {
  switch (a.kind) {
    case "accept":
    case "drop":
    case "return":
    case "notrack":
      return `--jump ${a.kind.toUpperCase()}`;
    case "reject":
      return a.with === undefined ? "--jump REJECT" : `-j REJECT --reject-with ${a.with}`;
    case "jump":
    case "goto":
      return `--${a.kind} ${a.chain}`;
    case "setMark":
      return `--jump MARK --set-mark ${hex(a.value)}/${hex(a.mask)}`;
    case "beginBlocks":
      return `--jump MARK --set-mark 0x${a.value.toString(16)}/${hex(a.mask)}`;
    case "log":
      return `--jump LOG --log-prefix "${a.prefix.slice(0, LOG_PREFIX_LENGTH)}" --log-level 5`;
    case "nflog":
      return `--jump NFLOG --nflog-group ${a.group} --nflog-prefix ${a.prefix} --nflog-${features.nflogSize ? "size" : "range"} ${NFLOG_SIZE}`;
    case "masquerade":
      return `--jump MASQUERADE${toPorts(a.ports)}${features.masqueradeRandomFully ? " --random-fully" : ""}`;
    case "snat": {
      const range = a.ports === undefined ? "" : `:${a.ports.first}-${a.ports.last}`;
      return `--jump SNAT --to-source ${a.to}${range}${features.snatRandomFully ? " --random-fully" : ""}`;
    }
    case "dnat":
      return `--jump DNAT --to-destination ${a.to}${a.port === undefined ? "" : `:${a.port}`}`;
    case "dscp":
      return `--jump DSCP --set-dscp ${a.value}`;
    default:
      return unreachable(a);
  }
}

const toPorts = (range: PortRange | undefined): string =>
  range === undefined ? "" : ` --to-ports ${range.first}-${range.last}`;

/** Replaces characters that iptables-save and iptables-restore would quote differently. */
export const commentText = (comment: string): string =>
  `-m comment --comment "${comment.slice(0, 256).replace(/[^\w @%+=:,./-]/g, "_")}"`;
