// Builds rules that the static chains of several tables contain, and the jumps from the kernel's chains to them.
import type { RulesConfig } from "./config.ts";
import { accept, type Action, jump, markSet, returnAction, type Rule } from "./rule.ts";

/** The rules of calico-ts in the kernel's chains (FORWARD, …), by chain. */
export interface HookRules {
  /** Before or after the rules of other programs, depending on ChainInsertMode. */
  readonly insert: ReadonlyMap<string, readonly Rule[]>;
  /** Always after the rules of other programs. */
  readonly append: ReadonlyMap<string, readonly Rule[]>;
}

/** A rule that may be omitted if the kernel rejects it, because it only accepts, translates or classifies packets. */
export const omittable = (rule: Rule): Rule => ({ ...rule, ifRejected: "omit" });

/** The entry of `HookRules` that leads from a kernel chain to the chain `cali-…` of the same name. */
export const jumpFromHook = (name: string): readonly [string, readonly Rule[]] => [
  name,
  [{ action: jump(`cali-${name}`) }],
];

export const allowAction = (setting: "accept" | "return"): Action => (setting === "accept" ? accept : returnAction);

export const acceptedByHostPolicy = (config: RulesConfig, action: Action): Rule => ({
  match: [markSet(config.marks.accept)],
  action,
  comments: ["Host endpoint policy accepted packet."],
});
