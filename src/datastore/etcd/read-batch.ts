// Reads that are asked for together travel together: whoever starts several at once (`Promise.all`) pays for one round
// trip. etcd answers a transaction of reads alone like a read, and all at one revision.
import type { EtcdApi, EtcdCall } from "./api.ts";
import type { RangeRequest, RangeResponse } from "./messages.ts";

/** etcd takes 128 operations in a transaction; a few are enough to be worth it. */
const MOST = 32;

interface Waiting {
  readonly request: RangeRequest;
  readonly resolve: (response: RangeResponse) => void;
  readonly reject: (error: unknown) => void;
}

export class ReadBatch {
  readonly #api: EtcdApi;
  /** By the signal that may end them: reads of one caller. */
  readonly #waiting = new Map<AbortSignal | undefined, Waiting[]>();

  constructor(api: EtcdApi) {
    this.#api = api;
  }

  range(request: RangeRequest, call: EtcdCall): Promise<RangeResponse> {
    return new Promise((resolve, reject) => {
      const together = this.#waiting.get(call.signal);
      if (together !== undefined) together.push({ request, resolve, reject });
      else {
        this.#waiting.set(call.signal, [{ request, resolve, reject }]);
        // What is asked for in this turn is there when the turn ends.
        queueMicrotask(() => this.#send(call));
      }
    });
  }

  #send(call: EtcdCall): void {
    const all = this.#waiting.get(call.signal) ?? [];
    this.#waiting.delete(call.signal);
    for (let i = 0; i < all.length; i += MOST) void this.#sendSome(all.slice(i, i + MOST), call);
  }

  async #sendSome(reads: readonly Waiting[], call: EtcdCall): Promise<void> {
    try {
      const [only] = reads;
      if (only !== undefined && reads.length === 1) {
        only.resolve(await this.#api.range(only.request, call));
        return;
      }
      const success = reads.map(({ request }) => ({ type: "range", range: request }) as const);
      const answer = await this.#api.txn({ compare: [], success, failure: [] }, { ...call, repeatable: true });
      for (const [i, { request, resolve }] of reads.entries()) {
        const rows = answer.rows[i] ?? [];
        // A full page may be the last: who asks on finds out.
        const more = request.limit !== undefined && rows.length >= request.limit;
        resolve({ rows, more, revision: answer.revision });
      }
    } catch (error) {
      for (const { reject } of reads) reject(error);
    }
  }
}
