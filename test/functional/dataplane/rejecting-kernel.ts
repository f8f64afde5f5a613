// Wrappers around the kernel that reject certain changes.
import type { LinuxKernel } from "../../../src/dataplane/index.ts";
import { LazyRule } from "../../../src/dataplane/nft/prepared-chain.ts";
import type { Match } from "../../../src/dataplane/rules/rule.ts";
import { IptablesError, type NftChange, NftError, type NftRuleset } from "../../../src/kernel/index.ts";

/**
 * A ruleset that rejects transactions with certain changes.
 * @param asWhole the error does not identify the rejected changes
 */
export function rejecting(
  ruleset: NftRuleset,
  isRejected: (change: NftChange) => boolean,
  asWhole = false,
): NftRuleset {
  const check = (changes: readonly NftChange[]) => {
    const rejected = changes.filter(isRejected);
    if (rejected[0] === undefined) return;
    throw asWhole
      ? new NftError(undefined, `commit ${changes.length} nftables changes`, "EMLINK", {})
      : new NftError(rejected[0], "add rule", "ENOENT", {}, rejected);
  };
  return new Proxy(ruleset, {
    get: (of, name) => {
      const value: unknown = Reflect.get(of, name);
      if (name === "commit" || name === "dryRun")
        return (changes: readonly NftChange[], ...rest: unknown[]) => {
          check(changes);
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

/** A kernel without this kind of match, for both renderers. */
export const withoutMatch = (kernel: LinuxKernel, kind: Match["kind"], words: string | RegExp): LinuxKernel =>
  kernel.rules.backend === "nftables"
    ? withRuleset(kernel, (ruleset) =>
        rejecting(
          ruleset,
          (change) => change instanceof LazyRule && change.source.match?.some((m) => m.kind === kind) === true,
        ),
      )
    : rejectingText(kernel, words);

/** Makes iptables-restore reject every input that matches `words`. */
export function rejectingText(kernel: LinuxKernel, words: string | RegExp): LinuxKernel {
  if (kernel.rules.backend !== "iptables") return kernel;
  const { iptables } = kernel.rules;
  const reject = (text: string): Promise<void> | undefined =>
    text.search(words instanceof RegExp ? words : RegExp.escape(words)) >= 0
      ? Promise.reject(new IptablesError("iptables-restore", 2, "RULE_APPEND failed (No such file or directory)"))
      : undefined;
  const wrapped: typeof iptables = (version) => {
    const store = iptables(version);
    return { ...store, restore: (text, signal) => reject(text) ?? store.restore(text, signal) };
  };
  return { ...kernel, rules: { ...kernel.rules, iptables: wrapped } };
}
