// Rules of the tree as nftables rules. What iptables needs marks and several rules for (lists, decisions, rates) is one
// rule here: lists become sets inside the rule, a decision its own statements.
import { type Expression, nftMatch as nft, prefixElements, type RuleBody } from "../../kernel/index.ts";
import type { IpVersion } from "../../lib/ip.ts";
import { outermost } from "../../lib/prefix-cover.ts";
import { unreachable } from "../../lib/unreachable.ts";
import type { RulesConfig } from "../rules/config.ts";
import { setName } from "../rules/names.ts";
import { type Action, type Layer, type Match, protocolNumber, type Rule, type SetId } from "../rules/rule.ts";
import { isSlotted, PORTS_SET } from "./rule-ports.ts";

export interface RenderContext {
  readonly config: RulesConfig;
  readonly version: IpVersion;
  readonly layer: Layer;
  /** The kernel's name of a set. */
  readonly setName: (set: SetId) => string;
}

/** Calico's name of a set; a colon would end it in nft's language. */
export const nftSetName = (version: IpVersion, id: string): string => setName(version, id).replaceAll(":", "-");
/** All layers share one table: a chain's name says which it is of. */
export const nftChainName = (layer: Layer, name: string): string => `${layer}-${name}`;

const COMMENT_BYTES = 127;

/** The kernel rules for one rule of the tree, each with its mark as comment. */
export function renderRule(context: RenderContext, rule: Rule, mark: string): RuleBody[] {
  const comment = ruleComment(rule, mark);
  return alternatives(rule).map((match) => {
    const expressions: Expression[] = [];
    let protocol: number | undefined; // matched already
    for (const m of match) {
      expressions.push(...renderMatch(context, m, protocol));
      if (m.kind === "protocol" && m.negated !== true) protocol = protocolNumber(m.protocol);
      else if (m.kind === "ports") protocol = protocolNumber(m.protocol);
    }
    const { action } = rule;
    if (action?.kind === "dropOverRate")
      expressions.push(nft.rateLimit(action.packetsPerSecond, "second", action.burst, true), nft.counter, nft.drop);
    else expressions.push(nft.counter, ...renderAction(context, action));
    return { expressions, comment };
  });
}

/** `cali:<mark>; what the rule is for` */
function ruleComment(rule: Rule, mark: string): string {
  const texts = [...(rule.comments ?? []), ...(rule.annotations ?? [])].join("; ");
  const comment = texts === "" ? `cali:${mark};` : `cali:${mark}; ${texts}`;
  if (comment.length <= COMMENT_BYTES / 4) return comment;
  // Cut by bytes, never inside a character.
  let bytes = new TextEncoder().encode(comment);
  if (bytes.length <= COMMENT_BYTES) return comment;
  bytes = bytes.subarray(0, COMMENT_BYTES);
  return new TextDecoder().decode(bytes).replace(/\uFFFD+$/, "");
}

/**
 * Numbers and named ports of one side are alternatives, and a rule has no "or" across two kinds of lookup: one rule
 * each. The later ones leave out what an earlier one took, so that no packet is logged twice. `kernelRules` counts them.
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
  // A packet without a connection has no status to look at, and the rule would end there: it has no new destination.
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
      const set = { type: { key: [key], interval: true }, elements: nets.flatMap(prefixElements) } as const;
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
  const { layer, version, config } = context;
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
      return [layer === "filter" ? nft.reject(version) : nft.drop]; // only there the kernel can answer
    case "jump":
      return [nft.jump(nftChainName(layer, a.chain))];
    case "goto":
      return [nft.goto(nftChainName(layer, a.chain))];
    case "setMark":
      return nft.setMark(a.value, a.mask);
    case "log":
      return [{ kind: "log", prefix: a.prefix.slice(0, COMMENT_BYTES), level: LOG_LEVEL_INFO }];
    case "nflog":
      return [{ kind: "nflog", prefix: a.prefix, group: a.group, snapLength: NFLOG_SIZE }];
    case "masquerade":
      return nft.masquerade({ fullyRandom: true, ...(a.ports === undefined ? {} : { ports: a.ports }) });
    case "snat":
      return nft.translate("snat", a.to, { fullyRandom: true, ...(a.ports === undefined ? {} : { ports: a.ports }) });
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
