// Writes one round of changes, in an order in which no intermediate state allows too much, and the kernel rejects nothing
// that it would accept later:
//
//   managers ─┬─ sets ─ tables ─ deletions of sets
//             └─ links ─ routes
//
// Failures are logged and counted; the other parts are still written.
import { describeError, type Logger } from "../../lib/log/log.ts";
import {
  type ApplyOutcome,
  FatalDataplaneError,
  type Manager,
  type Reconciler,
  type SetReconciler,
} from "./manager.ts";

export interface RoundParts {
  /** In the order in which they receive messages and apply. */
  readonly managers: readonly Manager[];
  readonly sets: readonly SetReconciler[];
  readonly tables: readonly Reconciler[];
  /** Devices, their addresses and forwarding entries; written before routes. */
  readonly links: readonly Reconciler[];
  readonly routes: readonly Reconciler[];
}

export interface RoundOutcome {
  readonly failures: number;
  /** When to apply again even if nothing changes, by `performance.now()`; infinity: not necessary. */
  readonly applyAgainAtMs: number;
}

export class ApplyRound {
  readonly #parts: RoundParts;
  readonly #log: Logger;
  readonly #onProgress: () => void;
  #failures = 0;
  #applyAgainAtMs = Number.POSITIVE_INFINITY;

  /** @param deps.onProgress called after each part; a long round is healthy as long as it makes progress */
  constructor(parts: RoundParts, deps: { readonly logger: Logger; readonly onProgress: () => void }) {
    this.#parts = parts;
    this.#log = deps.logger;
    this.#onProgress = deps.onProgress;
  }

  /** @throws FatalDataplaneError if rules cannot be programmed, and any error if the signal aborted */
  async run(signal: AbortSignal): Promise<RoundOutcome> {
    const { managers, links, routes } = this.#parts;
    for (const manager of managers) manager.resolve?.();
    for (const manager of managers)
      if (manager.apply) await this.#attempt(manager.name, signal, () => manager.apply?.(signal));
    await Promise.all([this.#writeRules(signal), this.#all(links, signal).then(() => this.#all(routes, signal))]);
    return { failures: this.#failures, applyAgainAtMs: this.#applyAgainAtMs };
  }

  async #writeRules(signal: AbortSignal): Promise<void> {
    const { sets } = this.#parts;
    let written = await this.#writeSetsAndTables(signal);
    if (written.rejection !== undefined && sets.length > 0 && !signal.aborted) {
      // The kernel rejects rules that use a set which another program replaced by one of another type: check the sets once.
      this.#log.warn("rules cannot be programmed; checking the IP sets that they use", {
        error: describeError(written.rejection),
      });
      for (const part of sets) part.queueResync();
      written = await this.#writeSetsAndTables(signal);
    }
    if (written.rejection !== undefined) throw written.rejection;
    // A set in use cannot be deleted. Rules of another backend stay until all rules of this one are written.
    const deletable = sets.filter((set) => written.isComplete || set.requiresAllRules !== true);
    await Promise.all(deletable.map((set) => this.#attempt(set.name, signal, () => set.applyDeletions(signal))));
  }

  async #writeSetsAndTables(
    signal: AbortSignal,
  ): Promise<{ readonly isComplete: boolean; readonly rejection: unknown }> {
    const { sets, tables } = this.#parts;
    const setResults = await this.#all(sets, signal); // the kernel rejects rules that use missing sets
    const last = tables.filter(({ requiresAllRules }) => requiresAllRules === true);
    const write = (parts: readonly Reconciler[]) =>
      Promise.allSettled(parts.map((part) => this.#attempt(part.name, signal, () => part.apply(signal))));
    const written = await write(tables.filter((table) => !last.includes(table)));
    const areDone = () => written.every((each) => each.status === "fulfilled" && each.value);
    const areSetsWritten = setResults.every((isDone) => isDone);
    if (areSetsWritten && areDone()) written.push(...(await write(last)));
    return {
      isComplete: areSetsWritten && areDone(),
      rejection: written.find((each) => each.status === "rejected")?.reason,
    };
  }

  #all(parts: readonly Reconciler[], signal: AbortSignal): Promise<boolean[]> {
    return Promise.all(parts.map((part) => this.#attempt(part.name, signal, () => part.apply(signal))));
  }

  /** @returns true if it succeeded */
  async #attempt(
    part: string,
    signal: AbortSignal,
    work: () => Promise<ApplyOutcome | void> | ApplyOutcome | void,
  ): Promise<boolean> {
    let isDone = true;
    try {
      const outcome = await work();
      if (outcome?.againInMs !== undefined)
        this.#applyAgainAtMs = Math.min(this.#applyAgainAtMs, performance.now() + outcome.againInMs);
    } catch (error) {
      if (signal.aborted || error instanceof FatalDataplaneError) throw error;
      isDone = false;
      this.#failures++;
      this.#log.warn("part of the dataplane failed; retrying", { part, error: describeError(error) });
    }
    this.#onProgress();
    return isDone;
  }
}
