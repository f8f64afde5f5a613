// One rule or set that the kernel does not take must not keep all others out. What was refused is found (the kernel
// names it, or halving the transaction does), a stand-in that lets nothing more pass is written instead, an operator
// reads which rule it was and what asks for it, and now and then the kernel is asked again.
import { NftError, type NftChange, type NftRuleset, type TableRef } from "../../kernel/index.ts";
import type { Logger } from "../../lib/log.ts";
import type { AsideAt, RuleAt } from "../rules/aside.ts";
import { isPassing, type Refused, RefusedLog, type RefusedRule, refusedRule, refusedSet } from "../rules/refused.ts";
import type { NftPlane } from "./nft-plane.ts";
import { LateRule } from "./prepared-chain.ts";

export interface RefusalsOptions {
  readonly planes: readonly NftPlane[];
  readonly ruleset: Pick<NftRuleset, "tryOut">;
  readonly logger: Logger;
  readonly retryMs?: number;
}

const RETRY_MS = 60_000;
/** So many faulty rules are searched for one by one; were there more, all that could be are set aside. */
const MOST_SEARCHES = 16;
const isRefusal = (error: unknown): error is NftError => error instanceof NftError && !isPassing(error.errno);

/** Chains that lead too deep or in circles. */
const OF_WHOLE: ReadonlySet<string> = new Set(["EMLINK", "ELOOP"]);

export class Refusals {
  readonly #options: RefusalsOptions;
  readonly #log: RefusedLog;
  /** Why, by the place of what was set aside since the last transaction that went through. */
  readonly #errors = new Map<string, NftError>();
  #retryAt = Number.POSITIVE_INFINITY;
  #listed: { readonly version: number; readonly refused: readonly Refused[] } | undefined;

  constructor(options: RefusalsOptions) {
    this.#options = options;
    this.#log = new RefusedLog(options.logger);
  }

