// The thread that waits for the kernel: poll, read all there is without blocking, hand the bytes over. It knows
// nothing of what is in them. The kernel's queue stays short because this thread has nothing else to do.
import { EAGAIN, EINTR, ENOBUFS, errnoName } from "./errno.ts";
import { allocate, MSG_DONTWAIT, MSG_TRUNC, pollReadable, recv } from "./sys.ts";
import { collectNowAndThen } from "./worker-garbage.ts";

export interface EventWorkerStart {
  /** The netlink socket. */
  readonly fd: number;
  /** Readable when we shall end. */
  readonly wakeFd: number;
  /** One counter: bytes handed over and not yet looked at. */
  readonly pending: SharedArrayBuffer;
  /** More than this unread means the other side is stuck: then events are dropped and a resync is asked for. */
  readonly pendingLimit: number;
}

export type EventWorkerMessage =
  | { readonly type: "datagrams"; readonly bytes: ArrayBuffer; readonly lengths: readonly number[] }
  | { readonly type: "overrun" }
  | { readonly type: "closed"; readonly failure?: string };

declare const self: Worker;
const CHUNK = 256 * 1024;

self.onmessage = (event: MessageEvent<EventWorkerStart>) => {
  let failure: string | undefined;
  try {
    failure = watch(event.data);
  } catch (error) {
    failure = String(error);
  }
  post(failure === undefined ? { type: "closed" } : { type: "closed", failure });
};

/** Until woken (nothing) or until the socket fails (why). */
function watch({ fd, wakeFd, pending, pendingLimit }: EventWorkerStart): string | undefined {
  const counter = new Int32Array(pending);
  const buffer = allocate(CHUNK);
  const collect = collectNowAndThen();
  for (;;) {
    collect();
    const ready = pollReadable([fd, wakeFd], -1);
    if (typeof ready === "number") {
      if (ready === -EINTR) continue;
      return `poll: ${errnoName(-ready)}`;
    }
    if (ready.includes(1)) return undefined;
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
      if (total >= CHUNK) break; // hand over what there is; poll returns at once for the rest
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
