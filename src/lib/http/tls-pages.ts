// Serves pages over TLS to clients with the required certificate. HTTP is implemented here, as far as scrapers use it,
// because the runtime's HTTPS server does not expose client certificates, and node:tls itself supports only two client-auth
// modes: none, or require and verify.
import type { Socket } from "node:net";
import { createServer, type SecureContextOptions, type Server, type TLSSocket } from "node:tls";

/** Client-auth mode, named as in Go's crypto/tls, because settings use these names. Empty = NoClientCert. */
export type ClientAuth =
  | "RequireAndVerifyClientCert"
  | "RequireAnyClientCert"
  | "VerifyClientCertIfGiven"
  | "NoClientCert"
  | "";

export interface TlsPageServerOptions {
  readonly context: SecureContextOptions;
  readonly clientAuth: ClientAuth;
  readonly render: (path: string) => { readonly status: number; readonly body: string; readonly contentType?: string };
  readonly onHandshakeError?: (error: Error) => void;
  readonly handshakeMs?: number;
}

const MAX_REQUEST_BYTES = 16_384;
const HANDSHAKE_MS = 10_000;
const IDLE_MS = 30_000;
const MAX_CONNECTIONS = 1000;
const MAX_UNSENT_BYTES = 1 << 20;
const PLAIN_TEXT = "text/plain; charset=utf-8";

export class TlsPageServer {
  readonly server: Server;
  readonly #options: TlsPageServerOptions;
  readonly #sockets = new Set<TLSSocket>();
  /** By address and port of the client. */
  readonly #handshakeTimers = new Map<string, Timer>();

  constructor(options: TlsPageServerOptions) {
    this.#options = options;
    this.server = createServer(this.#tlsOptions(options.context), (socket) => this.#serve(socket));
    this.server.maxConnections = MAX_CONNECTIONS;
    // With its own timer, because the runtime reports a handshake timeout but leaves the socket open.
    this.server.on("connection", (socket: Socket) => this.#expectHandshake(socket));
    this.server.on("tlsClientError", (error) => options.onHandshakeError?.(error));
  }

  #expectHandshake(socket: Socket): void {
    const peer = peerOf(socket);
    const deadline = setTimeout(() => socket.destroy(), this.#options.handshakeMs ?? HANDSHAKE_MS);
    this.#handshakeTimers.set(peer, deadline);
    socket.once("close", () => {
      clearTimeout(deadline);
      this.#handshakeTimers.delete(peer);
    });
  }

  /** Applies to new connections. */
  setCertificate(context: SecureContextOptions): void {
    this.server.setSecureContext(this.#tlsOptions(context));
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.server.close();
  }

  #tlsOptions(context: SecureContextOptions) {
    const { clientAuth } = this.#options;
    return {
      minVersion: "TLSv1.2",
      ...context,
      requestCert: clientAuth !== "NoClientCert" && clientAuth !== "",
      rejectUnauthorized: clientAuth === "RequireAndVerifyClientCert",
    } as const;
  }

  /** Handles the requests of a connection sequentially. */
  #serve(socket: TLSSocket): void {
    clearTimeout(this.#handshakeTimers.get(peerOf(socket)));
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    let pending = "";
    socket.on("data", (chunk: Buffer) => {
      pending += chunk.toString("latin1");
      for (let end = pending.indexOf("\r\n\r\n"); end >= 0; end = pending.indexOf("\r\n\r\n")) {
        // A client that sends requests but does not read would make the responses accumulate in memory.
        if (socket.writableLength > MAX_UNSENT_BYTES) return void socket.destroy();
        const [line = ""] = pending.slice(0, end).split("\r\n");
        pending = pending.slice(end + 4);
        this.#reply(socket, line);
      }
      if (pending.length > MAX_REQUEST_BYTES) socket.destroy();
    });
  }

  #reply(socket: TLSSocket, line: string): void {
    const [method, path = ""] = line.split(" ");
    const isAllowed = method === "GET" && this.#isAuthorized(socket);
    const page = isAllowed
      ? this.#options.render(path.split("?")[0] ?? "")
      : { status: 401, body: "a client certificate is needed\n" };
    const bytes = Buffer.from(page.body);
    const head = [
      `HTTP/1.1 ${page.status} ${page.status === 200 ? "OK" : "Refused"}`,
      `content-type: ${("contentType" in page ? page.contentType : undefined) ?? PLAIN_TEXT}`,
      `content-length: ${bytes.length}`,
    ];
    socket.write(Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`), bytes]));
  }

  #isAuthorized(socket: TLSSocket): boolean {
    const hasCertificate = Object.keys(socket.getPeerCertificate() ?? {}).length > 0;
    switch (this.#options.clientAuth) {
      case "RequireAndVerifyClientCert":
        return socket.authorized;
      case "RequireAnyClientCert":
        return hasCertificate;
      case "VerifyClientCertIfGiven":
        return !hasCertificate || socket.authorized;
      default:
        return true;
    }
  }
}

const peerOf = ({ remoteAddress, remotePort }: Socket): string => `${remoteAddress} ${remotePort}`;
