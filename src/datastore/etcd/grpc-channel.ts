// Manages the connection to one etcd endpoint: opens it for the first call, and again after it was lost. Unary calls and
// watches share it. It uses the runtime's HTTP/2 directly: with the public gRPC library, a small transaction takes several
// times as long.
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect as connectTcp, isIP, type Socket } from "node:net";
import { checkServerIdentity, connect as connectTls, TLSSocket } from "node:tls";
import { type CallHandlers, GrpcCall } from "../../lib/http/grpc-call.ts";
import { yieldToEventLoop } from "../../lib/retry.ts";
import { checkTls } from "./certificates.ts";
import type { Endpoint, TlsMaterial } from "./endpoints.ts";
import { AttemptFailed, AttemptTimedOut, connectionFailure, failureOf, PingTimedOut } from "./failures.ts";

/** Time to open a connection. After it, the next call tries again. */
const CONNECT_MS = 10_000;
/**
 * A connection with open calls is checked this often with an HTTP/2 PING. etcd closes connections that send PINGs more
 * often than every 5 s (--grpc-keepalive-min-time) or, repeatedly, without an open call.
 */
const PING_INTERVAL_MS = 10_000;
/** A dead connection is destroyed within 17 s, so that a watch has resumed within 20 s. */
const PING_TIMEOUT_MS = 7_000;
/** Before a call on a connection from which nothing was received for this long, a PING must be answered. */
const IDLE_MS = 2_000;
/** Time for that PING: the caller has a deadline of some seconds, and a new connection needs a part of it. */
const IDLE_PING_TIMEOUT_MS = 2_000;
/** A call that waited at least this long, while nothing else was received, is a sign of a dead connection. */
const STALLED_MS = 1_000;

export interface CallTarget {
  readonly path: string;
  /** Session token; empty = none. */
  readonly token: string;
  /** The requested revision, for errors about it. */
  readonly revision?: number;
}

export interface CallLimits {
  readonly budgetMs: number;
  readonly signal?: AbortSignal;
}

export class GrpcChannel {
  readonly #endpoint: Endpoint;
  readonly #loadTls: () => TlsMaterial;
  #connection: Connection | undefined;
  #connecting: Promise<Connection> | undefined;

  /** @param loadTls called for every connection, because certificates may have been renewed */
  constructor(endpoint: Endpoint, loadTls: () => TlsMaterial) {
    this.#endpoint = endpoint;
    this.#loadTls = loadTls;
  }

  /** Sends one message and returns the answer. */
  async unary(target: CallTarget, message: Buffer, { budgetMs, signal }: CallLimits): Promise<Buffer> {
    const { promise, resolve, reject } = Promise.withResolvers<Buffer>();
    let connection = this.#ready;
    let call: GrpcCall | undefined;
    let answer: Buffer | undefined;
    const startedAt = performance.now();
    const onAbort = (): void => {
      reject(signal?.reason);
      connection?.dropIfStalledSince(startedAt, signal?.reason);
    };
    signal?.addEventListener("abort", onAbort, { once: true });
    const timer = setTimeout(() => {
      const what = connection === undefined ? "no connection in time" : "no answer in time";
      const failure = new AttemptTimedOut(what, connection !== undefined);
      reject(failure);
      connection?.dropIfStalledSince(startedAt, failure);
      connection?.retire();
    }, budgetMs);
    try {
      connection ??= await Promise.race([this.#connect(), promise.then(unreachable)]);
      call = connection.call(target, {
        onMessage: (bytes) => (answer = bytes),
        onEnd: (failure) => {
          if (failure !== undefined) reject(failure);
          else if (answer === undefined)
            reject(new AttemptFailed("the answer is empty; the server may not be etcd", true));
          else resolve(answer);
        },
      });
      call.sendLast(message);
      return await promise;
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
      call?.cancel(); // has no effect on a call that has ended
    }
  }

  /** Opens a streaming call. `budgetMs` limits only the time to connect. */
  async open(target: CallTarget, handlers: CallHandlers, { budgetMs, signal }: CallLimits): Promise<GrpcCall> {
    const { promise, reject } = Promise.withResolvers<never>();
    const onAbort = (): void => reject(signal?.reason);
    signal?.addEventListener("abort", onAbort, { once: true });
    const timer = setTimeout(() => reject(new AttemptTimedOut("no connection in time", false)), budgetMs);
    try {
      const connection = this.#ready ?? (await Promise.race([this.#connect(), promise]));
      return connection.call(target, handlers);
    } finally {
      clearTimeout(timer);
      signal?.removeEventListener("abort", onAbort);
    }
  }

  /** Closes the connection after the calls in flight have ended. */
  close(): void {
    this.#connection?.retire();
    this.#connecting?.then(
      (connection) => connection.retire(),
      () => {},
    );
  }

  get #ready(): Connection | undefined {
    const connection = this.#connection;
    return connection?.isUsable === true && connection.isFresh ? connection : undefined;
  }

