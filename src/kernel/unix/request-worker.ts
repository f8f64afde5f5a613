// The worker thread of RequestServer: accepts connections and reads each request to its end, without blocking on a single
// client. Complete requests are posted to the main thread. Connections of other users are closed before anything is read.
import { closeSync } from "node:fs";
import { EINTR, errnoName } from "../sys/errno.ts";
import { accept, close, pollReadable } from "../sys/sys.ts";
import { peerCredentials } from "./unix-message.ts";
import { receiveChunk } from "./unix-server.ts";
import { createPeriodicGc } from "../sys/periodic-gc.ts";

export interface RequestWorkerStart {
  readonly listenFd: number;
  /** An eventfd. When it becomes readable, the thread reads the requests of connected clients and ends. */
  readonly stopFd: number;
  /** The only user whose requests are read. */
  readonly uid: number;
  /** A request that is longer or takes longer than this is dropped. */
  readonly maxBytes: number;
  readonly maxMs: number;
}

export type RequestWorkerMessage =
  | {
      readonly type: "request";
      readonly connection: number;
      readonly pid: number;
      readonly descriptor?: number;
      readonly text: string;
    }
  | { readonly type: "closed"; readonly failure?: string };

/** A request that has not been received completely. */
interface PartialRequest {
  readonly connection: number;
  readonly pid: number;
  readonly acceptedAtMs: number;
  readonly chunks: Uint8Array[];
  bytes: number;
  descriptor?: number;
}

/** Delay before the next accept() if no file descriptor is left. */
const ACCEPT_RETRY_MS = 20;

declare const self: Worker;

self.onmessage = (event: MessageEvent<RequestWorkerStart>) => {
  let failure: string | undefined;
  try {
    failure = serve(event.data);
  } catch (error) {
    failure = String(error);
  }
  post(failure === undefined ? { type: "closed" } : { type: "closed", failure });
};

/** Returns undefined when stopped, or a description of the error that made the socket unusable. */
function serve(start: RequestWorkerStart): string | undefined {
  const { listenFd, stopFd, maxMs } = start;
  const requests = new Map<number, PartialRequest>(); // by connection
  const collectGarbage = createPeriodicGc();
  let stoppingSinceMs: number | undefined;
  for (;;) {
    collectGarbage();
    const isStopping = stoppingSinceMs !== undefined;
    const watched = isStopping ? [listenFd, ...requests.keys()] : [listenFd, stopFd, ...requests.keys()];
    const readable = pollReadable(watched, requests.size > 0 ? maxMs : isStopping ? 0 : -1);
    if (typeof readable === "number") {
      if (readable === -EINTR) continue;
      return `poll: ${errnoName(-readable)}`;
    }
    if (stoppingSinceMs === undefined) {
      if (readable.includes(stopFd)) stoppingSinceMs = performance.now();
    } else if (requests.size + readable.length === 0 || performance.now() - stoppingSinceMs > maxMs) {
      for (const request of requests.values()) drop(request);
      return undefined;
    }
    if (readable.includes(listenFd)) {
      const accepted = acceptAll(start);
      for (const request of accepted)
        if (!readAvailable(request, start.maxBytes)) requests.set(request.connection, request);
      // If no descriptor is left, accept() fails and the listener stays readable: without a delay this loop would spin.
      if (accepted.length === 0) {
        if (isStopping) Bun.sleepSync(ACCEPT_RETRY_MS);
        else pollReadable([stopFd], ACCEPT_RETRY_MS);
      }
    }
    for (const connection of readable) {
      const request = requests.get(connection);
      if (request !== undefined && readAvailable(request, start.maxBytes)) requests.delete(connection);
    }
    dropSlow(requests, maxMs);
  }
}

function acceptAll({ listenFd, uid }: RequestWorkerStart): PartialRequest[] {
  const accepted: PartialRequest[] = [];
  for (;;) {
    const connection = accept(listenFd);
    if (connection < 0) return accepted;
    const peer = peerCredentials(connection);
    if (peer.uid !== uid) close(connection);
    else accepted.push({ connection, pid: peer.pid, acceptedAtMs: performance.now(), chunks: [], bytes: 0 });
  }
}

/** Reads what has arrived. Returns true if the request was posted or dropped. */
function readAvailable(request: PartialRequest, maxBytes: number): boolean {
  for (;;) {
    let chunk: ReturnType<typeof receiveChunk>;
    try {
      chunk = receiveChunk(request.connection);
    } catch {
      drop(request);
      return true;
    }
    if (chunk === undefined) return false;
    for (const descriptor of chunk.descriptors) {
      if (request.descriptor !== undefined) closeSync(request.descriptor); // only the last one counts
      request.descriptor = descriptor;
    }
    if (chunk.bytes.length === 0) {
      post({
        type: "request",
        connection: request.connection,
        pid: request.pid,
        descriptor: request.descriptor,
        text: new TextDecoder().decode(Buffer.concat(request.chunks)),
      });
      return true;
    }
    request.chunks.push(chunk.bytes);
    request.bytes += chunk.bytes.length;
    if (request.bytes > maxBytes) {
      drop(request);
      return true;
    }
  }
}

function dropSlow(requests: Map<number, PartialRequest>, maxMs: number): void {
  const now = performance.now();
  for (const [connection, request] of requests)
    if (now - request.acceptedAtMs > maxMs) {
      drop(request);
      requests.delete(connection);
    }
}

function drop({ connection, descriptor }: PartialRequest): void {
  close(connection);
  if (descriptor !== undefined) close(descriptor);
}

function post(message: RequestWorkerMessage): void {
  self.postMessage(message);
}
