// Kernels that refuse what they are told to.
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import { LateRule } from "../../../src/dataplane/nft/prepared-chain.ts";
import type { Match } from "../../../src/dataplane/rules/rule.ts";
import { IptablesError, type NftChange, NftError, type NftRuleset } from "../../../src/kernel/index.ts";

/** A ruleset whose kernel refuses the changes it is told to. */
export function refusing(ruleset: NftRuleset, isRefused: (change: NftChange) => boolean, asWhole = false): NftRuleset {
  const look = (changes: readonly NftChange[]) => {
    const refused = changes.filter(isRefused);
    if (refused[0] === undefined) return;
    throw asWhole
      ? new NftError(undefined, `commit ${changes.length} nftables changes`, "EMLINK", {})
      : new NftError(refused[0], "add rule", "ENOENT", {}, refused);
  };
  return new Proxy(ruleset, {
    get: (of, name) => {
      const value: unknown = Reflect.get(of, name);
      if (name === "commit" || name === "tryOut")
        return (changes: readonly NftChange[], ...rest: unknown[]) => {
          look(changes);
          return Reflect.apply(value as (...args: unknown[]) => void, of, [changes, ...rest]);
        };
      return typeof value === "function" ? value.bind(of) : value;
    },
  });
}

export const withRuleset = (kernel: LinuxKernel, wrap: (ruleset: NftRuleset) => NftRuleset): LinuxKernel =>
  kernel.rules.backend === "nftables"
    ? { ...kernel, rules: { ...kernel.rules, ruleset: wrap(kernel.rules.ruleset) } }
    : kernel;

export const hasExpression = (change: NftChange, kind: string) =>
  change.op === "appendRule" && change.rule.expressions.some((e) => e.kind === kind);

/** A kernel that has no such match, whichever tool asks for it. */
export const withoutMatch = (kernel: LinuxKernel, kind: Match["kind"], words: string | RegExp): LinuxKernel =>
  kernel.rules.backend === "nftables"
    ? withRuleset(kernel, (ruleset) =>
        refusing(
          ruleset,
          (change) => change instanceof LateRule && change.tree.match?.some((m) => m.kind === kind) === true,
        ),
      )
    : refusingText(kernel, words);

/** iptables that refuses every text with these words in it, as where the kernel lacks something. */
export function refusingText(kernel: LinuxKernel, words: string | RegExp): LinuxKernel {
  if (kernel.rules.backend !== "iptables") return kernel;
  const { iptables } = kernel.rules;
  const refuse = (text: string): Promise<void> | undefined =>
    text.search(words instanceof RegExp ? words : RegExp.escape(words)) >= 0
      ? Promise.reject(new IptablesError("iptables-restore", 2, "RULE_APPEND failed (No such file or directory)"))
      : undefined;
  const wrapped: typeof iptables = (version) => {
    const store = iptables(version);
    return { ...store, restore: (text, signal) => refuse(text) ?? store.restore(text, signal) };
  };
  return { ...kernel, rules: { ...kernel.rules, iptables: wrapped } };
}
