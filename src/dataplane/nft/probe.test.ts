import { expect, test } from "bun:test";
import { NftError, type NftChange, type NftRuleset } from "../../kernel/index.ts";
import { whyIptables } from "./probe.ts";

/** A kernel that takes every change but those named, as long as it need not keep them. */
function kernelWithout(refuses: (change: NftChange) => boolean): { ruleset: NftRuleset; trials: NftChange[][] } {
  const trials: NftChange[][] = [];
  const ruleset = {
    tryOut: (changes: readonly NftChange[]) => {
      const refused = changes.find(refuses);
      if (refused !== undefined) throw new NftError(refused, `${refused.op} reversed`, "ENOENT", {});
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
  { mode: "Auto", ipvs: false, kernel: withoutFib, why: "the kernel refuses to appendRule reversed: ENOENT" },
] as const;
for (const { mode, ipvs, kernel, why } of cases)
  test(`FD-103 NFTablesMode ${mode || "unset"}${ipvs ? " with IPVS" : ""}${kernel === whole ? "" : " on a kernel without fib"}: ${why ?? "nftables"}`, () =>
    expect(whyIptables(mode, { ipvs }, kernel.ruleset)).toBe(why));

test("FD-103 the question writes nothing: all of it is tried out in one go", () => {
  const { ruleset, trials } = kernelWithout(() => false);
  whyIptables("Auto", { ipvs: false }, ruleset);
  expect(trials).toHaveLength(1);
  expect(trials[0]?.[0]?.op).toBe("addTable");
});
