// Serves a Unix socket with one request and one reply per connection. A request may include a file descriptor. Only
// processes of the server's own user (root) are served. A worker thread accepts connections and reads requests.
//
// Until the reply is ready, a space is sent every second as a keepalive, by the thread that handles the request: the client
// detects a server that has stopped or hangs. A request whose client has disconnected before it is handled, because this
// process was stopped for a while, is dropped.
import { writeSync } from "node:fs";
import { checkSyscall } from "../sys/kernel-error.ts";
import type { RequestWorkerMessage, RequestWorkerStart } from "./request-worker.ts";
import { ExclusiveListener } from "./exclusive-listener.ts";
import { allocate, close, eventfd, poll, send } from "../sys/sys.ts";
import { workerUrl } from "../sys/worker-url.ts";

const MAX_REQUEST_BYTES = 4 << 20;
const MAX_REQUEST_MS = 2000;
const KEEPALIVE_INTERVAL_MS = 1000;
/** After three minutes, the handler is assumed to hang. */
const MAX_KEEPALIVES = 180;
const KEEPALIVE = Uint8Array.of(0x20);

export interface ReceivedRequest {
  readonly text: string;
  /** The handler closes it. */
  readonly descriptor?: number;
  readonly isCallerConnected: () => boolean;
  /** Undefined if the caller is in a PID namespace that is not visible from this process. */
  readonly pid?: number;
}

export interface RequestServerOptions {
  readonly path: string;
  /** Returns the text of the reply. If it rejects, the connection is closed without a reply. */
  readonly onRequest: (request: ReceivedRequest) => Promise<string>;
  /** Called if `onRequest` rejects, and if the server has ended because of an error. */
  readonly onFailure: (error: Error) => void;
  readonly keepaliveIntervalMs?: number;
}

export class RequestServer implements AsyncDisposable {
  readonly #options: RequestServerOptions;
  readonly #listener: ExclusiveListener;
  readonly #stopFd: number;
  readonly #worker: Worker;
  readonly #closed = Promise.withResolvers<void>();
  readonly #running = new Set<Promise<void>>();
  #isClosing = false;

  /** @throws SocketInUse */
  constructor(options: RequestServerOptions) {
    this.#options = options;
    this.#listener = ExclusiveListener.open(options.path);
    this.#stopFd = checkSyscall(eventfd(), "create an eventfd");
    this.#worker = new Worker(workerUrl("kernel/unix/request-worker"));
    this.#worker.onmessage = (event: MessageEvent<RequestWorkerMessage>) => this.#receive(event.data);
    this.#worker.onerror = (event) => this.#end(event.message);
    const start: RequestWorkerStart = {
      listenFd: this.#listener.fd,
      stopFd: this.#stopFd,
      uid: process.getuid?.() ?? 0,
      maxBytes: MAX_REQUEST_BYTES,
      maxMs: MAX_REQUEST_MS,
    };
    this.#worker.postMessage(start);
  }

  /** Accepts no new connections, and waits until the requests of connected clients have been answered. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (!this.#isClosing) {
      this.#isClosing = true;
      this.#listener.removeSocket();
      writeSync(this.#stopFd, Uint8Array.of(1, 0, 0, 0, 0, 0, 0, 0));
    }
    await this.#closed.promise;
    await Promise.all(this.#running);
  }

  #receive(message: RequestWorkerMessage): void {
    if (message.type === "closed") return this.#end(message.failure);
    const { connection, text, descriptor, pid } = message;
    const isCallerConnected = (): boolean => !hasHungUp(connection);
    if (!isCallerConnected()) {
      if (descriptor !== undefined) close(descriptor);
      close(connection);
      return;
    }
    const request = {
      text,
      isCallerConnected,
      ...(pid === 0 ? {} : { pid }),
      descriptor,
    };
    const handled = this.#handle(connection, request);
    this.#running.add(handled);
    void handled.finally(() => this.#running.delete(handled));
  }

  async #handle(connection: number, request: ReceivedRequest): Promise<void> {
    let sent = 0;
    const keepalives = setInterval(() => {
      send(connection, KEEPALIVE, 1, 0);
      if (++sent === MAX_KEEPALIVES) clearInterval(keepalives);
    }, this.#options.keepaliveIntervalMs ?? KEEPALIVE_INTERVAL_MS);
    try {
      const encoded = new TextEncoder().encode(await this.#options.onRequest(request));
      const bytes = allocate(encoded.length);
      bytes.set(encoded);
      // Does not block: a reply is much smaller than the socket's send buffer.
      send(connection, bytes, bytes.length, 0);
    } catch (error) {
      this.#options.onFailure(error instanceof Error ? error : new Error(String(error)));
    } finally {
      clearInterval(keepalives);
      close(connection);
    }
  }

  #end(failure: string | undefined): void {
    const wasRequested = this.#isClosing;
    this.#isClosing = true;
    this.#worker.terminate();
    close(this.#listener.fd);
    close(this.#stopFd);
    this.#closed.resolve();
    if (!wasRequested)
      this.#options.onFailure(new Error(`worker thread of the socket ended: ${failure ?? "no reason given"}`));
  }
}

/** Returns whether the peer has closed the connection (POLLHUP), not only shut down its sending side. */
function hasHungUp(connection: number): boolean {
  const events = poll([{ fd: connection, events: 0 }], 0);
  return typeof events !== "number" && events[0] !== 0;
}
