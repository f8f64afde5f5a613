// Renders rules of the rule tree as iptables rules. iptables has no lists of prefixes, and at most 15 ports in one match. A
// longer list becomes a block of rules. Scratch bit 0 of the packet mark means "all blocks so far matched", bit 1 "this block
// matched".
import type { RulesConfig } from "../rules/config.ts";
import { splitPorts } from "../rules/port-groups.ts";
import {
  type Action,
  clearMark,
  drop,
  type TableName,
  markClear,
  markSet,
  type Match,
  returnAction,
  type Rule,
  type RuleChain,
  setMark,
  type Side,
} from "../rules/rule.ts";
import {
  actionText,
  commentText,
  type IptablesFeatures,
  ipPortSetText,
  type MatchContext,
  matchText,
  type PlainAction,
} from "./rule-text.ts";

/** The text of an iptables rule after its hash comment. */
export type RuleText = string;

export interface RenderContext extends MatchContext {
  readonly config: RulesConfig;
  readonly tableName: TableName;
  readonly features: IptablesFeatures;
}

/** REJECT is only allowed in the filter table; in other tables the packet is dropped. */
const denied = ({ config, tableName }: RenderContext) =>
  config.deny === "reject" && tableName === "filter" ? ({ kind: "reject" } as const) : drop;

export const renderChain = (context: RenderContext, chain: RuleChain): RuleText[] => renderRules(context, chain).flat();

/** Returns the iptables rules for each rule of the chain. */
function renderRules(context: RenderContext, { rules }: RuleChain): RuleText[][] {
  const last = rules.length - 1;
  return rules.map((rule, i) => renderRule(context, rule, i === last));
}

/** @param isLast the last rule of a chain needs no RETURN */
function renderRule(context: RenderContext, rule: Rule, isLast: boolean): RuleText[] {
  const { marks } = context.config;
  const texts: RuleText[] = [];
  const annotations = rule.annotations ?? [];
  let comments = rule.comments ?? [];
  const put = (match: readonly string[], action: PlainAction | undefined) => {
    const words = [...annotations, ...comments].map(commentText);
    comments = []; // only the first iptables rule has them
    words.push(...match);
    if (action !== undefined) words.push(actionText(action, context.features));
    texts.push(words.join(" "));
  };
  const plain = (matches: readonly Match[]) => matches.map((m) => matchText(m, context));

  const { action } = rule;
  if (action?.kind === "dropOverRate") return dropOverRate(context, action);
  if (action?.kind === "offload") return []; // not supported by iptables
  const final = renderMatches(context, rule.match ?? [], put);
  if (action?.kind !== "decide") {
    const isPlainReject = action?.kind === "reject" && action.with === undefined;
    put(final, isPlainReject ? denied({ ...context, config: { ...context.config, deny: "reject" } }) : action);
    return texts;
  }
  const bit = { allow: marks.accept, pass: marks.pass, deny: marks.drop }[action.decision];
  put(final, setMark(bit));
  const decided = plain([markSet(bit)]);
  if (action.nflog !== undefined) put(decided, { kind: "nflog", ...action.nflog });
  if (action.decision === "deny") put(decided, denied(context));
  else if (!isLast) put(decided, returnAction);
  return texts;
}

type Put = (match: readonly string[], action: PlainAction | undefined) => void;

