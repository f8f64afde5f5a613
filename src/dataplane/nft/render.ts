// Renders rules of the rule tree as nftables rules. Lists, decisions and rates, for which iptables needs marks and several
// rules, are one nftables rule: lists become anonymous sets, decisions become several statements.
import { type Expression, nftMatch as nft, prefixElements, type RuleBody } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip/ip.ts";
import { outermost } from "../../lib/ip/prefix-cover.ts";
import { unreachable } from "../../lib/unreachable.ts";
import type { RulesConfig } from "../rules/config.ts";
import { setName } from "../rules/names.ts";
import { type Action, type TableName, type Match, protocolNumber, type Rule, type SetId } from "../rules/rule.ts";
import { isSlotted, PORTS_SET } from "./rule-ports.ts";

export interface RenderContext {
  readonly config: RulesConfig;
  readonly version: IpVersion;
  readonly tableName: TableName;
  /** Returns the kernel's name of a set. */
  readonly setName: (set: SetId) => string;
}

/** The name that Calico uses. nft does not allow colons in names. */
export const nftSetName = (version: IpVersion, id: string): string => setName(version, id).replaceAll(":", "-");
/** The chains of all iptables tables are in one nftables table, with a prefix for each. */
export const nftChainName = (tableName: TableName, name: string): string => `${tableName}-${name}`;

const COMMENT_BYTES = 127;

/** Returns the kernel rules for one rule of the rule tree. The comment of each contains the mark. */
export function renderRule(context: RenderContext, rule: Rule, mark: string): RuleBody[] {
  const comment = ruleComment(rule, mark);
  if (usesMarks(rule)) return renderWithMarks(context, rule).map((expressions) => ({ expressions, comment }));
  const { action } = rule;
  return alternatives(rule).map((match) => {
    const expressions = renderMatches(context, match);
    if (action?.kind === "dropOverRate")
      expressions.push(nft.rateLimit(action.packetsPerSecond, "second", action.burst, true), nft.counter, nft.drop);
    else expressions.push(nft.counter, ...renderAction(context, action));
    return { expressions, comment };
  });
}

function renderMatches(context: RenderContext, match: readonly Match[]): Expression[] {
  const expressions: Expression[] = [];
  let protocol: number | undefined; // the protocol that an earlier match requires
  for (const m of match) {
    expressions.push(...renderMatch(context, m, protocol));
    if (m.kind === "protocol" && m.negated !== true) protocol = protocolNumber(m.protocol);
    else if (m.kind === "ports") protocol = protocolNumber(m.protocol);
  }
  return expressions;
}

/** The largest number of kernel rules for one rule in the simple form. */
const MAX_PRODUCT = 64;
/** A packet is logged once, so each alternative of a log rule excludes all earlier ones. */
const MOST_LOGGED = 8;

/** Returns the number of kernel rules for one rule of the rule tree. */
export function kernelRules(rule: Rule | undefined): number {
  const counts = choiceCounts(rule);
  return rule !== undefined && usesMarks(rule)
    ? counts.reduce((sum, count) => sum + count, 2)
    : counts.reduce((product, count) => product * count, 1);
}

/**
 * True if the alternatives are combined with scratch bits of the packet mark, as in iptables (iptables/render.ts). The
 * simple form has one kernel rule per combination: with 50 named ports on both sides, 2,500 for one rule.
 */
function usesMarks(rule: Rule): boolean {
  const counts = choiceCounts(rule);
  if (counts.length === 1) return rule.action?.kind === "log" && (counts[0] ?? 0) > MOST_LOGGED;
  return counts.length === 2 && counts.reduce((product, count) => product * count, 1) > MAX_PRODUCT;
}

/** Returns the number of alternatives of each match with more than one. */
function choiceCounts(rule: Rule | undefined): number[] {
  const counts: number[] = [];
  for (const m of rule?.match ?? [])
    if (m.kind === "ctDnat" && m.negated === true) counts.push(2);
    else if (m.kind === "ports" && m.negated !== true && m.sets !== undefined && m.sets.length > 0)
      counts.push(m.sets.length + (m.ranges.length > 0 || isSlotted(m) ? 1 : 0));
  return counts.filter((count) => count > 1);
}

/**
 * The first rule clears the bits. Each alternative of the first list sets bit 0, each of the second list sets bit 1 if bit 0
 * is set, and the last rule acts if the last bit is set. Policy chains do not use these bits otherwise.
 */
