// One rule or set that the kernel does not take must not keep all others out. What was refused is found (the kernel
// names it, or halving the transaction does), a stand-in that lets nothing more pass is written instead, an operator
// reads which rule it was and what asks for it, and now and then the kernel is asked again.
import { NftError, type NftRuleset } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { NftPlane } from "./nft-plane.ts";
import { LateRule } from "./prepared-chain.ts";
import { mayBeLeftOut, neededFor } from "../rules/stand-in.ts";

export interface RefusalsOptions {
  readonly planes: readonly NftPlane[];
  readonly ruleset: Pick<NftRuleset, "tryOut">;
  readonly logger: Logger;
  readonly retryMs?: number;
}

const RETRY_MS = 60_000;
/** So many faulty rules are searched for one by one; were there more, all that could be are set aside. */
const MOST_SEARCHES = 16;
/** About the kernel's state and not about a rule. */
const PASSING: ReadonlySet<string> = new Set(["ENOMEM", "ENOBUFS", "EAGAIN", "EINTR", "EPERM", "ERESTART"]);

/** Chains that lead too deep or in circles. */
const OF_WHOLE: ReadonlySet<string> = new Set(["EMLINK", "ELOOP"]);

export class Refusals {
  readonly #options: RefusalsOptions;
  readonly #log: Logger;
  /** What was told, so that a rule refused again and again is told once. */
  readonly #told = new Set<string>();
  #retryAt = Number.POSITIVE_INFINITY;

  constructor(options: RefusalsOptions) {
    this.#options = options;
    this.#log = options.logger;
  }

  /** When it is time: what was refused is wanted again. */
  retryWhenDue(now: number): void {
    if (now < this.#retryAt) return;
    this.#retryAt = Number.POSITIVE_INFINITY;
    for (const plane of this.#options.planes) plane.takeBack();
  }

  /** A transaction went through. */
  committed(): void {
    if (this.#told.size === 0 || this.#options.planes.some((plane) => plane.hasAside)) return;
    this.#told.clear();
    this.#log.info("the kernel takes all rules again");
  }

  /** Sets aside what the transaction was refused for. False when that cannot be told: then nothing was done. */
  setAside(error: unknown): boolean {
    if (!(error instanceof NftError) || PASSING.has(error.errno)) return false;
    // Rules that name a refused set are refused for it: the set first. Where it is the whole that does not do, the kernel
    // names the rule that leads to it, if any: then every rule is a suspect.
    const isOfWhole = error.change === undefined || OF_WHOLE.has(error.errno);
    const isAside = this.#setAsideSets(error) || (isOfWhole && this.#search(error)) || this.#setAsideRules(error);
    if (isAside) this.#retryAt = performance.now() + (this.#options.retryMs ?? RETRY_MS);
    return isAside;
  }

  #setAsideSets(error: NftError): boolean {
    let isAside = false;
    for (const change of error.refused) {
      if (!("set" in change) || change.op === "deleteSet") continue;
      const plane = this.#planeOf(change);
      if (plane?.setAsideSet(change.set) !== true) continue;
      isAside = true;
      this.#tell("the kernel refuses an IP set; rules that name it stop what they would look up", error, {
        set: `${change.table.family} ${change.table.name} ${change.set}`,
      });
    }
    return isAside;
  }

  #setAsideRules(error: NftError): boolean {
    let isAside = false;
    for (const change of error.refused)
      if (change instanceof LateRule) isAside = this.#setAsideRule(change, error) || isAside;
    return isAside;
  }

  #setAsideRule(rule: LateRule, error: NftError): boolean {
    const plane = this.#planeOf(rule);
    if (plane === undefined || plane.setAside([rule]).length === 0) return false;
    const tree = plane.ruleAt(rule) ?? rule.tree;
    const setting = neededFor(tree);
    this.#tell("the kernel refuses a rule; all others are written", error, {
      rule: `${rule.table.family} ${rule.table.name} ${rule.chain}, number ${rule.index + 1}`,
      says: JSON.stringify(tree),
      ...(setting === undefined ? {} : { setting }),
      instead: mayBeLeftOut(tree, rule.context.layer) ? "it is left out" : "packets that come to its place are dropped",
    });
    return true;
  }

  #tell(sentence: string, error: NftError, fields: Readonly<Record<string, string>>): void {
    const text = JSON.stringify(fields);
    this.#log[this.#told.has(text) ? "debug" : "error"](sentence, { ...fields, error: describeError(error) });
    this.#told.add(text);
  }

  /**
   * The transaction was refused as a whole. With all its rules replaced it must pass, else they are not the reason. Of
   * the shortest beginning whose replacement lets it pass, the last rule is a faulty one; then once more without it.
   */
  #search(error: NftError): boolean {
    const { planes } = this.#options;
    const written = this.#changes().filter((change) => change instanceof LateRule);
    // Where several rules could give way, it shall be one that few packets see: those of the kernel's chains come last.
    const isHook = (rule: LateRule) => this.#planeOf(rule)?.isHook(rule.chain) === true;
    let suspects = [...written.filter((rule) => !isHook(rule)), ...written.filter(isHook)];
    const before = planes.map((plane) => plane.aside());
    const found: LateRule[] = [];
    const passes = (count: number): boolean => {
      for (const [i, plane] of planes.entries()) {
        plane.takeBackRules();
        plane.setAside(before[i] ?? []);
      }
      for (const rule of [...found, ...suspects.slice(0, count)]) this.#planeOf(rule)?.setAside([rule]);
      return this.#passes();
    };
    const isRules = suspects.length > 0 && passes(suspects.length);
    while (isRules && found.length < MOST_SEARCHES && !passes(0)) {
      let [refused, taken] = [0, suspects.length];
      while (taken - refused > 1) {
        const middle = (refused + taken) >> 1;
        if (passes(middle)) taken = middle;
        else refused = middle;
      }
      const faulty = suspects[taken - 1];
      if (faulty === undefined) break;
      found.push(faulty);
      suspects = suspects.slice(0, taken - 1);
    }
    if (isRules && !passes(0)) found.push(...suspects);
    for (const [i, plane] of planes.entries()) {
      plane.takeBackRules();
      plane.setAside(before[i] ?? []);
    }
    for (const rule of found) this.#setAsideRule(rule, error);
    return found.length > 0;
  }

  #passes(): boolean {
    try {
      this.#options.ruleset.tryOut(this.#changes());
      return true;
    } catch (error) {
      if (error instanceof NftError) return false;
      throw error;
    }
  }

  #changes() {
    return this.#options.planes.flatMap((plane) => plane.changes());
  }

  #planeOf({ table }: { readonly table: { readonly family: string; readonly name: string } }): NftPlane | undefined {
    return this.#options.planes.find((plane) => plane.table.family === table.family && plane.table.name === table.name);
  }
}
