import { expect, test } from "bun:test";
import { NftError, type NftChange, type NftRuleset } from "../../kernel/index.ts";
import { reasonForIptables } from "./probe.ts";

/** A kernel that rejects certain changes, and supports only dry runs. */
function kernelWithout(rejects: (change: NftChange) => boolean): { ruleset: NftRuleset; trials: NftChange[][] } {
  const trials: NftChange[][] = [];
  const ruleset = {
    dryRun: (changes: readonly NftChange[]) => {
      const rejected = changes.find(rejects);
      if (rejected !== undefined) throw new NftError(rejected, `${rejected.op} reversed`, "ENOENT", {});
      trials.push([...changes]);
    },
  } as unknown as NftRuleset;
  return { ruleset, trials };
}
const whole = kernelWithout(() => false);
const withoutFib = kernelWithout(
  (change) => change.op === "appendRule" && change.rule.expressions.some(({ kind }) => kind === "fib"),
);

const cases = [
  { mode: "Enabled", ipvs: false, kernel: withoutFib, why: undefined },
  { mode: "Enabled", ipvs: true, kernel: whole, why: undefined },
  { mode: "Disabled", ipvs: false, kernel: whole, why: "NFTablesMode is Disabled" },
  { mode: "Auto", ipvs: false, kernel: whole, why: undefined },
  { mode: "", ipvs: false, kernel: whole, why: undefined },
  { mode: "Auto", ipvs: true, kernel: whole, why: "kube-proxy runs in IPVS mode, which needs iptables" },
  {
    mode: "Auto",
    ipvs: false,
    kernel: withoutFib,
    why: "the kernel rejects a required feature: appendRule reversed: ENOENT",
  },
] as const;
for (const { mode, ipvs, kernel, why } of cases)
  test(`FD-103 NFTablesMode ${mode || "unset"}${ipvs ? " with IPVS" : ""}${kernel === whole ? "" : " on a kernel without fib"}: ${why ?? "nftables"}`, () =>
    expect(reasonForIptables(mode, { ipvs }, kernel.ruleset)).toBe(why));

test("FD-103 all features are tested in one dry run", () => {
  const { ruleset, trials } = kernelWithout(() => false);
  reasonForIptables("Auto", { ipvs: false }, ruleset);
  expect(trials).toHaveLength(1);
  expect(trials[0]?.[0]?.op).toBe("addTable");
});
