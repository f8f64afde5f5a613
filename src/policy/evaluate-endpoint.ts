// Evaluates one packet at one endpoint in one direction: tiers in order, policies in order, rules in order; then
// profiles. Every evaluated rule is recorded, so that `calicoctl explain` can print how the verdict came about.
import type { PolicyKey, Rule } from "../model/index.ts";
import { type Mismatch, findMismatch } from "./match.ts";
import type { Packet } from "./packet.ts";
import type { Endpoint, OrderedPolicy, OrderedTier, PolicyState } from "./state.ts";

export type Direction = "ingress" | "egress";
/** Selects the policies of an endpoint that apply to a packet. Workloads have only `normal`. */
export type Stage = "untracked" | "preDnat" | "forward" | "normal";

export interface RuleTrace {
  /** Position in the policy's list of rules, from 0. */
  readonly index: number;
  readonly action: Rule["action"];
  /** Absent if the rule matched. */
  readonly mismatch?: Mismatch;
  readonly annotations?: Readonly<Record<string, string>>;
}
export type PolicyOutcome = "allow" | "deny" | "pass" | "no match";
export interface PolicyTrace {
  readonly key: PolicyKey;
  /** A staged policy is reported, but has no effect. */
  readonly staged: boolean;
  readonly outcome: PolicyOutcome;
  /** Up to and including the rule that decided. */
  readonly rules: readonly RuleTrace[];
}
export interface TierTrace {
  readonly name: string;
  readonly policies: readonly PolicyTrace[];
  /** `end: …` if no rule decided, so the tier's default action applied. */
  readonly outcome: "allow" | "deny" | "pass" | "end: deny" | "end: pass";
}
export interface ProfileTrace {
  readonly name: string;
  readonly missing: boolean;
  readonly outcome: PolicyOutcome;
  readonly rules: readonly RuleTrace[];
}
export interface Evaluation {
  /** `none`: this stage neither allows nor denies the packet; evaluation continues with the next stage. */
  readonly outcome: "allow" | "deny" | "none";
  /** The rule, profile or default that decided, as one clause. */
  readonly because: string;
  readonly tiers: readonly TierTrace[];
  readonly profiles: readonly ProfileTrace[];
}

/** A packet at the point where it enters or leaves an endpoint. */
export interface PacketAtEndpoint {
  readonly endpoint: Endpoint;
  readonly packet: Packet;
  readonly direction: Direction;
  readonly stage: Stage;
}

export function evaluateEndpoint(state: PolicyState, point: PacketAtEndpoint): Evaluation {
  const { stage } = point;
  const tiers: TierTrace[] = [];
  const done = (outcome: Evaluation["outcome"], because: string): Evaluation => ({
    outcome,
    because,
    tiers,
    profiles: [],
  });
  for (const tier of state.tiers) {
    const applicable = tier.policies.filter((ordered) => applies(ordered, point, state));
    if (applicable.length === 0) continue;
    const trace = evaluateTier(tier, applicable, point, state);
    tiers.push(trace);
    if (trace.outcome === "allow" || trace.outcome === "deny") return done(trace.outcome, describeDecision(trace));
    if (trace.outcome === "end: deny")
      return done(
        "deny",
        `denied by default: policies in tier ${tier.name} select this endpoint, and no rule allows the packet`,
      );
  }
  if (stage === "untracked" || stage === "preDnat") return done("none", "no rule allows or denies the packet");
  if (stage === "forward") return done("none", "no rule for forwarded traffic allows or denies the packet");
  return { ...evaluateProfiles(state, point), tiers };
}

/** Whether any policy, staged or not, selects the endpoint for this direction and stage. */
export const hasPolicy = (state: PolicyState, point: Omit<PacketAtEndpoint, "packet">): boolean =>
  state.tiers.some(({ policies }) => policies.some((ordered) => applies(ordered, point, state)));

function applies(
  ordered: OrderedPolicy,
  { endpoint, direction, stage }: Omit<PacketAtEndpoint, "packet">,
  state: PolicyState,
): boolean {
  const { policy } = ordered;
  if (!policy.types.includes(direction) || !belongsToStage(ordered, direction, stage)) return false;
  return policy.selector.matcher(state.labelsOf(endpoint.value));
}

function belongsToStage({ policy }: OrderedPolicy, direction: Direction, stage: Stage): boolean {
  if (policy.untracked === true) return stage === "untracked";
  if (policy.preDnat === true) return stage === "preDnat" && direction === "ingress";
  return stage === "normal" || (stage === "forward" && policy.applyOnForward === true);
}

/** @param policies the tier's policies that apply to the endpoint */
function evaluateTier(
  tier: OrderedTier,
  policies: readonly OrderedPolicy[],
  { packet, direction, stage }: PacketAtEndpoint,
  state: PolicyState,
): TierTrace {
  const traces: PolicyTrace[] = [];
  for (const { key, policy, staged } of policies) {
    const rules = direction === "ingress" ? policy.inboundRules : policy.outboundRules;
    const { outcome, trace } = evaluateRules(rules, packet, state);
    traces.push({ key, staged, outcome, rules: trace });
    if (staged || outcome === "no match") continue;
    return { name: tier.name, policies: traces, outcome };
  }
  const enforced = policies.some(({ staged }) => !staged);
  const drops = enforced && tier.defaultAction === "Deny" && (stage === "normal" || stage === "forward");
  return { name: tier.name, policies: traces, outcome: drops ? "end: deny" : "end: pass" };
}

/** Evaluates rules in order, up to the first one that matches and is not a `log` rule. */
function evaluateRules(
  rules: readonly Rule[],
  packet: Packet,
  state: PolicyState,
): { readonly outcome: PolicyOutcome; readonly trace: readonly RuleTrace[] } {
  const trace: RuleTrace[] = [];
  for (const [index, rule] of rules.entries()) {
    const mismatch = findMismatch(rule, packet, state);
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

function evaluateProfiles(
  state: PolicyState,
  { endpoint, packet, direction }: PacketAtEndpoint,
): Omit<Evaluation, "tiers"> {
  const profiles: ProfileTrace[] = [];
  const done = (outcome: "allow" | "deny", because: string) => ({ outcome, because, profiles });
  for (const name of endpoint.value.profileIds) {
    const profile = state.profile(name);
    if (profile === undefined) {
      profiles.push({ name, missing: true, outcome: "deny", rules: [] });
      return done("deny", `profile ${name} does not exist, so the packet is denied`);
    }
    const rules = direction === "ingress" ? profile.inboundRules : profile.outboundRules;
    const { outcome, trace } = evaluateRules(rules, packet, state);
    profiles.push({ name, missing: false, outcome, rules: trace });
    if (outcome === "allow" || outcome === "deny")
      return done(outcome, `profile ${name}, ${direction} rule ${trace.length}`);
  }
  const because =
    profiles.length === 0
      ? "no policy applies and the endpoint has no profiles"
      : "no policy applies and no profile allows the packet";
  return done("deny", because);
}

function describeDecision(tier: TierTrace): string {
  const policy = tier.policies.findLast(({ staged }) => !staged);
  if (policy === undefined) return `tier ${tier.name}`;
  return `${policyName(policy.key)} in tier ${tier.name}, rule ${policy.rules.length}`;
}

export const policyName = ({ kind, namespace, name }: PolicyKey): string =>
  `${kind} ${namespace === "" ? "" : `${namespace}/`}${name}`;