  /** Concurrent callers share one attempt. */
  #connect(): Promise<Connection> {
    this.#connecting ??= this.#verifyOrOpen().finally(() => (this.#connecting = undefined));
    return this.#connecting;
  }

  async #verifyOrOpen(): Promise<Connection> {
    const idle = this.#connection;
    if (idle?.isUsable === true && (await idle.answersPing(IDLE_PING_TIMEOUT_MS))) return idle;
    idle?.retire(); // its open calls may continue until its own PINGs fail, which have a longer timeout
    return (this.#connection = new Connection(await openSession(this.#endpoint, this.#loadTls)));
  }
}

const unreachable = (): never => {
  throw new Error("answer received before the request was sent");
};

/** An established connection and the calls on it. */
class Connection {
  readonly #session: ClientHttp2Session;
  readonly #socket: Socket;
  readonly #calls = new Set<GrpcCall>();
  #isRetired = false;
  #receivedAt = performance.now();
  /** Runs while there are calls. */
  #pingTimer: Timer | undefined;

  constructor({ session, socket }: OpenSession) {
    this.#session = session;
    this.#socket = socket;
    session.on("goaway", () => this.retire());
    session.on("error", (error: Error) => this.#lose(error));
    session.on("close", () => this.#lose());
    session.unref(); // while a caller waits for an answer, its timer keeps the process running
  }

  get isUsable(): boolean {
    return !this.#isRetired && !this.#session.closed && !this.#session.destroyed;
  }

  /** False for a connection that was idle: the server or a firewall may have dropped its state. */
  get isFresh(): boolean {
    return performance.now() - this.#receivedAt <= IDLE_MS;
  }

  call({ path, token, revision = 0 }: CallTarget, { onMessage, onEnd }: CallHandlers): GrpcCall {
    const target = {
      path,
      ...(token === "" ? {} : { headers: { token } }),
      server: "etcd",
      toError: (code: number, message: string) => failureOf(code, message, revision),
    };
    const call = new GrpcCall(this.#session, target, {
      onMessage: (bytes) => {
        this.#receivedAt = performance.now();
        onMessage(bytes);
      },
      onEnd: (failure) => {
        this.#calls.delete(call);
        if (this.#calls.size === 0) clearTimeout(this.#pingTimer);
        if (this.#isRetired) this.retire();
        onEnd(failure);
      },
    });
    this.#calls.add(call);
    if (this.#calls.size === 1) this.#schedulePing();
    return call;
  }

  /** Accepts no more calls; closes the connection after its last one. */
  retire(): void {
    this.#isRetired = true;
    if (this.#calls.size === 0 && !this.#session.destroyed) this.#session.destroy();
  }

  /** Destroys the connection of a call that was given up, unless something else was received while it waited. */
  dropIfStalledSince(startedAt: number, reason: unknown): void {
    const isStalled = performance.now() - startedAt >= STALLED_MS && this.#receivedAt < startedAt;
    if (!isStalled || this.#session.destroyed) return;
    this.#session.destroy(reason instanceof Error ? reason : new Error(String(reason)));
  }

  /** Sends a PING; returns false if there is no answer in time. */
  async answersPing(timeoutMs: number): Promise<boolean> {
    let isAnswered = false as boolean;
    await new Promise<void>((resolve) => {
      const timer = setTimeout(resolve, timeoutMs);
      const onAnswer = (error: Error | null): void => {
        clearTimeout(timer);
        isAnswered = error === null;
        resolve();
      };
      if (this.#session.destroyed || !this.#session.ping(onAnswer)) onAnswer(new Error("the connection is closed"));
    });
    // If the event loop was blocked, the answer is still in the socket's buffer: the timer runs first.
    if (!isAnswered) await yieldToEventLoop();
    if (isAnswered) this.#receivedAt = performance.now();
    return isAnswered;
  }

  #schedulePing(): void {
    clearTimeout(this.#pingTimer);
    this.#pingTimer = setTimeout(async () => {
      const isAnswered = await this.answersPing(PING_TIMEOUT_MS);
      if (isAnswered && this.#calls.size > 0) this.#schedulePing();
      if (!isAnswered && !this.#session.destroyed)
        this.#session.destroy(new PingTimedOut(performance.now() - this.#receivedAt));
    }, PING_INTERVAL_MS);
    this.#pingTimer.unref();
  }

  #lose(cause?: Error): void {
    this.#isRetired = true;
    clearTimeout(this.#pingTimer);
    for (const call of this.#calls) call.onConnectionLost(cause);
    if (!this.#session.destroyed) this.#session.destroy();
    this.#socket.destroy(); // closing a session waits for data that a dead connection never transmits
  }
}

interface OpenSession {
  readonly session: ClientHttp2Session;
  readonly socket: Socket;
}

/**
 * Resolves when the server's HTTP/2 settings have been received: a server that rejects the client certificate reports it
 * only after the TLS handshake has succeeded on the client's side.
 */
async function openSession(endpoint: Endpoint, loadTls: () => TlsMaterial): Promise<OpenSession> {
  const { promise, resolve, reject } = Promise.withResolvers<OpenSession>();
  const socket = endpoint.secure ? secureSocket(endpoint, loadTls()) : connectTcp(addressOf(endpoint));
  const fail = (error: Error | undefined): void =>
    reject(connectionFailure(error?.message ?? "", endpoint, { wasSent: false, cause: error }));
  const onClose = (): void => void setImmediate(fail); // an error event with a better reason may follow
  socket.once("error", fail);
  socket.once("close", onClose);
  socket.once(endpoint.secure ? "secureConnect" : "connect", () => {
    if (socket instanceof TLSSocket && !socket.authorized) return fail(new Error(String(socket.authorizationError)));
    const session = connectHttp2(endpoint.url, { createConnection: () => socket });
    session.once("error", fail);
    session.once("close", onClose);
    session.once("remoteSettings", () => {
      for (const emitter of [session, socket]) {
        emitter.removeListener("error", fail);
        emitter.removeListener("close", onClose);
      }
      resolve({ session, socket });
    });
  });
  socket.setNoDelay(true);
  const timer = setTimeout(() => reject(new AttemptTimedOut("no connection in time", false)), CONNECT_MS);
  timer.unref();
  try {
    return await promise;
  } catch (error) {
    socket.on("error", () => {}); // the first error has been reported already
    socket.destroy();
    throw error;
  } finally {
    clearTimeout(timer);
  }
}

const addressOf = ({ host, port }: Endpoint): { readonly host: string; readonly port: number } => ({
  host: host.replace(/^\[|\]$/g, ""),
  port,
});

function secureSocket(endpoint: Endpoint, material: TlsMaterial): Socket {
  checkTls(material);
  const address = addressOf(endpoint);
  return connectTls({
    ...address,
    ...material,
    ALPNProtocols: ["h2"],
    // TLS does not allow an IP address as server name. The certificate is still checked against the address.
    servername: isIP(address.host) === 0 ? address.host : "etcd",
    checkServerIdentity: (_name, certificate) => checkServerIdentity(address.host, certificate),
  });
}
