// Batches concurrent reads into one etcd transaction: a caller that starts several reads at once (`Promise.all`) waits for
// one round trip. etcd treats a transaction that contains only reads as a read, at a single revision.
import type { EtcdApi, EtcdCall } from "./api.ts";
import type { RangeRequest, RangeResponse } from "./messages.ts";

/** etcd accepts 128 operations per transaction (--max-txn-ops); larger batches save little. */
const MAX_BATCH = 32;

interface QueuedRead {
  readonly request: RangeRequest;
  readonly resolve: (response: RangeResponse) => void;
  readonly reject: (error: unknown) => void;
}

export class ReadBatch {
  readonly #api: EtcdApi;
  /** By the signal that may abort them, because a batch is aborted as a whole. */
  readonly #queued = new Map<AbortSignal | undefined, QueuedRead[]>();

  constructor(api: EtcdApi) {
    this.#api = api;
  }

  range(request: RangeRequest, call: EtcdCall): Promise<RangeResponse> {
    return new Promise((resolve, reject) => {
      const batch = this.#queued.get(call.signal);
      if (batch !== undefined) batch.push({ request, resolve, reject });
      else {
        this.#queued.set(call.signal, [{ request, resolve, reject }]);
        // The microtask runs after all reads of this turn of the event loop have been queued.
        queueMicrotask(() => this.#send(call));
      }
    });
  }

  #send(call: EtcdCall): void {
    const all = this.#queued.get(call.signal) ?? [];
    this.#queued.delete(call.signal);
    for (let i = 0; i < all.length; i += MAX_BATCH) void this.#sendBatch(all.slice(i, i + MAX_BATCH), call);
  }

  async #sendBatch(reads: readonly QueuedRead[], call: EtcdCall): Promise<void> {
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
        // `txn` returns rows without the flag `more`. A full page may be the last one; then the next page is empty.
        const more = request.limit !== undefined && rows.length >= request.limit;
        resolve({ rows, more, revision: answer.revision });
      }
    } catch (error) {
      for (const { reject } of reads) reject(error);
    }
  }
}
