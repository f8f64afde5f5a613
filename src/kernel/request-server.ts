// A server on a Unix socket: one request and one reply per connection, the request with a descriptor if its sender
// wishes. Root alone may ask. Accepting and reading happen on a thread of their own.
//
// Before a reply that takes its time a space is sent every second, by the thread that works on it: who asked can tell work
// from death, also from work that does not end. Whose asker has gone meanwhile, because we were stopped for a while, is not
// begun any more.
import { writeSync } from "node:fs";
import { succeed } from "./netlink-error.ts";
import type { RequestWorkerMessage, RequestWorkerStart } from "./request-worker.ts";
import { SocketPlace } from "./socket-place.ts";
import { allocate, close, eventfd, poll, send } from "./sys.ts";
import { workerUrl } from "./worker-url.ts";

const MAX_REQUEST_BYTES = 4 << 20;
const MAX_REQUEST_MS = 2000;
const SIGN_INTERVAL_MS = 1000;
/** Who has worked for three minutes will not end. */
const MOST_SIGNS = 180;
const SIGN_OF_LIFE = Uint8Array.of(0x20);

export interface ReceivedRequest {
  readonly text: string;
  /** The handler closes it. */
  readonly descriptor?: number;
  /** Whether who asked still waits for the reply. */
  readonly isAwaited: () => boolean;
  /** The process that asked; absent when it is none that we can see. */
  readonly pid?: number;
}

export interface RequestServerOptions {
  readonly path: string;
  /** The reply's text. A rejection closes the connection without one. */
  readonly onRequest: (request: ReceivedRequest) => Promise<string>;
  readonly onFailure: (why: Error) => void;
  /** How often a sign of life is sent. */
  readonly signIntervalMs?: number;
}

export class RequestServer implements AsyncDisposable {
  readonly #options: RequestServerOptions;
  readonly #place: SocketPlace;
  readonly #wakeFd: number;
  readonly #worker: Worker;
  readonly #closed = Promise.withResolvers<void>();
  readonly #running = new Set<Promise<void>>();
  #isClosing = false;

  /** @throws PlaceTaken */
  constructor(options: RequestServerOptions) {
    this.#options = options;
    this.#place = SocketPlace.take(options.path);
    this.#wakeFd = succeed(eventfd(), "make a descriptor to wake a thread");
    this.#worker = new Worker(workerUrl("kernel/request-worker"));
    this.#worker.onmessage = (event: MessageEvent<RequestWorkerMessage>) => this.#receive(event.data);
    this.#worker.onerror = (event) => this.#end(event.message);
    const start: RequestWorkerStart = {
      listenFd: this.#place.fd,
      wakeFd: this.#wakeFd,
      uid: process.getuid?.() ?? 0,
      maxBytes: MAX_REQUEST_BYTES,
      maxMs: MAX_REQUEST_MS,
    };
    this.#worker.postMessage(start);
  }

  /** Takes no more requests; those under way are answered. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isClosing) {
      this.#isClosing = true;
      this.#place.leave();
      writeSync(this.#wakeFd, Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    }
    await this.#closed.promise;
    await Promise.all(this.#running);
  }

  #receive(message: RequestWorkerMessage): void {
    if (message.type === "closed") return this.#end(message.failure);
    const { connection, text, descriptor, pid } = message;
    const isAwaited = (): boolean => !isHungUp(connection);
    if (!isAwaited()) {
      if (descriptor !== undefined) close(descriptor);
      close(connection);
      return;
    }
    const request = {
      text,
      isAwaited,
      ...(pid === 0 ? {} : { pid }),
      ...(descriptor === undefined ? {} : { descriptor }),
    };
    const answering = this.#answer(connection, request);
    this.#running.add(answering);
    void answering.finally(() => this.#running.delete(answering));
  }

  async #answer(connection: number, request: ReceivedRequest): Promise<void> {
    let sent = 0;
    const signs = setInterval(() => {
      send(connection, SIGN_OF_LIFE, 1, 0);
      if (++sent === MOST_SIGNS) clearInterval(signs);
    }, this.#options.signIntervalMs ?? SIGN_INTERVAL_MS);
    try {
      const encoded = new TextEncoder().encode(await this.#options.onRequest(request));
      const bytes = allocate(encoded.length);
      bytes.set(encoded);
      // A reply is far smaller than the socket's buffer: this never waits for the client to read.
      send(connection, bytes, bytes.length, 0);
    } catch (error) {
      this.#options.onFailure(error instanceof Error ? error : new Error(String(error)));
    } finally {
      clearInterval(signs);
      close(connection);
    }
  }

  #end(failure: string | undefined): void {
    const isOurWish = this.#isClosing;
    this.#isClosing = true;
    this.#worker.terminate();
    close(this.#place.fd);
    close(this.#wakeFd);
    this.#closed.resolve();
    if (!isOurWish) this.#options.onFailure(new Error(`the socket's thread ended: ${failure ?? "no reason given"}`));
  }
}

/** Whether the other side has closed the connection, not only ended its writing. */
function isHungUp(connection: number): boolean {
  const events = poll([{ fd: connection, events: 0 }], 0);
  return typeof events !== "number" && events[0] !== 0;
}
