// Implements a syncer that receives its updates from Typha. Updates between `begin` and `end` are applied only when the
// group is complete. After a reconnection, only the differences to the previous state are emitted; until then the state
// does not change.
import { connect as connectPlain, isIP, type Socket } from "node:net";
import { connect as connectTls, type TLSSocket } from "node:tls";
import {
  DedupeBuffer,
  OutageLog,
  type Syncer,
  type SyncerName,
  type SyncerSink,
  type SyncStatus,
  Unavailable,
} from "../datastore/index.ts";
import { describeError, type Logger, silentLogger } from "../lib/log/log.ts";
import { type Backoff, backoffDelay, pause } from "../lib/retry.ts";
import { KEEP_ALIVE_IDLE_MS } from "../lib/http/tcp-keepalive.ts";
import type { Key } from "../model/index.ts";
import { AttemptTracker, addressText, type TyphaAddress, TyphaUnreachable } from "./discovery.ts";
import {
  FEATURES,
  FRAME,
  type Frame,
  FrameReader,
  jsonFrame,
  MAX_SERVER_FRAME,
  parseJson,
  PREFACE,
  PROTOCOL_VERSION,
  ProtocolError,
} from "./protocol.ts";
import { decodeHead, type Decoded, decodeRecords } from "./records.ts";
import { loadContext, peerFault, type TlsSettings } from "./tls.ts";

export interface TyphaClientOptions {
  readonly syncer: SyncerName;
  readonly hostname: string;
  /** Description of this client, for the server's log. */
  readonly info?: string;
  readonly version?: string;
  readonly find: (refresh: boolean) => Promise<readonly TyphaAddress[]>;
  readonly tls?: TlsSettings;
  readonly readTimeoutMs?: number;
  /** Limit of the time in which the server does not read from the connection. */
  readonly writeTimeoutMs?: number;
  readonly dialTimeoutMs?: number;
  readonly retryMs?: number;
  readonly log?: Logger;
  /** Timeout of the first connection; by default none. */
  readonly firstConnectionTimeoutMs?: number;
  /** Keys for which it returns false are not passed on. */
  readonly accepts?: (key: Key) => boolean;
  readonly env?: Readonly<Record<string, string | undefined>>;
}

const READ_TIMEOUT_MS = 30_000;
const WRITE_TIMEOUT_MS = 10_000;
const DIAL_TIMEOUT_MS = 10_000;
const RETRY_MS = 100;
const PAUSE_MS = 1_000;
/** After sessions that ended before the client was in sync. Reconnecting at once would load the server without end. */
const UNSYNCED_BACKOFF: Backoff = { firstMs: 200, maxMs: 30_000 };
const MAX_HELLO_FRAME = 4096;
/** All servers have the same data, so failures of any of them are recorded under one name. */
const SERVER = "Typha";

export class TyphaSyncer implements Syncer {
  readonly #options: TyphaClientOptions;
  readonly #log: Logger;
  readonly #outages: OutageLog;

  constructor(options: TyphaClientOptions) {
    this.#options = options;
    this.#log = options.log ?? silentLogger;
    this.#outages = new OutageLog({ server: "Typha", log: options.log });
  }

  get viewAgeMs(): number {
    return this.#outages.viewAgeMs;
  }

