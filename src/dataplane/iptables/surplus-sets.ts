// Deletes IP sets that are not desired any more, a few in each round. A set that is still used by rules is tried again at
// growing intervals, and the rules are logged once.
import { hasErrno, type IpsetStore } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { ApplyOutcome } from "../loop/manager.ts";

export interface SurplusSetsOptions {
  readonly store: Pick<IpsetStore, "apply">;
  readonly logger: Logger;
  readonly onCall?: (ok: boolean, lines: number) => void;
  readonly onDeleted: (name: string) => void;
  /** Returns the rules in the kernel that use the set, as text. */
  readonly findUsers?: (name: string, signal: AbortSignal) => Promise<readonly string[]>;
  /** Describes what the rules of calico-ts do while the set is used by others. */
  readonly meanwhile: (name: string) => string;
}

const DELETIONS_PER_ROUND = 10;
const MORE_DELETIONS_MS = 100;
/** The kernel releases the sets of deleted rules after a short time. Rules of other programs may use a set forever. */
const IN_USE_MS = { first: 100, last: 180_000 };
/** After this many attempts, rules of other programs are assumed to use the set. */
const ATTEMPTS_BEFORE_LOG = 4;

export class SurplusSets {
  readonly #options: SurplusSetsOptions;
  readonly #names = new Set<string>();
  /** Number of failed deletions of sets that are in use. */
  readonly #inUse = new Map<string, number>();
  #inUseMs = IN_USE_MS.first;

  constructor(options: SurplusSetsOptions) {
    this.#options = options;
  }

  has(name: string): boolean {
    return this.#names.has(name);
  }

  add(name: string): void {
    this.#names.add(name);
  }

  /** Must be called if a set is desired again. */
  keep(name: string): void {
    this.#names.delete(name);
    this.#inUse.delete(name);
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    let inUse = 0;
    for (const name of [...this.#names].slice(0, DELETIONS_PER_ROUND)) {
      this.#names.delete(name);
      if (this.#destroy(name)) {
        this.#options.onDeleted(name);
        continue;
      }
      this.#names.add(name); // as the last one
      inUse++;
      if (this.#inUse.get(name) === ATTEMPTS_BEFORE_LOG) await this.#logUsers(name, signal);
    }
    if (this.#names.size > this.#inUse.size) return { againInMs: MORE_DELETIONS_MS };
    if (inUse === 0) {
      this.#inUseMs = IN_USE_MS.first;
      return {};
    }
    const againInMs = this.#inUseMs;
    this.#inUseMs = Math.min(IN_USE_MS.last, againInMs * 2);
    return { againInMs };
  }

  #destroy(name: string): boolean {
    const { store, logger, onCall } = this.#options;
    try {
      store.apply([{ op: "destroy", name }]);
      onCall?.(true, 1);
    } catch (error) {
      if (!hasErrno(error, "ENOENT")) {
        const tries = (this.#inUse.get(name) ?? 0) + 1;
        this.#inUse.set(name, tries);
        logger[tries === 1 ? "warn" : "debug"]("deleting an unused IP set failed; retrying", {
          set: name,
          error: describeError(error),
        });
        return false;
      }
    }
    this.#inUse.delete(name);
    return true;
  }

  async #logUsers(name: string, signal: AbortSignal): Promise<void> {
    const { logger, findUsers, meanwhile } = this.#options;
    const rules = await findUsers?.(name, signal).catch(() => undefined);
    if (rules === undefined) return;
    logger.warn("rules of other programs use an IP set that must be deleted; delete these rules", {
      set: name,
      rules: rules.length > 0 ? rules.join("; ") : "none found in iptables; check list:set sets and tc filters",
      meanwhile: meanwhile(name),
    });
  }
}
