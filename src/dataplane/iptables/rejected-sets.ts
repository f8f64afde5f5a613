// Keeps the IP sets that the kernel rejects. They are not written, and all rules that use one are replaced by fallbacks. A
// rejected set is tried again when it changes, and after `retryMs`.
import { IpsetError } from "../../kernel/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { describeRejectedSet, isTransient, type RejectedItem, RejectionLog } from "../rules/fallback/rejection-log.ts";
import type { SetId } from "../rules/rule.ts";

export interface RejectedSetsOptions {
  readonly logger: Logger;
  readonly kernelName: (id: SetId) => string;
  /** The rules that use the set must be replaced by fallbacks, or restored. */
  readonly onSetRejected?: (id: SetId, isRejected: boolean) => void;
  readonly retryMs?: number;
}

const DEFAULT_RETRY_MS = 60_000;

/** ENOENT and EEXIST are excluded: another program created or deleted a set during the write. It is read again. */
const isRejection = (error: unknown): error is IpsetError =>
  error instanceof IpsetError && !isTransient(error.errno) && error.errno !== "ENOENT" && error.errno !== "EEXIST";

export class RejectedSets {
  readonly #options: RejectedSetsOptions;
  readonly #log: RejectionLog;
  readonly #ids = new Set<SetId>();
  #cachedList: readonly RejectedItem[] | undefined;
  #retryAtMs = Number.POSITIVE_INFINITY;

  constructor(options: RejectedSetsOptions) {
    this.#options = options;
    this.#log = new RejectionLog(options.logger);
  }

  /** Returns the given sets that are not rejected. */
  without(ids: Iterable<SetId>): SetId[] {
    return [...ids].filter((id) => !this.#ids.has(id));
  }

  /** Returns the sets to try again: rejected ones that changed, or all if the retry is due. */
  due(changed: ReadonlySet<SetId>): SetId[] {
    const areAllDue = this.retryInMs() === 0;
    return [...this.#ids].filter((id) => areAllDue || changed.has(id));
  }

  /** Adds the sets that the error is about, and returns them. Empty if the error does not depend on sets. */
  addAll(error: unknown, ownerOf: (name: string) => SetId | undefined): SetId[] {
    if (!isRejection(error)) return [];
    return [error, ...error.others].flatMap((each) => {
      const { change } = each;
      const id = ownerOf(change.op === "create" ? change.set.name : change.name);
      if (id === undefined) return [];
      this.#add(id, each);
      return [id];
    });
  }

  #add(id: SetId, error: IpsetError): void {
    this.#log.report(this.#describe(id), error);
    this.#retryAtMs = performance.now() + (this.#options.retryMs ?? DEFAULT_RETRY_MS);
    if (this.#ids.has(id)) return;
    this.#ids.add(id);
    this.#cachedList = undefined;
    this.#options.onSetRejected?.(id, true);
  }

  /** Must be called if the kernel accepted the set, or it is no longer desired. */
  delete(id: SetId): void {
    if (!this.#ids.delete(id)) return;
    this.#cachedList = undefined;
    this.#options.onSetRejected?.(id, false);
    if (this.#ids.size > 0) return;
    this.#retryAtMs = Number.POSITIVE_INFINITY;
    this.#log.reportResolved("IP sets");
  }

  /** Returns the time until the next retry; infinity if no set is rejected. */
  retryInMs(): number {
    return Math.max(0, this.#retryAtMs - performance.now());
  }

  list(): readonly RejectedItem[] {
    this.#cachedList ??= this.#log.withErrors([...this.#ids].map((id) => this.#describe(id)));
    return this.#cachedList;
  }

  #describe(id: SetId) {
    return describeRejectedSet(`ipset ${this.#options.kernelName(id)}`);
  }
}
