// Serves one client: sends the snapshot, leaf by leaf, then each new crumb. If the crumbs after a slow client's position
// are no longer kept, sends all entries that changed since. Data is written only as fast as the client reads; nothing is
// queued for it.
//
// The state changes while a snapshot is sent, and its frames may be slightly out of date. The server therefore records the
// oldest sequence number that it has sent, then sends all changes since, and ends the group. A client applies whole groups
// only, so it never sees an inconsistent state (docs/typha-protocol.md).
import type { Socket } from "node:net";
import type { SyncerName } from "../datastore/index.ts";
import type { Logger } from "../lib/log/log.ts";
import {
  type ClientHello,
  type Feature,
  FEATURES,
  FRAME,
  FrameReader,
  frameBytes,
  isSyncerName,
  jsonFrame,
  MAX_CLIENT_FRAME,
  parseJson,
  PREFACE,
  PROTOCOL_VERSION,
  ProtocolError,
} from "./protocol.ts";
import type { TextUpdate } from "./records.ts";
import type { SnapshotCache } from "./snapshot-cache.ts";

export interface ConnectionTimings {
  readonly handshakeMs: number;
  readonly writeMs: number;
  readonly pingMs: number;
  readonly pongMs: number;
  readonly maxFallBehindMs: number;
  readonly newClientGraceMs: number;
}
export interface ConnectionObserver {
  onHandshake(connection: Connection): void;
  onSnapshotSent(connection: Connection, seconds: number): void;
  onWrite(connection: Connection, seconds: number, records: number): void;
  onLatency(connection: Connection, seconds: number): void;
  onPong(connection: Connection, seconds: number): void;
  onGraceUsed(connection: Connection): void;
  onClosed(connection: Connection, reason: string): void;
}
export interface ConnectionOptions {
  readonly id: string;
  readonly socket: Socket;
  readonly caches: ReadonlyMap<SyncerName, SnapshotCache>;
  readonly timings: ConnectionTimings;
  readonly observer: ConnectionObserver;
  readonly log: Logger;
  readonly serverVersion: string;
  /** Maximum number of records per catch-up frame. */
  readonly maxRecords: number;
  readonly now?: () => number;
}

const BEGIN = frameBytes(FRAME.begin, Buffer.alloc(0));
/** Crumbs are joined into one write up to about this size. */
const WRITE_SIZE = 64 << 10;

export class Connection {
  readonly id: string;
  readonly #options: ConnectionOptions;
  readonly #socket: Socket;
  readonly #reader = new FrameReader({ maxFrame: MAX_CLIENT_FRAME, allowCompressed: false });
  readonly #timers = new Set<Timer>();
  readonly #now: () => number;
  #phase: "preface" | "hello" | "streaming" | "closed" = "preface";
  #hello: ClientHello | undefined;
  #cache: SnapshotCache | undefined;
  #compress = false;
  #unsubscribe: () => void = () => {};
  /** The client has all changes up to this sequence number. */
  #sequence = 0;
  #sequenceTime = 0;
  #isPumping = false;
  #snapshotDoneAt: number | undefined;
  #graceUsed = false;
  #pongAt = 0;
  #wake: (() => void) | undefined;
  #closeReason = "";

