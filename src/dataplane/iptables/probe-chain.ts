// A chain in which rules are tried without effect on packets, because iptables has no dry run: no packet reaches it.
import { IptablesError, type IptablesTable } from "../../kernel/index.ts";
import type { RuleText } from "./render.ts";
import type { RuleProbe } from "./rejected-rules.ts";

const PROBE = "cali-probe";
const HARMLESS_RULE = "--jump RETURN";

export class ProbeChain implements RuleProbe {
  readonly #table: IptablesTable;
  readonly #restore: (text: string) => Promise<void>;
  /** The kernel's chains that currently have a jump to the probe chain. */
  readonly #hooked = new Set<string>();

  constructor(table: IptablesTable, restore: (text: string) => Promise<void>) {
    this.#table = table;
    this.#restore = restore;
  }

  normalize(texts: readonly RuleText[]): string {
    return texts
      .map((text) =>
        text
          .replace(/-m comment --comment "[^"]*" ?/g, "")
          .replace(/--(?:jump|goto) cali-\S+/, HARMLESS_RULE) // the target may not exist yet
          .trim(),
      )
      .filter((text) => text !== "")
      .join("\n");
  }

  async accepts(rules: readonly string[], hooks: readonly string[]): Promise<boolean> {
    const lines = rules.flatMap((rule) => rule.split("\n")).filter((line) => line !== "");
    const added = hooks.filter((hook) => !this.#hooked.has(hook));
    const removed = [...this.#hooked].filter((hook) => !hooks.includes(hook));
    const isAccepted = await this.#attempt(
      `:${PROBE} - -`,
      ...lines.map((line) => `-A ${PROBE} ${line}`),
      ...added.map((hook) => `-A ${hook} ${jumpFrom(hook)}`),
      ...removed.map((hook) => `-D ${hook} ${jumpFrom(hook)}`),
    );
    if (isAccepted) {
      this.#hooked.clear();
      for (const hook of hooks) this.#hooked.add(hook);
    }
    return isAccepted;
  }

  acceptsHarmlessRule(hooks: readonly string[]): Promise<boolean> {
    return this.accepts([HARMLESS_RULE], hooks);
  }

  async remove(): Promise<void> {
    const jumps = [...this.#hooked].map((hook) => `-D ${hook} ${jumpFrom(hook)}`);
    await this.#attempt(`:${PROBE} - -`, ...jumps).catch(() => false);
    await this.#attempt(`--delete-chain ${PROBE}`).catch(() => false);
  }

  /** @throws IptablesError if the error is transient */
  async #attempt(...lines: readonly string[]): Promise<boolean> {
    try {
      await this.#restore(`*${this.#table}\n${lines.join("\n")}\nCOMMIT\n`);
      return true;
    } catch (error) {
      if (error instanceof IptablesError && !error.isTransient) return false;
      throw error;
    }
  }
}

/** A jump that no packet takes, because no interface can be named `..`. */
const jumpFrom = (hook: string): string =>
  `${hook === "OUTPUT" || hook === "POSTROUTING" ? "-o" : "-i"} .. --jump ${PROBE}`;
