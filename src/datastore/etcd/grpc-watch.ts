// Reads one watch stream over gRPC. If the server is silent, requests a progress report, because a stream that a proxy or
// a stuck server has lost stays silent for ever. Dead connections are found by the channel's PINGs.
import type { CallHandlers, GrpcCall } from "../../lib/http/grpc-call.ts";
import { yieldToEventLoop } from "../../lib/retry.ts";
import { Compacted, Unavailable } from "../errors.ts";
import type { EtcdWatchStream } from "./api.ts";
import { AttemptFailed, failureOf, PingTimedOut, TokenExpired } from "./failures.ts";
import {
  decodeAnswer,
  decodeWatchResponse,
  encodeWatchRequest,
  type WatchCreate,
  type WatchRequest,
  type WatchResponse,
} from "./messages.ts";

/** After this time without a message, a progress report is requested. After twice this time, the stream has failed. */
const SILENCE_MS = 10_000;
/** Number of queued responses at which the stream is paused. */
const QUEUE_LIMIT = 64;

interface WatchOptions {
  readonly call: (handlers: CallHandlers) => Promise<GrpcCall>;
  readonly create: WatchCreate;
  readonly signal: AbortSignal;
  readonly budgetMs: number;
  readonly endpoint: string;
  readonly silenceMs?: number;
  /** Called when the server no longer answers. */
  readonly onLost: () => void;
}

export class GrpcWatchStream implements EtcdWatchStream {
  readonly #options: WatchOptions;
  readonly #queue: WatchResponse[] = [];
  readonly #onAbort = () => this.close();
  #waiting: { resolve: (response: WatchResponse | undefined) => void; reject: (error: unknown) => void } | undefined;
  #failure: Error | undefined;
  #call: GrpcCall | undefined;
  readonly #silenceMs: number;
  #closed = false;
  #receivedAt = performance.now();
  #isProgressRequested = false;
  #timer: Timer | undefined;
  revision = 0;

  /** Starts the watch and waits until the server has accepted it. */
  static async open(options: WatchOptions): Promise<GrpcWatchStream> {
    const watch = new GrpcWatchStream(options);
    const deadline = setTimeout(() => watch.#failSilent("no answer in time", false), options.budgetMs);
    try {
      await watch.#start();
      const first = await watch.next();
      options.signal.throwIfAborted();
      if (first?.created !== true) throw new AttemptFailed("the watch was not accepted", false);
      watch.revision = first.revision;
      return watch;
    } catch (error) {
      watch.close();
      throw error;
    } finally {
      clearTimeout(deadline);
    }
  }

  private constructor(options: WatchOptions) {
    this.#options = options;
    this.#silenceMs = options.silenceMs ?? SILENCE_MS;
  }

  async #start(): Promise<void> {
    const { call, create, signal } = this.#options;
    const opened = await call({
      onMessage: (bytes) => this.#receive(decodeAnswer(decodeWatchResponse, bytes)),
      onEnd: (failure) => this.#fail(this.#explain(failure)),
    });
    if (this.#failure !== undefined) return opened.cancel();
    this.#call = opened;
    this.#send({ create });
    signal.addEventListener("abort", this.#onAbort, { once: true });
    this.#receivedAt = performance.now();
    this.#timer = setInterval(() => void this.#checkAlive(), this.#silenceMs / 2);
    if (signal.aborted) this.close();
  }

  next(): Promise<WatchResponse | undefined> {
    const queued = this.#queue.shift();
    if (queued !== undefined) {
      if (this.#queue.length === 0) this.#call?.resume();
      return Promise.resolve(queued);
    }
    if (this.#closed) return Promise.resolve(undefined);
    if (this.#failure !== undefined) return Promise.reject(this.#failure);
    return new Promise((resolve, reject) => {
      this.#waiting = { resolve, reject };
    });
  }

  close(): void {
    if (this.#closed) return;
    this.#closed = true;
    this.#release();
    this.#waiting?.resolve(undefined);
    this.#waiting = undefined;
  }

  #send(request: WatchRequest): void {
    this.#call?.send(encodeWatchRequest(request));
  }

  #receive(response: WatchResponse): void {
    this.#receivedAt = performance.now();
    this.#isProgressRequested = false;
    if (response.canceled) return this.#fail(this.#explain(this.#cancelError(response)));
    if (this.#waiting !== undefined) {
      this.#waiting.resolve(response);
      this.#waiting = undefined;
    } else if (this.#queue.push(response) >= QUEUE_LIMIT) this.#call?.pause();
  }

  #fail(error: Error): void {
    if (this.#closed || this.#failure !== undefined) return;
    const isOpen = this.revision > 0;
    this.#failure = error instanceof AttemptFailed && isOpen ? this.#unavailable(error) : error;
    if (this.#failure instanceof Unavailable) this.#options.onLost();
    this.#release();
    this.#waiting?.reject(this.#failure);
    this.#waiting = undefined;
  }

  #release(): void {
    clearInterval(this.#timer);
    this.#options.signal.removeEventListener("abort", this.#onAbort);
    this.#call?.cancel();
  }

  #unavailable(error: AttemptFailed): Unavailable {
    const { endpoint } = this.#options;
    const ping = error.cause instanceof PingTimedOut ? error.cause : undefined;
    const silentMs = ping?.silentMs ?? performance.now() - this.#receivedAt;
    return new Unavailable(endpoint, ping?.message ?? error.reason, { cause: error, silentMs });
  }

  async #checkAlive(): Promise<void> {
    if (!this.#isSilentFor(this.#silenceMs)) return;
    if (!this.#isProgressRequested) {
      this.#isProgressRequested = true;
      return this.#send({ progress: true });
    }
    await yieldToEventLoop(); // if the event loop was blocked, the answer has not been read yet
    if (!this.#isSilentFor(2 * this.#silenceMs)) return;
    this.#failSilent(`no message for ${((performance.now() - this.#receivedAt) / 1000).toFixed(1)} s`, true);
  }

  /** Returns false if responses are queued: then the consumer is slow, and the server was not silent. */
  #isSilentFor(ms: number): boolean {
    return this.#queue.length === 0 && performance.now() - this.#receivedAt >= ms;
  }

  /** Closes the connection of a silent server, so that the next attempt opens another one. */
  #failSilent(reason: string, wasSent: boolean): void {
    const error = new AttemptFailed(reason, wasSent);
    const call = this.#call;
    this.#fail(error);
    call?.dropConnection(error);
  }

  #cancelError(response: WatchResponse): Error {
    const { startRevision } = this.#options.create;
    if (response.compactRevision > 0) return new Compacted(String(startRevision - 1));
    // A missing permission is reported inside the stream, without a status code.
    const code = response.cancelReason.includes("permission denied") ? 7 : 14;
    return failureOf(code, response.cancelReason === "" ? "the server cancelled the watch" : response.cancelReason);
  }

  #explain(failure: Error | undefined): Error {
    if (failure === undefined) return new AttemptFailed("the server ended the watch", true);
    return failure instanceof TokenExpired && this.revision > 0
      ? new AttemptFailed("the session expired", true, { cause: failure })
      : failure;
  }
}
