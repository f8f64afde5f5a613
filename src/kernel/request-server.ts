// A server on a Unix socket: one request and one reply per connection, the request with a descriptor if its sender
// wishes. Root alone may ask. Accepting and reading happen on a thread of their own.
import { chmodSync, mkdirSync, rmSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { succeed } from "./netlink-error.ts";
import type { RequestWorkerMessage, RequestWorkerStart } from "./request-worker.ts";
import { allocate, close, eventfd, send } from "./sys.ts";
import { connectUnix } from "./unix-client.ts";
import { listenUnix } from "./unix-socket.ts";
import { workerUrl } from "./worker-url.ts";

const MAX_REQUEST_BYTES = 4 << 20;
const MAX_REQUEST_MS = 2000;

export interface ReceivedRequest {
  readonly text: string;
  /** The handler closes it. */
  readonly descriptor?: number;
}

export interface RequestServerOptions {
  readonly path: string;
  /** The reply's text. A rejection closes the connection without one. */
  readonly onRequest: (request: ReceivedRequest) => Promise<string>;
  readonly onFailure: (why: Error) => void;
}

export class RequestServer implements AsyncDisposable {
  readonly #options: RequestServerOptions;
  readonly #listenFd: number;
  readonly #wakeFd: number;
  readonly #worker: Worker;
  readonly #closed = Promise.withResolvers<void>();
  readonly #running = new Set<Promise<void>>();
  #isClosing = false;

  constructor(options: RequestServerOptions) {
    this.#options = options;
    this.#listenFd = takePath(options.path);
    this.#wakeFd = succeed(eventfd(), "make a descriptor to wake a thread");
    this.#worker = new Worker(workerUrl("kernel/request-worker"));
    this.#worker.onmessage = (event: MessageEvent<RequestWorkerMessage>) => this.#receive(event.data);
    this.#worker.onerror = (event) => this.#end(event.message);
    const start: RequestWorkerStart = {
      listenFd: this.#listenFd,
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
      rmSync(this.#options.path, { force: true });
      writeSync(this.#wakeFd, Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    }
    await this.#closed.promise;
    await Promise.all(this.#running);
  }

  #receive(message: RequestWorkerMessage): void {
    if (message.type === "closed") return this.#end(message.failure);
    const { connection, text, descriptor } = message;
    const answering = this.#answer(connection, { text, ...(descriptor === undefined ? {} : { descriptor }) });
    this.#running.add(answering);
    void answering.finally(() => this.#running.delete(answering));
  }

  async #answer(connection: number, request: ReceivedRequest): Promise<void> {
    try {
      const encoded = new TextEncoder().encode(await this.#options.onRequest(request));
      const bytes = allocate(encoded.length);
      bytes.set(encoded);
      // A reply is far smaller than the socket's buffer: this never waits for the client to read.
      send(connection, bytes, bytes.length, 0);
    } catch (error) {
      this.#options.onFailure(error instanceof Error ? error : new Error(String(error)));
    } finally {
      close(connection);
    }
  }

  #end(failure: string | undefined): void {
    const isOurWish = this.#isClosing;
    this.#isClosing = true;
    this.#worker.terminate();
    close(this.#listenFd);
    close(this.#wakeFd);
    this.#closed.resolve();
    if (!isOurWish) this.#options.onFailure(new Error(`the socket's thread ended: ${failure ?? "no reason given"}`));
  }
}

/** Binds the path. What a dead process left there is taken over; a living one is not pushed aside. */
function takePath(path: string): number {
  mkdirSync(dirname(path), { recursive: true });
  const other = connectUnix(path, 1000);
  if (other !== undefined) {
    close(other);
    throw new Error(`${path}: another process answers there already`);
  }
  rmSync(path, { force: true });
  const fd = listenUnix(path);
  chmodSync(path, 0o600);
  return fd;
}
