// A datastore for one request, which has so long and no longer for all it asks, and for waiting until it may ask.
import { type CallOptions, type Datastore, Unavailable } from "../datastore/index.ts";

/** Ends by itself, or is forgotten. */
export class Deadline implements Disposable {
  readonly #aborter = new AbortController();
  readonly #timer: Timer;

  constructor(store: Datastore, seconds: number) {
    const late = (): void =>
      this.#aborter.abort(new Unavailable(store.name, `no answer in time (waited for ${seconds.toFixed(1)} s)`));
    this.#timer = setTimeout(late, seconds * 1000);
  }

  get signal(): AbortSignal {
    return this.#aborter.signal;
  }

  [Symbol.dispose](): void {
    clearTimeout(this.#timer);
  }
}

/** What is asked with a signal of its own keeps that. */
export function timedStore(store: Datastore, signal: AbortSignal): Datastore {
  const timed = <O extends CallOptions>(options: O | undefined): O =>
    options?.signal === undefined ? ({ ...options, signal } as O) : options;
  const together = store.together?.bind(store);
  return {
    name: store.name,
    get: (key, options) => store.get(key, timed(options)),
    list: (query, options) => store.list(query, timed(options)),
    watch: (query, options) => store.watch(query, options),
    create: (entry, options) => store.create(entry, timed(options)),
    update: (entry, options) => store.update(entry, timed(options)),
    apply: (entry, options) => store.apply(entry, timed(options)),
    delete: (key, options) => store.delete(key, timed(options)),
    ...(together === undefined ? {} : { together: (writes, options) => together(writes, timed(options)) }),
    close: () => store.close(),
  };
}
