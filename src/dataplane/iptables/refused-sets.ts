// IP sets the kernel does not take. They are kept aside, all rules that name one are closed, and now and then, or when
// such a set changes, the kernel is asked again.
import { IpsetError } from "../../kernel/index.ts";
import type { Logger } from "../../lib/log.ts";
import { isPassing, type Refused, RefusedLog, refusedSet } from "../rules/refused.ts";
import type { SetId } from "../rules/rule.ts";

export interface RefusedSetsOptions {
  readonly logger: Logger;
  readonly kernelName: (id: SetId) => string;
  /** Rules that name the set must be written anew: closed, or as they were wanted. */
  readonly onAside?: (id: SetId, isAside: boolean) => void;
  readonly retryMs?: number;
}

const RETRY_MS = 60_000;

/** Said of the set, and not of the moment: one that came or went while we wrote is looked at again. */
const isRefusal = (error: unknown): error is IpsetError =>
  error instanceof IpsetError && !isPassing(error.errno) && error.errno !== "ENOENT" && error.errno !== "EEXIST";

export class RefusedSets {
  readonly #options: RefusedSetsOptions;
  readonly #log: RefusedLog;
  readonly #aside = new Set<SetId>();
  #listed: readonly Refused[] | undefined;
  #retryAt = Number.POSITIVE_INFINITY;

  constructor(options: RefusedSetsOptions) {
    this.#options = options;
    this.#log = new RefusedLog(options.logger);
  }

  /** Those that are not aside. */
  without(ids: Iterable<SetId>): SetId[] {
    return [...ids].filter((id) => !this.#aside.has(id));
  }

  /** Those to ask the kernel for again: the changed ones, and now and then all. */
  due(changed: ReadonlySet<SetId>): SetId[] {
    const areAllDue = this.retryInMs() === 0;
    return [...this.#aside].filter((id) => areAllDue || changed.has(id));
  }

  /** Sets aside what the error is about, and gives it; nothing when it is about the moment and not about sets. */
  addAll(error: unknown, ownerOf: (name: string) => SetId | undefined): SetId[] {
    if (!isRefusal(error)) return [];
    return [error, ...error.others].flatMap((each) => {
      const { change } = each;
      const id = ownerOf(change.op === "create" ? change.set.name : change.name);
      if (id === undefined) return [];
      this.#add(id, each);
      return [id];
    });
  }

  #add(id: SetId, error: IpsetError): void {
    this.#log.tell(this.#describe(id), error);
    this.#retryAt = performance.now() + (this.#options.retryMs ?? RETRY_MS);
    if (this.#aside.has(id)) return;
    this.#aside.add(id);
    this.#listed = undefined;
    this.#options.onAside?.(id, true);
  }

  /** The kernel took it, or nobody wants it any more. */
  delete(id: SetId): void {
    if (!this.#aside.delete(id)) return;
    this.#listed = undefined;
    this.#options.onAside?.(id, false);
    if (this.#aside.size > 0) return;
    this.#retryAt = Number.POSITIVE_INFINITY;
    this.#log.settled("IP sets");
  }

  /** When the kernel shall be asked again. */
  retryInMs(): number {
    return Math.max(0, this.#retryAt - performance.now());
  }

  list(): readonly Refused[] {
    this.#listed ??= this.#log.explained([...this.#aside].map((id) => this.#describe(id)));
    return this.#listed;
  }

  #describe(id: SetId) {
    return refusedSet(`ipset ${this.#options.kernelName(id)}`);
  }
}