function renderWithMarks(context: RenderContext, rule: Rule): Expression[][] {
  const { scratch0, scratch1 } = context.config.marks;
  const all = (rule.match ?? []).map((m) => choicesOf(m, false));
  const lists = all.filter((choices) => choices.length > 1);
  const rest = all.filter((choices) => choices.length === 1).flat(2);
  const rules: Expression[][] = [[...nft.setMark(0, (scratch0 | scratch1) >>> 0)]];
  let required: Match[] = [];
  for (const [i, choices] of lists.entries()) {
    const bit = i === 0 ? scratch0 : scratch1;
    for (const choice of choices)
      rules.push([...renderMatches(context, [...required, ...choice]), ...nft.setMark(bit, bit)]);
    required = [{ kind: "mark", value: bit, mask: bit }];
  }
  rules.push([...renderMatches(context, [...required, ...rest]), nft.counter, ...renderAction(context, rule.action)]);
  return rules;
}

/** `cali:<mark>; <comments of the rule>` */
function ruleComment(rule: Rule, mark: string): string {
  const texts = [...(rule.comments ?? []), ...(rule.annotations ?? [])].join("; ");
  const comment = texts === "" ? `cali:${mark};` : `cali:${mark}; ${texts}`;
  if (comment.length <= COMMENT_BYTES / 4) return comment;
  // Truncated by bytes, but never inside a character.
  let bytes = new TextEncoder().encode(comment);
  if (bytes.length <= COMMENT_BYTES) return comment;
  bytes = bytes.subarray(0, COMMENT_BYTES);
  return new TextDecoder().decode(bytes).replace(/\uFFFD+$/, "");
}

/**
 * Port numbers and named ports of one side are alternatives. A rule cannot combine two kinds of lookup with "or", so there
 * is one rule for each. In log rules, later alternatives exclude earlier ones, so that no packet is logged twice.
 * `kernelRules` must return the number of these rules.
 */
function alternatives(rule: Rule): (readonly Match[])[] {
  if (rule.match?.some(hasAlternatives) !== true) return [rule.match ?? []];
  let result: Match[][] = [[]];
  for (const m of rule.match ?? []) {
    const choices = choicesOf(m, rule.action?.kind === "log");
    result = result.flatMap((before) => choices.map((choice) => [...before, ...choice]));
  }
  return result;
}

const hasAlternatives = (m: Match): boolean =>
  m.kind === "ports" ? m.sets !== undefined && m.sets.length > 0 : m.kind === "ctDnat" && m.negated === true;

function choicesOf(m: Match, areExclusive: boolean): Match[][] {
  // A packet without a connection has no conntrack status, so `ct status` does not match. Its destination is not translated.
  if (m.kind === "ctDnat" && m.negated === true) return [[m], [{ kind: "ctState", states: ["invalid", "untracked"] }]];
  if (m.kind !== "ports" || m.sets === undefined || m.sets.length === 0) return [[m]];
  const { sets, ...rest } = m;
  const numbers: Match[] = m.ranges.length === 0 && !isSlotted(m) ? [] : [rest];
  const named = sets.map((set): Match => ({ kind: "ipPortSet", side: m.side, set }));
  if (m.negated === true) return [[...numbers, ...named.map((n) => negate(n))]];
  const choices = [...numbers, ...named].map((choice) => [choice]);
  if (!areExclusive) return choices;
  return choices.map((choice, i) => [...choices.slice(0, i).flatMap((earlier) => earlier.map(negate)), ...choice]);
}

const negate = (m: Match): Match => ({ ...m, negated: true }) as Match;