  constructor(options: ConnectionOptions) {
    this.id = options.id;
    this.#options = options;
    this.#socket = options.socket;
    this.#now = options.now ?? Date.now;
    const { socket, timings } = options;
    socket.setNoDelay(true);
    socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    socket.on("drain", () => {
      this.#resume();
      this.#pump();
    });
    socket.on("error", (error) => this.close(error.message));
    socket.on("close", () => this.close("the client closed the connection"));
    this.#after(timings.handshakeMs, () => {
      if (this.#phase === "preface" || this.#phase === "hello") this.close("no hello in time");
    });
  }

  get hello(): ClientHello | undefined {
    return this.#hello;
  }
  get isClosed(): boolean {
    return this.#phase === "closed";
  }

  /** Closes the connection, after sending the reason if the client reads. */
  close(reason: string): void {
    if (this.#phase === "closed") return;
    const wasOpen = !this.#socket.destroyed;
    this.#phase = "closed";
    this.#closeReason = reason;
    this.#unsubscribe();
    for (const timer of this.#timers) clearTimeout(timer);
    // A client that does not read must not keep the connection open.
    if (wasOpen && this.#socket.writableLength === 0) this.#socket.end(jsonFrame(FRAME.goodbye, { reason }));
    if (wasOpen) setTimeout(() => this.#socket.destroy(), this.#socket.writableLength === 0 ? 1000 : 0).unref();
    this.#resume();
    this.#options.observer.onClosed(this, reason);
  }

  #receive(chunk: Buffer): void {
    if (this.#phase === "closed") return;
    try {
      this.#reader.push(chunk);
      if (this.#phase === "preface") {
        const preface = this.#reader.take(PREFACE.length);
        if (preface === undefined) return;
        if (!preface.equals(PREFACE)) throw new ProtocolError("the client uses another protocol");
        this.#phase = "hello";
      }
      for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next()) {
        if (this.#phase === "hello") {
          if (frame.type !== FRAME.clientHello) throw new ProtocolError(`message ${frame.type} before hello`);
          this.#onHello(parseJson(frame.payload));
        } else if (frame.type === FRAME.pong) this.#onPong(parseJson(frame.payload));
        else throw new ProtocolError(`unexpected message ${frame.type}`);
      }
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#options.log.info("rejected a client", { connection: this.id, reason: error.message });
      this.close(error.message);
    }
  }

  #onHello(message: Readonly<Record<string, unknown>>): void {
    const hello = checkHello(message);
    const cache = this.#options.caches.get(hello.syncer);
    if (cache === undefined) throw new ProtocolError(`this server does not serve the syncer ${hello.syncer}`);
    const features = FEATURES.filter((feature) => hello.features.includes(feature));
    this.#hello = hello;
    this.#cache = cache;
    this.#compress = features.includes("zstd");
    this.#phase = "streaming";
    this.#pongAt = this.#now();
    this.#options.observer.onHandshake(this);
    const { serverVersion, timings } = this.#options;
    const answer = { version: PROTOCOL_VERSION, serverVersion, syncer: hello.syncer, features, connectionId: this.id };
    this.#socket.write(jsonFrame(FRAME.serverHello, answer));
    this.#every(timings.pingMs, () => this.#ping());
    this.#every(timings.pingMs / 2, () => this.#checkAlive());
    void this.#run(cache);
  }

  async #run(cache: SnapshotCache): Promise<void> {
    const started = this.#now();
    try {
      await this.#sendSnapshot(cache);
    } catch (error) {
      this.#options.log.error("sending the snapshot failed", { connection: this.id, error });
      this.close("internal error");
    }
    if (this.isClosed) return;
    this.#snapshotDoneAt = this.#now();
    this.#options.observer.onSnapshotSent(this, (this.#snapshotDoneAt - started) / 1000);
    this.#unsubscribe = cache.subscribe(() => this.#pump());
    this.#pump();
  }

  async #sendSnapshot(cache: SnapshotCache): Promise<void> {
    await this.#write(BEGIN, 0);
    let path = "";
    let oldest = cache.head.sequence;
    for (let leaf = cache.leafAfter(path); leaf !== undefined; leaf = cache.leafAfter(path)) {
      const { bytes, sequence } = cache.leafFrame(leaf, this.#compress);
      oldest = Math.min(oldest, sequence);
      path = leaf.entries.at(-1)?.path ?? path;
      await this.#write(bytes, leaf.entries.length);
      if (this.isClosed) return;
    }
    await this.#endGroup(cache, oldest);
  }

  /** Sends every change after a sequence number, then ends the group that `begin` started. */
  async #endGroup(cache: SnapshotCache, after: number): Promise<void> {
    let from = after;
    while (!this.isClosed) {
      const crumbs = cache.crumbsAfter(from);
      if (crumbs !== undefined) {
        // Nothing newer than this head has been sent, so after these crumbs the client has exactly the head's state.
        const { head } = cache;
        for (const crumb of crumbs) await this.#write(crumb.frame.bytes(this.#compress), crumb.changes.length);
        this.#sequence = head.sequence;
        this.#sequenceTime = head.time;
        return this.#write(cache.endFrame(head), 0);
      }
      if (!cache.hasDeletionsAfter(from)) return this.close("fell too far behind");
      const to = cache.head.sequence;
      await this.#sendMany(cache, cache.deletionsAfter(from));
      let path = "";
      for (let leaf = cache.leafAfter(path); leaf !== undefined; leaf = cache.leafAfter(path)) {
        path = leaf.entries.at(-1)?.path ?? path;
        const since = from;
        if (leaf.sequence > since)
          await this.#sendMany(
            cache,
            leaf.entries.filter((e) => e.sequence > since),
          );
        if (this.isClosed) return;
      }
      from = to;
    }
  }

  async #sendMany(cache: SnapshotCache, updates: readonly TextUpdate[]): Promise<void> {
    const { maxRecords } = this.#options;
    for (let i = 0; i < updates.length && !this.isClosed; i += maxRecords) {
      const part = updates.slice(i, i + maxRecords);
      await this.#write(cache.updatesFrame(part, this.#compress), part.length);
    }
  }

  /** Sends crumbs until the socket's buffer is full; `drain` or the next crumb continues. */
  #pump(): void {
    const cache = this.#cache;
    if (this.#isPumping || this.#phase !== "streaming" || cache === undefined) return;
    if (this.#socket.writableNeedDrain) return this.#checkBehind(cache);
    const crumbs = cache.crumbsAfter(this.#sequence);
    if (crumbs?.length === 0) {
      cache.counts.waited++;
      return;
    }
    cache.counts.ready++;
    this.#isPumping = true;
    void this.#follow(cache).finally(() => {
      this.#isPumping = false;
      if (this.#phase === "streaming" && this.#sequence !== cache.head.sequence) this.#pump();
    });
  }

  async #follow(cache: SnapshotCache): Promise<void> {
    try {
      for (;;) {
        const crumbs = cache.crumbsAfter(this.#sequence);
        if (crumbs === undefined) {
          await this.#write(BEGIN, 0);
          await this.#endGroup(cache, this.#sequence);
        } else {
          const parts: Buffer[] = [];
          let [size, records] = [0, 0];
          let last = crumbs[0];
          for (const crumb of crumbs) {
            const bytes = crumb.frame.bytes(this.#compress);
            if (size > 0 && size + bytes.length > WRITE_SIZE) break;
            parts.push(bytes);
            size += bytes.length;
            records += crumb.changes.length;
            last = crumb;
          }
          if (last === undefined) return;
          this.#sequence = last.sequence;
          this.#sequenceTime = last.time;
          await this.#write(parts.length === 1 ? (parts[0] ?? Buffer.alloc(0)) : Buffer.concat(parts), records);
          this.#options.observer.onLatency(this, Math.max(0, this.#now() - last.time) / 1000);
        }
        if (this.#phase !== "streaming") return;
      }
    } catch (error) {
      this.#options.log.error("sending failed", { connection: this.id, error });
      this.close("internal error");
    }
  }

  /** Resolves when the socket accepts more data. Closes the connection if that takes longer than `writeMs`. */
  async #write(bytes: Buffer, records: number): Promise<void> {
    if (this.#phase === "closed") return;
    const started = performance.now();
    if (!this.#socket.write(bytes)) {
      const deadline = this.#after(this.#options.timings.writeMs, () => this.close("the client does not read"));
      await new Promise<void>((resolve) => (this.#wake = resolve));
      this.#cancel(deadline);
    }
    if (records > 0) this.#options.observer.onWrite(this, (performance.now() - started) / 1000, records);
    const cache = this.#cache;
    if (cache !== undefined) this.#checkBehind(cache);
  }

  #resume(): void {
    this.#wake?.();
    this.#wake = undefined;
  }

  #checkBehind(cache: SnapshotCache): void {
    if (this.#snapshotDoneAt === undefined || this.#phase !== "streaming") return;
    const { maxFallBehindMs, newClientGraceMs } = this.#options.timings;
    if (this.#sequence === cache.head.sequence || cache.head.time - this.#sequenceTime <= maxFallBehindMs) return;
    if (this.#now() - this.#snapshotDoneAt > newClientGraceMs) return this.close("fell too far behind");
    if (!this.#graceUsed) this.#options.observer.onGraceUsed(this);
    this.#graceUsed = true;
  }

  #ping(): void {
    // If the buffer is full, a ping would only be queued; a client that does not read is detected by its missing pongs.
    if (!this.#socket.writableNeedDrain) this.#socket.write(jsonFrame(FRAME.ping, { time: this.#now() }));
  }

  #onPong(message: Readonly<Record<string, unknown>>): void {
    this.#pongAt = this.#now();
    if (typeof message["time"] === "number")
      this.#options.observer.onPong(this, Math.max(0, this.#pongAt - message["time"]) / 1000);
  }

  #checkAlive(): void {
    if (this.#now() - this.#pongAt > this.#options.timings.pongMs) return this.close("no pong received");
    if (this.#cache !== undefined) this.#checkBehind(this.#cache);
  }

  #after(ms: number, run: () => void): Timer {
    const timer = setTimeout(() => {
      this.#timers.delete(timer);
      run();
    }, ms);
    this.#timers.add(timer);
    return timer;
  }

  /** Adds up to a tenth to each interval, so that the timers of clients do not coincide. */
  #every(ms: number, run: () => void): void {
    this.#after(ms * (1 + Math.random() / 10), () => {
      run();
      if (this.#phase !== "closed") this.#every(ms, run);
    });
  }

  #cancel(timer: Timer): void {
    clearTimeout(timer);
    this.#timers.delete(timer);
  }

  get closeReason(): string {
    return this.#closeReason;
  }
}

function checkHello(message: Readonly<Record<string, unknown>>): ClientHello {
  const { version, syncer, features, hostname, info, clientVersion } = message;
  if (version !== PROTOCOL_VERSION)
    throw new ProtocolError(`protocol version ${JSON.stringify(version)}: this server uses ${PROTOCOL_VERSION}`);
  const name = syncer === undefined || syncer === "" ? "felix" : syncer;
  if (!isSyncerName(name)) throw new ProtocolError(`unknown syncer ${JSON.stringify(syncer)}`);
  const known = Array.isArray(features) ? features.filter((feature) => typeof feature === "string") : [];
  if (!known.includes("policy-kinds" satisfies Feature))
    throw new ProtocolError("the client does not support policies by kind; upgrade it");
  const text = (value: unknown) => (typeof value === "string" ? value.slice(0, 256) : "");
  return {
    version,
    syncer: name,
    features: known,
    hostname: text(hostname),
    info: text(info),
    clientVersion: text(clientVersion),
  };
}
