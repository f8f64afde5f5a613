// Accepts clients, verifies their certificates, and limits their number. Each handshake has its own deadline and does not
// delay other clients. On shutdown the server disconnects clients gradually, so that they do not reconnect to the other
// servers all at once.
import { createServer as createPlainServer, type Server, type Socket } from "node:net";
import { createServer as createTlsServer, type Server as TlsServer, type TLSSocket } from "node:tls";
import type { SyncerName } from "../datastore/index.ts";
import type { Logger } from "../lib/log/log.ts";
import { RepeatedError } from "../lib/log/repeated-error.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { pause } from "../lib/retry.ts";
import { Connection, type ConnectionTimings } from "./connection.ts";
import { HANDSHAKE_LIMITS, type HandshakeLimits, PendingHandshakes } from "./pending-handshakes.ts";
import { ServerMetrics } from "./server-metrics.ts";
import type { SnapshotCache } from "./snapshot-cache.ts";
import { generationOf, loadContext, peerFault, type TlsSettings } from "./tls.ts";

export interface TyphaServerOptions {
  readonly caches: ReadonlyMap<SyncerName, SnapshotCache>;
  readonly host?: string;
  /** 0 = any free port. */
  readonly port: number;
  readonly tls?: TlsSettings;
  readonly timings?: Partial<ServerTimings>;
  readonly maxRecords?: number;
  readonly maxConnections?: number;
  readonly handshakeLimits?: HandshakeLimits;
  readonly log: Logger;
  readonly metrics?: MetricsRegistry;
  readonly version?: string;
  readonly env?: Readonly<Record<string, string | undefined>>;
  /** Interval between checks for renewed certificates. */
  readonly certificatePollMs?: number;
}
export interface ServerTimings extends ConnectionTimings {
  readonly dropIntervalMs: number;
  readonly shutdownMs: number;
  readonly shutdownDropIntervalMs: number;
}

const SERVER_TIMINGS: ServerTimings = {
  handshakeMs: 10_000,
  writeMs: 120_000,
  pingMs: 10_000,
  pongMs: 60_000,
  maxFallBehindMs: 300_000,
  newClientGraceMs: 300_000,
  dropIntervalMs: 1_000,
  shutdownMs: 300_000,
  shutdownDropIntervalMs: 1_000,
};
const CERTIFICATE_POLL_MS = 5_000;

/** Replaces invalid values: times must be positive, and the pong timeout more than twice the ping interval. */
export function validTimings(given: Partial<ServerTimings>): ServerTimings {
  const timings = Object.fromEntries(
    Object.entries(SERVER_TIMINGS).map(([name, usual]) => {
      const value = given[name as keyof ServerTimings];
      return [name, value === undefined || !(value > 0) ? usual : value];
    }),
  ) as unknown as ServerTimings;
  return timings.pongMs <= 2 * timings.pingMs ? { ...timings, pongMs: 6 * timings.pingMs } : timings;
}

export class TyphaServer {
  readonly metrics: ServerMetrics;
  readonly #options: TyphaServerOptions;
  readonly #timings: ServerTimings;
  readonly #connections = new Set<Connection>();
  readonly #handshakes: PendingHandshakes;
  readonly #refusal = new RepeatedError();
  #server: Server | undefined;
  #reload: Timer | undefined;
  #dropping: Timer | undefined;
  #maxConnections: number;
  #nextId = 1;

  constructor(options: TyphaServerOptions) {
    this.#options = options;
    this.#timings = validTimings(options.timings ?? {});
    this.#maxConnections = options.maxConnections ?? 10_000;
    this.#handshakes = new PendingHandshakes(options.handshakeLimits ?? HANDSHAKE_LIMITS, this.#timings.handshakeMs);
    this.metrics = new ServerMetrics(options.metrics ?? new MetricsRegistry(), options.caches);
  }

  get connectionCount(): number {
    return this.#connections.size;
  }
  get maxConnections(): number {
    return this.#maxConnections;
  }
  get port(): number {
    const address = this.#server?.address();
    return address !== null && typeof address === "object" ? address.port : 0;
  }

