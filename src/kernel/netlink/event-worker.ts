// The worker thread of EventMonitor: waits with poll(2), reads all queued datagrams without blocking, and posts their bytes
// to the main thread, which parses them. Because the thread does nothing else, the socket's queue stays short.
import { EAGAIN, EINTR, ENOBUFS, errnoName } from "../sys/errno.ts";
import { allocate, MSG_DONTWAIT, MSG_TRUNC, pollReadable, recv } from "../sys/sys.ts";
import { createPeriodicGc } from "../sys/periodic-gc.ts";

export interface EventWorkerStart {
  /** The netlink socket. */
  readonly fd: number;
  /** An eventfd. The thread ends when it becomes readable. */
  readonly stopFd: number;
  /** One Int32: the number of bytes that were posted and not yet parsed. */
  readonly pending: SharedArrayBuffer;
  /**
   * If `pending` would exceed this, the main thread is assumed to be blocked: events are dropped and an overrun is posted.
   */
  readonly pendingLimit: number;
}

export type EventWorkerMessage =
  | { readonly type: "datagrams"; readonly bytes: ArrayBuffer; readonly lengths: readonly number[] }
  | { readonly type: "overrun" }
  | { readonly type: "closed"; readonly failure?: string };

declare const self: Worker;
const MAX_DATAGRAM_BYTES = 256 * 1024;
/** Datagrams are collected up to this size, then posted. */
const BATCH_BYTES = 256 * 1024;

self.onmessage = (event: MessageEvent<EventWorkerStart>) => {
  let failure: string | undefined;
  try {
    failure = watch(event.data);
  } catch (error) {
    failure = String(error);
  }
  post(failure === undefined ? { type: "closed" } : { type: "closed", failure });
};

/** Returns undefined when stopped, or a description of the error that made the socket unusable. */
function watch({ fd, stopFd, pending, pendingLimit }: EventWorkerStart): string | undefined {
  const counter = new Int32Array(pending);
  const buffer = allocate(MAX_DATAGRAM_BYTES);
  const collectGarbage = createPeriodicGc();
  for (;;) {
    collectGarbage();
    const readable = pollReadable([fd, stopFd], -1);
    if (typeof readable === "number") {
      if (readable === -EINTR) continue;
      return `poll: ${errnoName(-readable)}`;
    }
    if (readable.includes(stopFd)) return undefined;
    const failure = drain(fd, buffer, counter, pendingLimit);
    if (failure !== undefined) return failure;
  }
}

function drain(fd: number, buffer: Uint8Array<ArrayBuffer>, counter: Int32Array, limit: number): string | undefined {
  const chunks: Uint8Array[] = [];
  const lengths: number[] = [];
  let total = 0;
  let isOverrun = false;
  for (;;) {
    const length = recv(fd, buffer, MSG_DONTWAIT | MSG_TRUNC);
    if (length === -EINTR) continue;
    if (length === -EAGAIN) break;
    if (length === -ENOBUFS || length > buffer.length) isOverrun = true;
    else if (length < 0) return `read events: ${errnoName(-length)}`;
    else {
      chunks.push(buffer.slice(0, length));
      lengths.push(length);
      total += length;
      if (total >= BATCH_BYTES) break; // poll returns at once for the rest
    }
  }
  if (Atomics.load(counter, 0) + total > limit) isOverrun = true;
  else if (total > 0) {
    Atomics.add(counter, 0, total);
    const bytes = new Uint8Array(total);
    let at = 0;
    for (const chunk of chunks) {
      bytes.set(chunk, at);
      at += chunk.length;
    }
    post({ type: "datagrams", bytes: bytes.buffer, lengths }, [bytes.buffer]);
  }
  if (isOverrun) post({ type: "overrun" });
  return undefined;
}

function post(message: EventWorkerMessage, transfer: ArrayBuffer[] = []): void {
  self.postMessage(message, transfer);
}
