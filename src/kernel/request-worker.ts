// The thread that accepts: each connection is read to its end here, without ever blocking on one client, and handed
// over whole. Who may not ask is dropped before a byte is read.
import { closeSync } from "node:fs";
import { EINTR, errnoName } from "./errno.ts";
import { accept, close, pollReadable } from "./sys.ts";
import { peerOf } from "./unix-message.ts";
import { receivePiece } from "./unix-socket.ts";
import { collectNowAndThen } from "./worker-garbage.ts";

export interface RequestWorkerStart {
  readonly listenFd: number;
  /** Readable when we shall end. */
  readonly wakeFd: number;
  /** Only this user may ask. */
  readonly uid: number;
  /** A request longer than this, or slower, is dropped. */
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

interface Reading {
  readonly pid: number;
  readonly chunks: Uint8Array[];
  readonly since: number;
  bytes: number;
  descriptor?: number;
}

const FULL_PAUSE_MS = 20;

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

/** When it shall end, who has connected already is still read and handed over. */
function serve(start: RequestWorkerStart): string | undefined {
  const readings = new Map<number, Reading>();
  const collect = collectNowAndThen();
  let closingSince: number | undefined;
  for (;;) {
    collect();
    const connections = [...readings.keys()];
    const isClosing = closingSince !== undefined;
    const waitMs = connections.length > 0 ? start.maxMs : isClosing ? 0 : -1;
    const ready = pollReadable([isClosing ? start.listenFd : start.wakeFd, start.listenFd, ...connections], waitMs);
    if (typeof ready === "number") {
      if (ready === -EINTR) continue;
      return `poll: ${errnoName(-ready)}`;
    }
    if (closingSince === undefined) {
      if (ready.includes(0)) closingSince = performance.now();
    } else if (connections.length + ready.length === 0 || performance.now() - closingSince > start.maxMs) {
      for (const [fd, reading] of readings) drop(fd, reading);
      return undefined;
    }
    if (ready.includes(1)) {
      const accepted = acceptAll(start);
      for (const [fd, reading] of accepted) // mostly all of it has come with the connection
        if (!readSome(fd, reading, start.maxBytes)) readings.set(fd, reading);
      // With no descriptor left nobody can be let in, and the socket stays readable: asking at once again would spin.
      if (accepted.length === 0) {
        if (isClosing) Bun.sleepSync(FULL_PAUSE_MS);
        else pollReadable([start.wakeFd], FULL_PAUSE_MS);
      }
    }
    for (const index of ready) {
      const fd = index < 2 ? undefined : connections[index - 2];
      const reading = fd === undefined ? undefined : readings.get(fd);
      if (fd === undefined || reading === undefined) continue;
      if (readSome(fd, reading, start.maxBytes)) readings.delete(fd);
    }
    const now = performance.now();
    for (const [fd, reading] of readings)
      if (now - reading.since > start.maxMs) {
        drop(fd, reading);
        readings.delete(fd);
      }
  }
}

function acceptAll(start: RequestWorkerStart): [fd: number, reading: Reading][] {
  const accepted: [number, Reading][] = [];
  for (;;) {
    const fd = accept(start.listenFd);
    if (fd < 0) return accepted;
    const { pid, uid } = peerOf(fd);
    if (uid === start.uid) accepted.push([fd, { pid, chunks: [], since: performance.now(), bytes: 0 }]);
    else close(fd);
  }
}

/** Whether the connection is done with here: handed over or dropped. */
function readSome(fd: number, reading: Reading, maxBytes: number): boolean {
  for (;;) {
    let piece: ReturnType<typeof receivePiece>;
    try {
      piece = receivePiece(fd);
    } catch {
      drop(fd, reading);
      return true;
    }
    if (piece === undefined) return false;
    for (const descriptor of piece.descriptors) {
      if (reading.descriptor !== undefined) closeSync(reading.descriptor);
      reading.descriptor = descriptor;
    }
    if (piece.bytes.length === 0) {
      post({
        type: "request",
        connection: fd,
        pid: reading.pid,
        ...(reading.descriptor === undefined ? {} : { descriptor: reading.descriptor }),
        text: new TextDecoder().decode(Buffer.concat(reading.chunks)),
      });
      return true;
    }
    reading.chunks.push(piece.bytes);
    reading.bytes += piece.bytes.length;
    if (reading.bytes > maxBytes) {
      drop(fd, reading);
      return true;
    }
  }
}

function drop(fd: number, reading: Reading): void {
  close(fd);
  if (reading.descriptor !== undefined) close(reading.descriptor);
}

function post(message: RequestWorkerMessage): void {
  self.postMessage(message);
}