/** Writes the blocks for long lists, and returns the remaining matches as text. */
function renderMatches(context: RenderContext, matches: readonly Match[], put: Put): string[] {
  const { marks } = context.config;
  const blocks: { readonly negative: boolean; readonly lines: readonly (readonly string[])[] }[] = [];
  const left: Match[] = [];

  const positivePorts = (side: Side) =>
    matches.find((m) => m.kind === "ports" && m.side === side && m.negated !== true);
  const positiveNets = (side: Side) => matches.find((m) => m.kind === "nets" && m.side === side && m.negated !== true);
  const moved = new Set<Match>();
  for (const side of ["source", "destination"] as const) {
    const m = positivePorts(side);
    if (m?.kind !== "ports") continue;
    const groups = splitPorts(m.ranges);
    const sets = m.sets ?? [];
    if (groups.length + sets.length <= 1) continue;
    moved.add(m);
    blocks.push({
      negative: false,
      lines: [
        ...groups.map((ranges) => [
          matchText({ kind: "protocol", protocol: m.protocol }, context),
          matchText({ kind: "ports", side, protocol: m.protocol, ranges }, context),
        ]),
        ...sets.map((set) => [ipPortSetText(set, side, context)]),
      ],
    });
  }
  for (const side of ["source", "destination"] as const) {
    const m = positiveNets(side);
    if (m?.kind !== "nets" || m.nets.length <= 1) continue;
    moved.add(m);
    blocks.push({
      negative: false,
      lines: m.nets.map((net) => [matchText({ kind: "nets", side, nets: [net] }, context)]),
    });
  }
  for (const side of ["source", "destination"] as const) {
    const m = matches.find((x) => x.kind === "nets" && x.side === side && x.negated === true);
    if (m?.kind !== "nets") continue;
    const positive = positiveNets(side);
    const isPositiveLeft = positive !== undefined && !moved.has(positive);
    if (m.nets.length + (isPositiveLeft ? 1 : 0) <= 1) continue;
    moved.add(m);
    blocks.push({
      negative: true,
      lines: m.nets.map((net) => [matchText({ kind: "nets", side, nets: [net] }, context)]),
    });
  }
  for (const m of matches) if (!moved.has(m)) left.push(m);

  writeBlocks(context, blocks, put);
  const words = left.flatMap((m) => renderMatch(context, m));
  if (blocks.length > 0) words.push(matchText(markSet(marks.scratch0), context));
  return words;
}

function writeBlocks(
  context: RenderContext,
  blocks: readonly { readonly negative: boolean; readonly lines: readonly (readonly string[])[] }[],
  put: Put,
): void {
  if (blocks.length === 0) return;
  const { scratch0, scratch1 } = context.config.marks;
  const positives = blocks.filter((block) => !block.negative).length;
  const both = (scratch0 | scratch1) >>> 0;
  put([], { kind: "beginBlocks", value: positives > 0 ? 0 : scratch0, mask: both });
  let done = 0;
  for (const { negative, lines } of blocks) {
    if (negative) {
      for (const line of lines) put(line, clearMark(scratch0));
      continue;
    }
    // From the third block on, bit 1 contains the result of the previous block. Without clearing it, a block would match
    // because the previous one did.
    if (done >= 2) put([], clearMark(scratch1));
    for (const line of lines) put(line, setMark(done === 0 ? scratch0 : scratch1));
    if (done > 0) put([matchText(markClear(scratch1), context)], clearMark(scratch0));
    done++;
  }
}

/** A negated list becomes several matches of one rule. */
function renderMatch(context: RenderContext, m: Match): string[] {
  if (m.kind !== "ports") return [matchText(m, context)];
  const { sets = [], ...numbers } = m;
  const words = splitPorts(m.ranges).map((ranges) => matchText({ ...numbers, ranges }, context));
  words.push(...sets.map((set) => ipPortSetText(set, m.side, context, m.negated)));
  return words;
}

/** The limit match of iptables matches packets below the rate: they are marked, and packets without the mark are dropped. */
function dropOverRate(context: RenderContext, action: Action & { kind: "dropOverRate" }): RuleText[] {
  const bit = context.config.marks.scratch0;
  const { what, packetsPerSecond, burst } = action;
  const write = (comment: string, match: readonly Match[], then: PlainAction): RuleText =>
    [commentText(comment), ...match.map((m) => matchText(m, context)), actionText(then, context.features)].join(" ");
  const clear = write(`Clear ${what} packet rate limit mark`, [], clearMark(bit));
  return [
    clear,
    write(
      `Mark packets within ${what} packet rate limit`,
      [{ kind: "limit", rate: `${packetsPerSecond}/sec`, burst }],
      setMark(bit),
    ),
    write(
      `Drop packets over ${what} packet rate limit`,
      [{ kind: "mark", value: bit, mask: bit, negated: true }],
      drop,
    ),
    clear,
  ];
}