  async run(sink: SyncerSink, signal: AbortSignal): Promise<void> {
    const buffer = new DedupeBuffer({ onUnreadable: (path, reason) => sink.onUnreadable?.(path, reason) });
    buffer.onStatus("wait-for-ready");
    using _outages = this.#outages;
    await Promise.all([buffer.run(sink, signal), this.#follow(buffer, signal)]);
  }

  async #follow(buffer: DedupeBuffer, signal: AbortSignal): Promise<void> {
    const tracker = new AttemptTracker(this.#options.find);
    const { firstConnectionTimeoutMs = Number.POSITIVE_INFINITY } = this.#options;
    let deadlineMs = performance.now() + firstConnectionTimeoutMs;
    let unsyncedSessions = 0;
    for (let hasSynced = false; !signal.aborted; deadlineMs = Number.POSITIVE_INFINITY) {
      const session = await this.#connect(tracker, buffer, hasSynced, deadlineMs, signal);
      if (session === undefined) return;
      let isInSync = false;
      void session.inSync.then(() => {
        isInSync = true;
        this.#outages.recordSuccess(SERVER);
      });
      const { reason, silentMs } = await session.finished;
      hasSynced ||= session.hasSynced;
      tracker.markTried(session.address);
      if (signal.aborted) return;
      this.#log.warn("connection to Typha lost", { address: session.address, reason });
      this.#outages.recordFailure(SERVER, new Unavailable(session.address, reason, { silentMs }));
      buffer.onStatus("wait-for-ready");
      buffer.onRestart();
      unsyncedSessions = isInSync ? 0 : unsyncedSessions + 1;
      if (!isInSync) await pause(backoffDelay(UNSYNCED_BACKOFF, unsyncedSessions - 1), signal);
    }
  }

  /** Tries until a server answers. Returns undefined if the signal aborts first. */
  async #connect(
    tracker: AttemptTracker,
    buffer: DedupeBuffer,
    holdsSnapshot: boolean,
    deadlineMs: number,
    signal: AbortSignal,
  ): Promise<Session | undefined> {
    for (let attempt = 0; !signal.aborted; attempt++) {
      let address: TyphaAddress | undefined;
      try {
        address = await tracker.next(attempt === 0);
        const session = new Session(this.#options, address, buffer, holdsSnapshot, signal);
        await session.ready;
        this.#log.info("connected to Typha", { address: session.address });
        return session;
      } catch (error) {
        if (signal.aborted) return undefined;
        const where = address === undefined ? undefined : addressText(address);
        this.#log.warn("cannot connect to Typha", { address: where, error });
        this.#outages.recordFailure(SERVER, new Unavailable(where ?? SERVER, describeError(error), { cause: error }));
        if (performance.now() >= deadlineMs)
          throw new TyphaUnreachable(
            `no Typha server can be reached; last attempt${where === undefined ? "" : `: ${where}`}`,
            {
              cause: error,
            },
          );
        const isRoundOver = (attempt + 1) % tracker.attempts === 0;
        const waitMs = isRoundOver ? PAUSE_MS : (this.#options.retryMs ?? RETRY_MS);
        await pause(waitMs, signal);
      }
    }
    return undefined;
  }
}

interface SessionEnd {
  readonly reason: string;
  /** Time since the server last sent something. */
  readonly silentMs: number;
}

/** One connection to a server. */
class Session {
  readonly address: string;
  /** Resolves when the server has accepted the client. */
  readonly ready: Promise<void>;
  /** Resolves when the server's whole state has been received. */
  readonly inSync: Promise<void>;
  readonly finished: Promise<SessionEnd>;
  hasSynced: boolean;
  readonly #options: TyphaClientOptions;
  readonly #buffer: DedupeBuffer;
  readonly #socket: Socket;
  readonly #reader = new FrameReader({ maxFrame: MAX_SERVER_FRAME, allowCompressed: true });
  readonly #accept = Promise.withResolvers<void>();
  readonly #end = Promise.withResolvers<SessionEnd>();
  readonly #inSync = Promise.withResolvers<void>();
  #receivedAtMs = performance.now();
  readonly #pendingGroup: Decoded[] = [];
  readonly #signal: AbortSignal;
  readonly #onAbort = () => this.#close("stopped");
  #phase: "dialling" | "hello" | "streaming" | "closed" = "dialling";
  #status: SyncStatus = "resync";
  #inGroup = false;
  #holds: boolean;
  #goodbye = "";
  #timer: Timer | undefined;

  constructor(
    options: TyphaClientOptions,
    address: TyphaAddress,
    buffer: DedupeBuffer,
    holdsSnapshot: boolean,
    signal: AbortSignal,
  ) {
    this.#options = options;
    this.#buffer = buffer;
    this.#holds = holdsSnapshot;
    this.hasSynced = holdsSnapshot;
    this.#signal = signal;
    this.address = addressText(address);
    this.ready = this.#accept.promise;
    this.finished = this.#end.promise;
    this.inSync = this.#inSync.promise;
    this.#socket = options.tls === undefined ? this.#dialPlain(address) : this.#dialTls(address, options.tls);
    this.#socket.on("data", (chunk: Buffer) => this.#receive(chunk));
    this.#socket.on("error", (error) => this.#close(error.message));
    this.#socket.on("close", () => this.#close("the server closed the connection"));
    this.#expect(options.dialTimeoutMs ?? DIAL_TIMEOUT_MS, "no connection in time");
    signal.addEventListener("abort", this.#onAbort, { once: true });
    if (signal.aborted) this.#close("stopped");
  }

  #dialPlain({ host, port }: TyphaAddress): Socket {
    return connectPlain({ host, port }, () => this.#greet());
  }

  #dialTls({ host, port }: TyphaAddress, tls: TlsSettings): Socket {
    // The chain is verified as usual. The name in the certificate must be the configured one, not the address.
    const name = isIP(host) === 0 ? { servername: host } : {};
    const context = loadContext(tls, this.#options.env);
    const socket: TLSSocket = connectTls(
      { host, port, ...context, ...name, rejectUnauthorized: true, checkServerIdentity: () => undefined },
      () => {
        const fault = socket.authorized ? peerFault(socket.getPeerCertificate(), tls) : "no valid certificate";
        if (fault === undefined) this.#greet();
        else this.#close(`the server's certificate is not Typha's: ${fault}`);
      },
    );
    return socket;
  }

  #greet(): void {
    if (this.#phase !== "dialling") return;
    this.#phase = "hello";
    this.#socket.setNoDelay(true);
    this.#socket.setKeepAlive(true, KEEP_ALIVE_IDLE_MS);
    const { syncer, hostname, info = "", version = "" } = this.#options;
    const hello = { version: PROTOCOL_VERSION, hostname, info, clientVersion: version, syncer, features: FEATURES };
    this.#socket.write(Buffer.concat([PREFACE, jsonFrame(FRAME.clientHello, hello)]));
    this.#expect(this.#options.readTimeoutMs ?? READ_TIMEOUT_MS, "the server is silent");
  }

  #receive(chunk: Buffer): void {
    if (this.#phase === "closed") return;
    this.#receivedAtMs = performance.now();
    this.#expect(this.#options.readTimeoutMs ?? READ_TIMEOUT_MS, "the server is silent");
    try {
      this.#reader.push(chunk);
      for (let frame = this.#nextFrame(); frame !== undefined && this.#isOpen(); frame = this.#nextFrame())
        this.#handle(frame);
    } catch (error) {
      if (!(error instanceof ProtocolError)) throw error;
      this.#close(error.message);
    }
  }

  /** Before the hello, a large frame is a sign of another protocol; waiting for it would take the whole read timeout. */
  #nextFrame(): Frame | undefined {
    return this.#phase === "hello" ? this.#reader.next(MAX_HELLO_FRAME) : this.#reader.next();
  }

  #handle({ type, payload }: Frame): void {
    if (type === FRAME.goodbye) {
      const { reason } = parseJson(payload);
      this.#goodbye = typeof reason === "string" ? reason : "";
      return this.#close("the server ended the connection");
    }
    if (this.#phase === "hello") {
      if (type !== FRAME.serverHello) throw new ProtocolError(`message ${type} before hello`);
      return this.#onHello(parseJson(payload));
    }
    switch (type) {
      case FRAME.ping:
        return this.#pong(payload);
      case FRAME.begin:
        this.#inGroup = true;
        return;
      case FRAME.updates:
        return this.#take(payload);
      case FRAME.crumb: {
        const { head, rest } = decodeHead(payload);
        this.#take(rest);
        if (!this.#inGroup) this.#commit(head.status);
        return;
      }
      case FRAME.end:
        this.#inGroup = false;
        return this.#commit(decodeHead(payload).head.status);
      default:
        throw new ProtocolError(`unexpected message ${type}`);
    }
  }

  #onHello({ version, syncer }: Readonly<Record<string, unknown>>): void {
    if (version !== PROTOCOL_VERSION)
      throw new ProtocolError(`the server uses protocol version ${JSON.stringify(version)}, want ${PROTOCOL_VERSION}`);
    if (syncer !== this.#options.syncer)
      throw new ProtocolError(`the server offers ${JSON.stringify(syncer)}, want ${this.#options.syncer}`);
    this.#phase = "streaming";
    this.#buffer.onStatus("resync");
    this.#accept.resolve();
  }

  #take(records: Buffer): void {
    const { accepts, log } = this.#options;
    const decoded = decodeRecords(records, {
      accepts,
      onUnknown: (path) => log?.debug("unknown key from Typha", { path }),
      onUnreadable: (path, reason) => this.#buffer.onUnreadable(path, reason),
    });
    // The first snapshot is applied in parts, because there is no earlier state. Later groups are applied as a whole.
    if (this.#inGroup && this.#holds) this.#pendingGroup.push(decoded);
    else this.#buffer.onUpdates(decoded.updates, decoded.paths);
  }

  #commit(status: SyncStatus): void {
    for (const { updates, paths } of this.#pendingGroup.splice(0)) this.#buffer.onUpdates(updates, paths);
    this.#holds = true;
    if (status === "in-sync") {
      this.hasSynced = true;
      this.#inSync.resolve();
    }
    // Updates may arrive before the server is ready: for consumers this is a resync in progress.
    const emitted = status === "wait-for-ready" ? "resync" : status;
    if (emitted !== this.#status) this.#buffer.onStatus((this.#status = emitted));
  }

  #pong(payload: Buffer): void {
    const { time } = parseJson(payload);
    if (this.#socket.writableNeedDrain) return; // a server that does not read needs no further pong
    if (this.#socket.write(jsonFrame(FRAME.pong, { time }))) return;
    const limitMs = this.#options.writeTimeoutMs ?? WRITE_TIMEOUT_MS;
    const deadline = setTimeout(() => this.#close("the server does not read"), limitMs);
    for (const event of ["drain", "close"]) this.#socket.once(event, () => clearTimeout(deadline));
  }

  /** Closes the connection with `reason` unless this is called again within the time. */
  #expect(ms: number, reason: string): void {
    clearTimeout(this.#timer);
    if (this.#isOpen()) this.#timer = setTimeout(() => this.#close(reason), ms);
  }

  #isOpen(): boolean {
    return this.#phase !== "closed";
  }

  #close(reason: string): void {
    if (this.#phase === "closed") return;
    this.#phase = "closed";
    clearTimeout(this.#timer);
    this.#signal.removeEventListener("abort", this.#onAbort);
    this.#socket.destroy();
    const why = this.#goodbye === "" ? reason : this.#goodbye;
    this.#accept.reject(new ProtocolError(why));
    this.#accept.promise.catch(() => {}); // avoids an unhandled rejection if nothing awaits `ready`
    this.#end.resolve({ reason: why, silentMs: performance.now() - this.#receivedAtMs });
  }
}