  /** What the kernel does not take now. */
  list(): readonly Refused[] {
    const version = this.#options.planes.reduce((sum, plane) => sum + plane.wanted.asideVersion, 0);
    if (this.#listed?.version !== version) this.#listed = { version, refused: this.#log.explained(this.#current()) };
    return this.#listed.refused;
  }

  #current(): RefusedRule[] {
    return this.#options.planes.flatMap((plane) => [
      ...plane.wanted.aside().flatMap((at) => refusedAt(plane, at)),
      ...plane.setsAside().map((set) => refusedSet(nameIn(plane, set))),
    ]);
  }

  /** When it is time: what was refused is wanted again. */
  retryWhenDue(now: number): void {
    if (now < this.#retryAt) return;
    this.#retryAt = Number.POSITIVE_INFINITY;
    for (const plane of this.#options.planes) plane.takeBack();
  }

  /** A transaction went through: now it is known what stands in. Gives whether that is anything new. */
  committed(): boolean {
    const hasNew = this.#errors.size > 0;
    for (const refused of this.#errors.size === 0 ? [] : this.#current()) {
      const error = this.#errors.get(refused.where);
      if (error !== undefined) this.#log.tell(refused, error);
    }
    if (this.#errors.size > 0) this.#listed = undefined;
    this.#errors.clear();
    if (!this.#options.planes.some((plane) => plane.wanted.hasAside)) this.#log.settled();
    return hasNew;
  }

  /** Sets aside what the transaction was refused for. False when that cannot be told: then nothing was done. */
  setAside(error: unknown): boolean {
    if (!isRefusal(error)) return false;
    const named = placesOf(error.refused);
    // What only shows from the kernel's own chains (a chain that leads too deep, a rule that does not fit there) is blamed
    // on the rule that leads to it: then every rule is a suspect.
    const innocent = OF_WHOLE.has(error.errno) ? named : named.filter(leadsOn);
    const guilty = named.filter((rule) => !innocent.includes(rule));
    // Rules that name a refused set are refused for it: the set first.
    const isAside =
      this.#setAsideSets(error) ||
      this.#setAsideRules(guilty, error) ||
      this.#search(error) ||
      this.#setAsideRules(innocent, error);
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
      this.#errors.set(nameIn(plane, change.set), error);
    }
    return isAside;
  }

  #setAsideRules(rules: readonly LateRule[], error: NftError): boolean {
    const aside = rules.filter((rule) => this.#planeOf(rule)?.wanted.setAside(rule) === true);
    for (const rule of aside) this.#errors.set(whereOf(rule.table, rule), error);
    return aside.length > 0;
  }

  /**
   * The transaction was refused as a whole. With all its rules replaced it must pass, else they are not the reason. Of
   * the shortest beginning whose replacement lets it pass, the last rule is a faulty one; then once more without it.
   */
  #search(error: NftError): boolean {
    const { planes } = this.#options;
    const before = planes.map((plane) => plane.wanted.aside());
    const restore = () => {
      for (const [i, plane] of planes.entries()) {
        plane.wanted.takeBackRules();
        plane.wanted.putAside(before[i] ?? []);
      }
    };
    let found: AsideRule[];
    try {
      found = this.#faulty(restore);
    } catch (failure) {
      restore();
      if (!(failure instanceof NftError)) throw failure;
      return false; // the kernel has other sorrows now
    }
    restore();
    this.#put(found);
    for (const { rule } of found) this.#errors.set(whereOf(rule.table, rule), error);
    return found.length > 0;
  }

  /** The rules to set aside, each with the nearest stand-in that will do. */
  #faulty(restore: () => void): AsideRule[] {
    // Where several rules could give way, it shall be the one at fault, or else one that few packets see: those that lead
    // on come last.
    const written = placesOf(this.#changes()).map((rule): AsideRule => {
      const last = (this.#planeOf(rule)?.wanted.standInsAt(rule).length ?? 0) - 1;
      return { rule, level: last };
    });
    const able = written.filter(({ level }) => level >= 0);
    let suspects = [...able.filter(({ rule }) => !leadsOn(rule)), ...able.filter(({ rule }) => leadsOn(rule))];
    const found: AsideRule[] = [];
    const passes = (rules: readonly AsideRule[]): boolean => {
      restore();
      this.#put(rules);
      return this.#passes();
    };
    if (suspects.length === 0 || !passes(suspects)) return [];
    while (found.length < MOST_SEARCHES && !passes(found)) {
      let [refused, taken] = [0, suspects.length];
      while (taken - refused > 1) {
        const middle = (refused + taken) >> 1;
        if (passes([...found, ...suspects.slice(0, middle)])) taken = middle;
        else refused = middle;
      }
      const faulty = suspects[taken - 1];
      if (faulty === undefined) break;
      found.push(faulty);
      suspects = suspects.slice(0, taken - 1);
    }
    if (!passes(found)) return [...found, ...suspects];
    for (const [i, { rule, level: widest }] of found.entries())
      for (let level = 0; level < widest; level++) {
        const nearer = found.with(i, { rule, level });
        if (!passes(nearer)) continue;
        found[i] = { rule, level };
        break;
      }
    return found;
  }

  #put(rules: readonly AsideRule[]): void {
    for (const { rule, level } of rules)
      this.#planeOf(rule)?.wanted.putAside([{ chain: rule.chain, index: rule.index, level }]);
  }

  #passes(): boolean {
    try {
      this.#options.ruleset.tryOut(this.#changes());
      return true;
    } catch (error) {
      if (isRefusal(error)) return false;
      throw error;
    }
  }

  #changes(): NftChange[] {
    return this.#options.planes.flatMap((plane) => plane.changes());
  }

  #planeOf({ table }: { readonly table: { readonly family: string; readonly name: string } }): NftPlane | undefined {
    return this.#options.planes.find((plane) => plane.table.family === table.family && plane.table.name === table.name);
  }
}

interface AsideRule {
  readonly rule: LateRule;
  readonly level: AsideAt["level"];
}

/** Each rule of the tree once, however many kernel rules it became. */
function placesOf(changes: readonly NftChange[]): LateRule[] {
  const places = new Map<string, LateRule>();
  for (const change of changes)
    if (change instanceof LateRule) {
      const { table, chain, index } = change;
      places.set(`${table.family} ${table.name} ${chain} ${index}`, change);
    }
  return [...places.values()];
}

const leadsOn = ({ tree: { action } }: LateRule): boolean => action?.kind === "jump" || action?.kind === "goto";

const whereOf = ({ family, name }: TableRef, { chain, index }: RuleAt): string =>
  `${family} ${name} ${chain}, number ${index + 1}`;
const nameIn = ({ table }: NftPlane, name: string): string => `${table.family} ${table.name} ${name}`;

function refusedAt(plane: NftPlane, at: RuleAt): RefusedRule[] {
  const found = plane.wanted.ruleAt(at);
  if (found?.standIn === undefined) return [];
  return [refusedRule(whereOf(plane.table, at), found.rule, found.standIn)];
}
