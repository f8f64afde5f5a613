// One endpoint's policy, one direction, one packet: tiers in order, policies in order, rules in order; then profiles.
// Every step leaves its trace, so the path to a verdict can be told.
import type { PolicyKey, Rule } from "../model/index.ts";
import { type Mismatch, whyNoMatch } from "./match.ts";
import type { Packet } from "./packet.ts";
import type { Endpoint, PlacedPolicy, PlacedTier, PolicyState } from "./state.ts";

export type Direction = "ingress" | "egress";
/** Which of an endpoint's policies a packet meets. Workloads have only `normal`. */
export type Stage = "untracked" | "preDnat" | "forward" | "normal";

export interface RuleTrace {
  /** Counted from 0, as the policy lists them. */
  readonly index: number;
  readonly action: Rule["action"];
  /** Absent when the rule matched. */
  readonly mismatch?: Mismatch;
  readonly annotations?: Readonly<Record<string, string>>;
}
export type PolicyOutcome = "allow" | "deny" | "pass" | "no match";
export interface PolicyTrace {
  readonly key: PolicyKey;
  /** Reported only: what it says has no effect. */
  readonly staged: boolean;
  readonly outcome: PolicyOutcome;
  /** Up to the one that decided. */
  readonly rules: readonly RuleTrace[];
}
export interface TierTrace {
  readonly name: string;
  readonly policies: readonly PolicyTrace[];
  /** `end` when no rule decided: the tier's default did. */
  readonly outcome: "allow" | "deny" | "pass" | "end: deny" | "end: pass";
}
export interface ProfileTrace {
  readonly name: string;
  readonly missing: boolean;
  readonly outcome: PolicyOutcome;
  readonly rules: readonly RuleTrace[];
}
export interface Evaluation {
  /** `none`: this stage has no opinion, the packet goes on. */
  readonly outcome: "allow" | "deny" | "none";
  /** In one clause, what decided. */
  readonly because: string;
  readonly tiers: readonly TierTrace[];
  readonly profiles: readonly ProfileTrace[];
}

/** One packet that passes one endpoint. */
export interface Passage {
  readonly endpoint: Endpoint;
  readonly packet: Packet;
  readonly direction: Direction;
  readonly stage: Stage;
}

export function evaluateEndpoint(state: PolicyState, passage: Passage): Evaluation {
  const { stage } = passage;
  const tiers: TierTrace[] = [];
  const done = (outcome: Evaluation["outcome"], because: string): Evaluation => ({
    outcome,
    because,
    tiers,
    profiles: [],
  });
  for (const tier of state.tiers) {
    const applying = tier.policies.filter((placed) => applies(placed, passage, state));
    if (applying.length === 0) continue;
    const trace = evaluateTier(tier, applying, passage, state);
    tiers.push(trace);
    if (trace.outcome === "allow" || trace.outcome === "deny") return done(trace.outcome, decidedBy(trace));
    if (trace.outcome === "end: deny")
      return done("deny", `end of tier ${tier.name}: its policies apply and none decided`);
  }
  if (stage === "untracked" || stage === "preDnat") return done("none", "no rule decided");
  if (stage === "forward") return done("none", "no rule for forwarded traffic decided");
  return { ...evaluateProfiles(state, passage), tiers };
}

/** Whether any policy, staged ones included, is asked there, whatever the packet. */
export const hasPolicy = (state: PolicyState, place: Omit<Passage, "packet">): boolean =>
  state.tiers.some(({ policies }) => policies.some((placed) => applies(placed, place, state)));

function applies(
  placed: PlacedPolicy,
  { endpoint, direction, stage }: Omit<Passage, "packet">,
  state: PolicyState,
): boolean {
  const { policy } = placed;
  if (!policy.types.includes(direction) || !isOfStage(placed, direction, stage)) return false;
  return policy.selector.matcher(state.labelsOf(endpoint.value));
}

function isOfStage({ policy }: PlacedPolicy, direction: Direction, stage: Stage): boolean {
  if (policy.untracked === true) return stage === "untracked";
  if (policy.preDnat === true) return stage === "preDnat" && direction === "ingress";
  return stage === "normal" || (stage === "forward" && policy.applyOnForward === true);
}

/** @param policies those of the tier that apply */
function evaluateTier(
  tier: PlacedTier,
  policies: readonly PlacedPolicy[],
  { packet, direction, stage }: Passage,
  state: PolicyState,
): TierTrace {
  const traces: PolicyTrace[] = [];
  for (const { key, policy, staged } of policies) {
    const rules = direction === "ingress" ? policy.inboundRules : policy.outboundRules;
    const { outcome, trace } = walk(rules, packet, state);
    traces.push({ key, staged, outcome, rules: trace });
    if (staged || outcome === "no match") continue;
    return { name: tier.name, policies: traces, outcome };
  }
  const enforced = policies.some(({ staged }) => !staged);
  const drops = enforced && tier.defaultAction === "Deny" && (stage === "normal" || stage === "forward");
  return { name: tier.name, policies: traces, outcome: drops ? "end: deny" : "end: pass" };
}

/** Rules in order up to the first that decides; a matching `log` only logs. */
function walk(
  rules: readonly Rule[],
  packet: Packet,
  state: PolicyState,
): { readonly outcome: PolicyOutcome; readonly trace: readonly RuleTrace[] } {
  const trace: RuleTrace[] = [];
  for (const [index, rule] of rules.entries()) {
    const mismatch = whyNoMatch(rule, packet, state);
    const { action, annotations } = rule;
    trace.push({
      index,
      action,
      mismatch,
      annotations,
    });
    if (mismatch !== undefined || action === "log") continue;
    return { outcome: action === "next-tier" ? "pass" : action, trace };
  }
  return { outcome: "no match", trace };
}

function evaluateProfiles(state: PolicyState, { endpoint, packet, direction }: Passage): Omit<Evaluation, "tiers"> {
  const profiles: ProfileTrace[] = [];
  const done = (outcome: "allow" | "deny", because: string) => ({ outcome, because, profiles });
  for (const name of endpoint.value.profileIds) {
    const profile = state.profile(name);
    if (profile === undefined) {
      profiles.push({ name, missing: true, outcome: "deny", rules: [] });
      return done("deny", `profile ${name} does not exist: what cannot be known is denied`);
    }
    const rules = direction === "ingress" ? profile.inboundRules : profile.outboundRules;
    const { outcome, trace } = walk(rules, packet, state);
    profiles.push({ name, missing: false, outcome, rules: trace });
    if (outcome === "allow" || outcome === "deny")
      return done(outcome, `profile ${name}, ${direction} rule ${trace.length}`);
  }
  const because =
    profiles.length === 0 ? "no policy applies and there are no profiles" : "no policy applies and no profile decided";
  return done("deny", because);
}

function decidedBy(tier: TierTrace): string {
  const policy = tier.policies.findLast(({ staged }) => !staged);
  if (policy === undefined) return `tier ${tier.name}`;
  return `${policyName(policy.key)} in tier ${tier.name}, rule ${policy.rules.length}`;
}

export const policyName = ({ kind, namespace, name }: PolicyKey): string =>
  `${kind} ${namespace === "" ? "" : `${namespace}/`}${name}`;
