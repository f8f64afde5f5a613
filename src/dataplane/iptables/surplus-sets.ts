// IP sets that nobody wants any more, until they are gone: a few in every round, and one that rules still hold ever more
// rarely. Whose rules those are is told once.
import { hasErrno, type IpsetStore } from "../../kernel/index.ts";
import { describeError, type Logger } from "../../lib/log.ts";
import type { ApplyOutcome } from "../manager.ts";

export interface SurplusSetsOptions {
  readonly store: Pick<IpsetStore, "apply">;
  readonly logger: Logger;
  readonly onCall?: (ok: boolean, lines: number) => void;
  readonly onGone: (name: string) => void;
  /** Rules in the kernel that name the set, in words. */
  readonly whoUses?: (name: string, signal: AbortSignal) => Promise<readonly string[]>;
  /** What our rules do while others hold the set, in words. */
  readonly meanwhile: (name: string) => string;
}

const DELETIONS_PER_ROUND = 10;
const MORE_DELETIONS_MS = 100;
/** The kernel lets go of what deleted rules used a moment after them; a foreign rule may hold a set for ever. */
const IN_USE_MS = { first: 100, last: 180_000 };
/** So often a set that is still held is nobody's but the kernel's own slowness. */
const PATIENT_TRIES = 4;

export class SurplusSets {
  readonly #options: SurplusSetsOptions;
  readonly #names = new Set<string>();
  /** Of those, the ones some rule still matches by, and how often that was found. */
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

  /** The set is wanted again. */
  keep(name: string): void {
    this.#names.delete(name);
    this.#inUse.delete(name);
  }

  async apply(signal: AbortSignal): Promise<ApplyOutcome> {
    let held = 0;
    for (const name of [...this.#names].slice(0, DELETIONS_PER_ROUND)) {
      this.#names.delete(name);
      if (this.#destroy(name)) {
        this.#options.onGone(name);
        continue;
      }
      this.#names.add(name); // behind the others
      held++;
      if (this.#inUse.get(name) === PATIENT_TRIES) await this.#tellWhoUses(name, signal);
    }
    if (this.#names.size > this.#inUse.size) return { againInMs: MORE_DELETIONS_MS };
    if (held === 0) {
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
        logger[tries === 1 ? "warn" : "debug"]("an unused IP set could not be deleted; trying again", {
          set: name,
          error: describeError(error),
        });
        return false;
      }
    }
    this.#inUse.delete(name);
    return true;
  }

  async #tellWhoUses(name: string, signal: AbortSignal): Promise<void> {
    const { logger, whoUses, meanwhile } = this.#options;
    const rules = await whoUses?.(name, signal).catch(() => undefined);
    if (rules === undefined) return;
    logger.warn("rules that are not ours hold an IP set of ours; delete them", {
      set: name,
      rules: rules.length > 0 ? rules.join("; ") : "none that iptables shows: look for a set of sets or a tc filter",
      meanwhile: meanwhile(name),
    });
  }
}
