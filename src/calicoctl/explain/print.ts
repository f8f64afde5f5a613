// Prints a verdict as text: the result first, then each checkpoint with the policies and rules that it evaluated.
import {
  type Checkpoint,
  describePacket,
  type Packet,
  policyName,
  type RuleTrace,
  type Stage,
  type TierTrace,
  type Verdict,
} from "../../policy/index.ts";

const STAGES: Readonly<Record<Stage, string>> = {
  untracked: ", before connection tracking",
  preDnat: ", before DNAT",
  forward: ", forwarded",
  normal: "",
};
const OUTCOMES = { allow: "allowed", deny: "denied", none: "no opinion" } as const;

export function printVerdict(packet: Packet, verdict: Verdict): string {
  const lines = [`${describePacket(packet)}: ${OUTCOMES[verdict.action]}`, `  because ${verdict.because}`];
  for (const note of verdict.notes) lines.push(`  note: ${note}`);
  for (const [i, checkpoint] of verdict.checkpoints.entries()) lines.push("", ...checkpointLines(i + 1, checkpoint));
  return `${lines.join("\n")}\n`;
}

function checkpointLines(number: number, checkpoint: Checkpoint): readonly string[] {
  const { endpoint, direction, stage, host, outcome, because } = checkpoint;
  const lines = [`${number}. ${endpoint}, ${direction}${STAGES[stage]}, on ${host}: ${OUTCOMES[outcome]}`];
  for (const tier of checkpoint.tiers) lines.push(...tierLines(tier));
  for (const profile of checkpoint.profiles) {
    lines.push(`   profile ${profile.name}${profile.missing ? ": does not exist, denied" : ""}`);
    lines.push(...profile.rules.map((rule) => `     ${ruleLine(rule)}`));
    if (!profile.missing && profile.outcome === "no match") lines.push("     no rule matches");
  }
  lines.push(`   → ${because}`);
  return lines;
}

function tierLines(tier: TierTrace): readonly string[] {
  const lines = [`   tier ${tier.name}`];
  for (const policy of tier.policies) {
    const staged = policy.staged ? ` (staged: would ${STAGED[policy.outcome]}, not enforced)` : "";
    lines.push(`     ${policyName(policy.key)}${staged}`);
    lines.push(...policy.rules.map((rule) => `       ${ruleLine(rule)}`));
    if (policy.rules.length === 0) lines.push("       no rules for this direction");
  }
  if (tier.outcome === "end: deny") lines.push("     end of tier: denied");
  if (tier.outcome === "end: pass") lines.push("     end of tier: on to the next");
  if (tier.outcome === "pass") lines.push("     passed on to the next tier");
  return lines;
}

const STAGED = { allow: "allow", deny: "deny", pass: "pass", "no match": "decide nothing" } as const;

function ruleLine(rule: RuleTrace): string {
  const action = rule.action === "next-tier" ? "pass" : rule.action;
  return `rule ${rule.index + 1} ${action}: ${rule.mismatch ?? "matches"}`;
}