  async start(): Promise<void> {
    const { tls, host, port } = this.#options;
    const server = tls === undefined ? createPlainServer((socket) => this.#accept(socket)) : this.#secureServer(tls);
    this.#server = server;
    await new Promise<void>((resolve, reject) => {
      server.once("error", reject);
      server.listen(port, host === undefined || host === "" ? undefined : host, resolve);
    });
    this.#dropSurplus();
  }

  /** Clients above the limit are disconnected gradually, so that they connect to another server. */
  limitConnections(limit: number): void {
    this.#maxConnections = limit;
  }

  /** Disconnects all clients, distributed over the shutdown time. */
  async shutDown(signal?: AbortSignal): Promise<void> {
    clearTimeout(this.#dropping);
    this.#server?.close();
    const { shutdownMs, shutdownDropIntervalMs } = this.#timings;
    const count = this.#connections.size;
    const intervalMs = Math.min(shutdownDropIntervalMs, (0.95 * shutdownMs) / Math.max(1, count));
    const deadline = performance.now() + shutdownMs;
    while (this.#connections.size > 0 && performance.now() < deadline && signal?.aborted !== true) {
      this.#dropOne("the server is shutting down");
      if (this.#connections.size > 0) await pause(intervalMs * (0.95 + Math.random() / 10), signal);
    }
    await this.stop();
  }

  /** Closes all connections at once. */
  async stop(): Promise<void> {
    clearTimeout(this.#dropping);
    clearInterval(this.#reload);
    this.#server?.close();
    for (const connection of this.#connections) connection.close("the server is shutting down");
    this.#handshakes.destroyAll();
  }

  #secureServer(tls: TlsSettings): TlsServer {
    const { log, env = {} } = this.#options;
    const demands = { requestCert: true, rejectUnauthorized: true };
    const server = createTlsServer({ ...loadContext(tls, env), ...demands });
    // The runtime reports a late handshake but leaves the socket open.
    server.on("connection", (socket: Socket) => {
      const { remoteAddress: from } = socket;
      const message = "too many connections without a completed TLS handshake; refusing new ones";
      if (!this.#handshakes.add(socket) && this.#refusal.shouldLog(message)) log.warn(message, { from });
    });
    server.on("secureConnection", (socket: TLSSocket) => {
      this.#handshakes.complete(socket);
      const fault = socket.authorized ? peerFault(socket.getPeerCertificate(), tls) : "no valid certificate";
      if (fault === undefined) return this.#accept(socket);
      log.warn("rejected a client", { from: socket.remoteAddress, reason: fault });
      socket.destroy();
    });
    server.on("tlsClientError", (error, socket) => {
      log.info("TLS handshake failed", { from: socket.remoteAddress, error });
      socket.destroy();
    });
    let generation = generationOf(tls);
    this.#reload = setInterval(() => {
      const now = generationOf(tls);
      if (now === generation) return;
      try {
        server.setSecureContext({ ...loadContext(tls, env), ...demands } as Parameters<
          TlsServer["setSecureContext"]
        >[0]);
        generation = now;
        log.info("loaded the renewed certificate");
      } catch (error) {
        // The file may be incomplete while it is written: the next check tries again.
        log.warn("cannot use the renewed certificate; keeping the old one", { error });
      }
    }, this.#options.certificatePollMs ?? CERTIFICATE_POLL_MS);
    this.#reload.unref();
    return server;
  }

  #accept(socket: Socket): void {
    this.metrics.accepted++;
    const { caches, log, version = "", maxRecords = 100 } = this.#options;
    const connection: Connection = new Connection({
      id: String(this.#nextId++),
      socket,
      caches,
      timings: this.#timings,
      log,
      serverVersion: version,
      maxRecords,
      observer: {
        onHandshake: (c) => {
          const { hostname, syncer, info } = c.hello ?? { hostname: "", syncer: "", info: "" };
          log.info("client connected", { connection: c.id, hostname, syncer, info });
          this.metrics.onHandshake(c);
        },
        onSnapshotSent: (c, seconds) => this.metrics.onSnapshotSent(c, seconds),
        onWrite: (c, seconds, records) => this.metrics.onWrite(c, seconds, records),
        onLatency: (c, seconds) => this.metrics.onLatency(c, seconds),
        onPong: (c, seconds) => this.metrics.onPong(c, seconds),
        onGraceUsed: (c) => this.metrics.onGraceUsed(c),
        onClosed: (c, reason) => this.#onClosed(c, reason),
      },
    });
    this.#connections.add(connection);
    this.metrics.active = this.#connections.size;
  }

  #onClosed(connection: Connection, reason: string): void {
    this.#connections.delete(connection);
    this.metrics.active = this.#connections.size;
    if (connection.hello !== undefined) this.metrics.onStreamEnd(connection);
    this.#options.log.info("client disconnected", { connection: connection.id, reason });
  }

  #dropSurplus(): void {
    const { dropIntervalMs } = this.#timings;
    this.#dropping = setTimeout(
      () => {
        if (this.#connections.size > this.#maxConnections) {
          this.#dropOne("this server has too many clients");
          this.metrics.dropped++;
        }
        this.#dropSurplus();
      },
      dropIntervalMs * (1 + Math.random() / 10),
    );
    this.#dropping.unref();
  }

  #dropOne(reason: string): void {
    const index = Math.floor(Math.random() * this.#connections.size);
    let i = 0;
    for (const connection of this.#connections) if (i++ === index) return connection.close(reason);
  }
}
