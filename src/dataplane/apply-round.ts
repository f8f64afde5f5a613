// One round of writing, in the order that keeps every intermediate state closed and refuses nothing that would be taken
// a moment later:
//
//   managers ─┬─ sets ─ tables ─ deletions of sets
//             └─ links ─ routes
//
// What fails is told and counted; the other parts still have their turn.
import { describeError, type Logger } from "../lib/log.ts";
import {
  type ApplyOutcome,
  FatalDataplaneError,
  type Manager,
  type Reconciler,
  type SetReconciler,
} from "./manager.ts";

export interface RoundParts {
  /** In the order they see messages and apply. */
  readonly managers: readonly Manager[];
  readonly sets: readonly SetReconciler[];
  readonly tables: readonly Reconciler[];
  /** Forwarding entries and link addresses: before routes. */
  readonly links: readonly Reconciler[];
  readonly routes: readonly Reconciler[];
}

export interface RoundOutcome {
  readonly failures: number;
  /** When to look again although nothing came in, by `performance.now()`; infinity: nobody asks for it. */
  readonly againAt: number;
}

export class ApplyRound {
  readonly #parts: RoundParts;
  readonly #log: Logger;
  readonly #onProgress: () => void;
  #failures = 0;
  #againAt = Number.POSITIVE_INFINITY;

  /** @param onProgress a round may take long: what counts is that it gets on */
  constructor(parts: RoundParts, deps: { readonly logger: Logger; readonly onProgress: () => void }) {
    this.#parts = parts;
    this.#log = deps.logger;
    this.#onProgress = deps.onProgress;
  }

  /** @throws FatalDataplaneError when rules stay refused, and whatever ends a round whose signal aborted */
  async run(signal: AbortSignal): Promise<RoundOutcome> {
    const { managers, links, routes } = this.#parts;
    for (const manager of managers) manager.resolve?.();
    for (const manager of managers)
      if (manager.apply) await this.#attempt(manager.name, signal, () => manager.apply?.(signal));
    await Promise.all([this.#writeRules(signal), this.#all(links, signal).then(() => this.#all(routes, signal))]);
    return { failures: this.#failures, againAt: this.#againAt };
  }

  async #writeRules(signal: AbortSignal): Promise<void> {
    const { sets } = this.#parts;
    let written = await this.#writeSetsAndTables(signal);
    if (written.refusal !== undefined && sets.length > 0 && !signal.aborted) {
      // No rule is taken that names a set which somebody made again as another kind: before giving up, look there.
      this.#log.warn("the rules are refused; looking at the sets they name", { error: describeError(written.refusal) });
      for (const part of sets) part.queueResync();
      written = await this.#writeSetsAndTables(signal);
    }
    if (written.refusal !== undefined) throw written.refusal;
    // A set in use cannot be deleted. And what still protects stays until all of ours does.
    const deletable = sets.filter((set) => written.isWhole || set.needsWholeRules !== true);
    await Promise.all(deletable.map((set) => this.#attempt(set.name, signal, () => set.applyDeletions(signal))));
  }

  async #writeSetsAndTables(signal: AbortSignal): Promise<{ readonly isWhole: boolean; readonly refusal: unknown }> {
    const { sets, tables } = this.#parts;
    const filled = await this.#all(sets, signal); // a rule naming an unknown set is refused
    const last = tables.filter(({ needsWholeRules }) => needsWholeRules === true);
    const write = (parts: readonly Reconciler[]) =>
      Promise.allSettled(parts.map((part) => this.#attempt(part.name, signal, () => part.apply(signal))));
    const written = await write(tables.filter((table) => !last.includes(table)));
    const areDone = () => written.every((each) => each.status === "fulfilled" && each.value);
    const areFilled = filled.every((isDone) => isDone);
    if (areFilled && areDone()) written.push(...(await write(last)));
    return {
      isWhole: areFilled && areDone(),
      refusal: written.find((each) => each.status === "rejected")?.reason,
    };
  }

  #all(parts: readonly Reconciler[], signal: AbortSignal): Promise<boolean[]> {
    return Promise.all(parts.map((part) => this.#attempt(part.name, signal, () => part.apply(signal))));
  }

  /** Whether it succeeded. */
  async #attempt(
    part: string,
    signal: AbortSignal,
    work: () => Promise<ApplyOutcome | void> | ApplyOutcome | void,
  ): Promise<boolean> {
    let isDone = true;
    try {
      const outcome = await work();
      if (outcome?.againInMs !== undefined)
        this.#againAt = Math.min(this.#againAt, performance.now() + outcome.againInMs);
    } catch (error) {
      if (signal.aborted || error instanceof FatalDataplaneError) throw error;
      isDone = false;
      this.#failures++;
      this.#log.warn("part of the dataplane failed; it is tried again", { part, error: describeError(error) });
    }
    this.#onProgress();
    return isDone;
  }
}