function renderMatch(
  { version, setName: nameOf }: RenderContext,
  m: Match,
  protocol: number | undefined,
): readonly Expression[] {
  const needProtocol = (number: number) => (number === protocol ? [] : nft.protocol(number));
  switch (m.kind) {
    case "interface":
      return nft.interfaceName(m.direction, m.name);
    case "family":
      return nft.family(m.version);
    case "protocol":
      return nft.protocol(protocolNumber(m.protocol), m.negated);
    case "nets": {
      const nets = m.nets.length === 1 ? m.nets : outermost(m.nets, version);
      const [only] = nets;
      if (nets.length === 1 && only !== undefined) return nft.prefix(m.side, only, m.negated);
      const key = version === 4 ? "ipv4_addr" : "ipv6_addr";
      // Created while they are encoded, because there may be 100,000.
      const elements = {
        length: 2 * nets.length,
        *[Symbol.iterator]() {
          for (const net of nets) yield* prefixElements(net);
        },
      };
      const set = { type: { key: [key], interval: true }, elements } as const;
      return nft.addressInSet(version, m.side, set, m.negated);
    }
    case "address":
      return nft.address(m.side, m.address);
    case "ipSet":
      return nft.addressInSet(version, m.side, nameOf(m.set), m.negated);
    case "ipPortSet":
      return nft.addressAndPortInSet(version, m.side, nameOf(m.set), m.negated);
    case "ports": {
      const numbers = isSlotted(m)
        ? nft.constantAndPortInSet(m.slot, m.side, PORTS_SET, m.negated)
        : nft.ports(m.side, m.ranges, m.negated);
      return [...needProtocol(protocolNumber(m.protocol)), ...numbers];
    }
    case "udpPort":
      return [...nft.protocol(17), ...nft.ports("destination", [{ first: m.port, last: m.port }])];
    case "icmp":
      return [...needProtocol(version === 4 ? 1 : 58), ...nft.icmpType(m.type, m.code, m.negated)];
    case "mark":
      return nft.markIs(m.value, m.mask, m.negated);
    case "ctState":
      return nft.ctState(m.states);
    case "ctDnat":
      return nft.ctIsDnat(m.negated);
    case "reversePathFails":
      return nft.reversePathFails();
    case "localAddress":
      return nft.addressIsLocal(m.side, m.negated, m.onOutInterface === true ? "oif" : undefined);
    case "limit": {
      const { rate, unit } = parseRate(m.rate);
      return [nft.rateLimit(rate, unit, m.burst)];
    }
    case "connectionsAbove":
      return [...needProtocol(6), ...nft.ctState(["new"]), ...nft.connectionsOver(m.count)];
    case "arpReply":
      return nft.arpReply(m.sender);
    default:
      return unreachable(m);
  }
}

const UNITS = { sec: "second", second: "second", minute: "minute", min: "minute", hour: "hour", day: "day" } as const;

function parseRate(text: string): { rate: number; unit: "second" | "minute" | "hour" | "day" } {
  const match = /^(\d+)\/(\w+)$/.exec(text);
  const unit = UNITS[(match?.[2] ?? "") as keyof typeof UNITS];
  if (match === null || unit === undefined) throw new RangeError(`rate ${JSON.stringify(text)}: want 5/minute`);
  return { rate: Number(match[1]), unit };
}

const LOG_LEVEL_INFO = 6;
const NFLOG_SIZE = 80;

function renderAction(context: RenderContext, a: Action | undefined): readonly Expression[] {
  if (a === undefined) return [];
  const { tableName, version, config } = context;
  switch (a.kind) {
    case "accept":
      return [nft.accept];
    case "drop":
      return [nft.drop];
    case "return":
      return [nft.returnToCaller];
    case "notrack":
      return [nft.notrack];
    case "reject":
      if (a.with === "tcp-reset") return [nft.rejectTcp];
      return [tableName === "filter" ? nft.reject(version) : nft.drop]; // only the filter table supports reject
    case "jump":
      return [nft.jump(nftChainName(tableName, a.chain))];
    case "goto":
      return [nft.goto(nftChainName(tableName, a.chain))];
    case "setMark":
      return nft.setMark(a.value, a.mask);
    case "log":
      return [{ kind: "log", prefix: a.prefix.slice(0, COMMENT_BYTES), level: LOG_LEVEL_INFO }];
    case "nflog":
      return [{ kind: "nflog", prefix: a.prefix, group: a.group, snapLength: NFLOG_SIZE }];
    case "masquerade":
      return nft.masquerade({ fullyRandom: true, ports: a.ports });
    case "snat":
      return nft.translate("snat", a.to, { fullyRandom: true, ports: a.ports });
    case "dnat":
      return nft.translate("dnat", a.to, a.port === undefined ? {} : { ports: { first: a.port, last: a.port } });
    case "dscp":
      return nft.setDscp(version, a.value);
    case "offload":
      return [{ kind: "offload", flowtable: a.flowtable }];
    case "decide": {
      const log = a.nflog === undefined ? [] : renderAction(context, { kind: "nflog", ...a.nflog });
      if (a.decision === "deny") return [...log, ...renderAction(context, { kind: config.deny })];
      const bit = a.decision === "allow" ? config.marks.accept : config.marks.pass;
      return [...nft.setMark(bit, bit), ...log, nft.returnToCaller];
    }
    case "dropOverRate":
      return [nft.drop];
    default:
      return unreachable(a);
  }
}
