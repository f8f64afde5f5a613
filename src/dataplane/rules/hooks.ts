// What the static chains of all tables are made of: the jumps from the kernel's chains into ours, and rules that stand in
// several of them.
import type { RulesConfig } from "./config.ts";
import { accept, type Action, jump, markSet, returnAction, type Rule } from "./rule.ts";

export interface Hooks {
  /** At the top or bottom of the kernel's chain, by configuration. */
  readonly insert: ReadonlyMap<string, readonly Rule[]>;
  /** Always behind everybody's. */
  readonly append: ReadonlyMap<string, readonly Rule[]>;
}

/** The rule is no reason to keep any packet: what it leads to, or marks, only lets pass, translates or classifies. */
export const dispensable = (rule: Rule): Rule => ({ ...rule, ifRefused: "leaveOut" });
export const hook = (name: string): readonly [string, readonly Rule[]] => [name, [{ action: jump(`cali-${name}`) }]];
export const allow = (what: "accept" | "return"): Action => (what === "accept" ? accept : returnAction);
export const accepted = (config: RulesConfig, action: Action): Rule => ({
  match: [markSet(config.marks.accept)],
  action,
  comments: ["Host endpoint policy accepted packet."],
});
