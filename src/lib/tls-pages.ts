// Pages over TLS, told only to who may read them. The few words of HTTP a scraper speaks are answered here: the runtime's
// own HTTPS server tells nothing about client certificates, and of the modes between none and all TLS knows none.
import type { Socket } from "node:net";
import { createServer, type SecureContextOptions, type Server, type TLSSocket } from "node:tls";

/** What is asked of who reads: Go's names, which settings have. Empty is none. */
export type ClientAuth =
  | "RequireAndVerifyClientCert"
  | "RequireAnyClientCert"
  | "VerifyClientCertIfGiven"
  | "NoClientCert"
  | "";

export interface TlsPagesOptions {
  readonly context: SecureContextOptions;
  readonly clientAuth: ClientAuth;
  readonly answer: (path: string) => { readonly status: number; readonly body: string; readonly contentType?: string };
  readonly onTurnedAway?: (error: Error) => void;
  readonly handshakeMs?: number;
}

const LONGEST_REQUEST = 16_384;
const HANDSHAKE_MS = 10_000;
const IDLE_MS = 30_000;
const MOST_CONNECTIONS = 1000;
const MOST_UNREAD = 1 << 20;
const PLAIN_TEXT = "text/plain; charset=utf-8";

export class TlsPages {
  readonly server: Server;
  readonly #options: TlsPagesOptions;
  readonly #sockets = new Set<TLSSocket>();
  /** Deadlines of handshakes, by who is at the other end. */
  readonly #unproved = new Map<string, Timer>();

  constructor(options: TlsPagesOptions) {
    this.#options = options;
    this.server = createServer(this.#withDemands(options.context), (socket) => this.#serve(socket));
    this.server.maxConnections = MOST_CONNECTIONS;
    // Deadlines are ours: the runtime reports a late handshake but leaves the socket open.
    this.server.on("connection", (socket: Socket) => this.#expectHandshake(socket));
    this.server.on("tlsClientError", (error) => options.onTurnedAway?.(error));
  }

  #expectHandshake(socket: Socket): void {
    const peer = peerOf(socket);
    const deadline = setTimeout(() => socket.destroy(), this.#options.handshakeMs ?? HANDSHAKE_MS);
    this.#unproved.set(peer, deadline);
    socket.once("close", () => {
      clearTimeout(deadline);
      this.#unproved.delete(peer);
    });
  }

  /** Another certificate from now on. */
  renew(context: SecureContextOptions): void {
    this.server.setSecureContext(this.#withDemands(context));
  }

  close(): void {
    for (const socket of this.#sockets) socket.destroy();
    this.server.close();
  }

  #withDemands(context: SecureContextOptions) {
    const { clientAuth } = this.#options;
    return {
      minVersion: "TLSv1.2",
      ...context,
      requestCert: clientAuth !== "NoClientCert" && clientAuth !== "",
      rejectUnauthorized: clientAuth === "RequireAndVerifyClientCert",
    } as const;
  }

  /** One request after the other, until the reader has enough. */
  #serve(socket: TLSSocket): void {
    clearTimeout(this.#unproved.get(peerOf(socket)));
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    let pending = "";
    socket.on("data", (chunk: Buffer) => {
      pending += chunk.toString("latin1");
      for (let end = pending.indexOf("\r\n\r\n"); end >= 0; end = pending.indexOf("\r\n\r\n")) {
        // Whoever asks on without reading would have us keep all answers.
        if (socket.writableLength > MOST_UNREAD) return void socket.destroy();
        const [line = ""] = pending.slice(0, end).split("\r\n");
        pending = pending.slice(end + 4);
        this.#reply(socket, line);
      }
      if (pending.length > LONGEST_REQUEST) socket.destroy();
    });
  }

  #reply(socket: TLSSocket, line: string): void {
    const [method, path = ""] = line.split(" ");
    const isAllowed = method === "GET" && this.#mayAsk(socket);
    const answer = isAllowed
      ? this.#options.answer(path.split("?")[0] ?? "")
      : { status: 401, body: "a client certificate is needed\n" };
    const bytes = Buffer.from(answer.body);
    const head = [
      `HTTP/1.1 ${answer.status} ${answer.status === 200 ? "OK" : "Refused"}`,
      `content-type: ${("contentType" in answer ? answer.contentType : undefined) ?? PLAIN_TEXT}`,
      `content-length: ${bytes.length}`,
    ];
    socket.write(Buffer.concat([Buffer.from(`${head.join("\r\n")}\r\n\r\n`), bytes]));
  }

  #mayAsk(socket: TLSSocket): boolean {
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
