// Gives metrics to scrapers, in the clear or over TLS. Certificates are read again whenever their files change, so that
// a renewed one needs no restart. Over TLS the few words of HTTP a scraper speaks are answered here: the runtime's own
// HTTPS server tells nothing about client certificates.
import { type FSWatcher, readFileSync, watch } from "node:fs";
import { createServer as createHttpServer, type Server } from "node:http";
import { dirname } from "node:path";
import { createServer as createTlsServer, type Server as TlsServer, type TLSSocket, type TlsOptions } from "node:tls";
import { describeError, type Logger } from "../../lib/log.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";
import type { FelixConfig } from "../config/index.ts";

export type MetricsSettings = Pick<
  FelixConfig,
  | "PrometheusMetricsHost"
  | "PrometheusMetricsPort"
  | "PrometheusMetricsCAFile"
  | "PrometheusMetricsCertFile"
  | "PrometheusMetricsKeyFile"
  | "PrometheusMetricsClientAuth"
>;
const RETRY_MS = 1000;
const LONGEST_REQUEST = 16_384;
const IDLE_MS = 30_000;
const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

export class MetricsServer {
  readonly #registry: MetricsRegistry;
  readonly #settings: MetricsSettings;
  readonly #log: Logger;
  readonly #sockets = new Set<TLSSocket>();
  #server: Server | TlsServer | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #watches: FSWatcher[] = [];

  constructor(registry: MetricsRegistry, settings: MetricsSettings, log: Logger) {
    this.#registry = registry;
    this.#settings = settings;
    this.#log = log;
  }

  /** The port it listens on, once it does. */
  get port(): number | undefined {
    const address = this.#server?.address();
    return typeof address === "object" && address !== null ? address.port : undefined;
  }

  start(): void {
    const { PrometheusMetricsPort: port, PrometheusMetricsHost: host } = this.#settings;
    try {
      this.#server = this.#isTls ? this.#tlsServer() : this.#plainServer();
    } catch (error) {
      return this.#again(error);
    }
    this.#server.on("error", (error) => this.#again(error));
    this.#server.listen(port, host === "" ? undefined : host);
  }

  close(): void {
    clearTimeout(this.#retry);
    for (const each of this.#watches) each.close();
    for (const socket of this.#sockets) socket.destroy();
    this.#server?.close();
  }

  get #isTls(): boolean {
    return this.#settings.PrometheusMetricsCertFile !== "" || this.#settings.PrometheusMetricsKeyFile !== "";
  }

  #plainServer(): Server {
    return createHttpServer((request, response) => {
      const { status, body } = this.#answer(request.url ?? "");
      response.writeHead(status, { "content-type": CONTENT_TYPE }).end(body);
    });
  }

  #tlsServer(): TlsServer {
    const server = createTlsServer(this.#tlsOptions(), (socket) => this.#serve(socket));
    server.on("tlsClientError", (error) =>
      this.#log.debug("a scraper was turned away", { error: describeError(error) }),
    );
    const {
      PrometheusMetricsCertFile: cert,
      PrometheusMetricsKeyFile: key,
      PrometheusMetricsCAFile: ca,
    } = this.#settings;
    const reload = () => {
      try {
        server.setSecureContext(this.#tlsOptions());
      } catch (error) {
        this.#log.warn("the metrics certificate cannot be read; the old one stays", { error: describeError(error) });
      }
    };
    // Secrets are replaced by renaming whole folders: the folder tells, the file itself would not.
    const folders = new Set([cert, key, ca].filter((file) => file !== "").map(dirname));
    this.#watches = [...folders].map((folder) => watch(folder, { persistent: false }, reload));
    return server;
  }

  #tlsOptions(): TlsOptions {
    const settings = this.#settings;
    const mode = settings.PrometheusMetricsClientAuth;
    const ca = settings.PrometheusMetricsCAFile;
    return {
      cert: readFileSync(settings.PrometheusMetricsCertFile),
      key: readFileSync(settings.PrometheusMetricsKeyFile),
      ...(ca !== "" && { ca: readFileSync(ca) }),
      requestCert: mode !== "NoClientCert" && mode !== "",
      rejectUnauthorized: mode === "RequireAndVerifyClientCert",
    };
  }

  /** One request after the other, until the scraper has enough. */
  #serve(socket: TLSSocket): void {
    this.#sockets.add(socket);
    socket.on("close", () => this.#sockets.delete(socket));
    socket.on("error", () => socket.destroy());
    socket.setTimeout(IDLE_MS, () => socket.destroy());
    let pending = "";
    socket.on("data", (chunk: Buffer) => {
      pending += chunk.toString("latin1");
      for (let end = pending.indexOf("\r\n\r\n"); end >= 0; end = pending.indexOf("\r\n\r\n")) {
        const [line = ""] = pending.slice(0, end).split("\r\n");
        pending = pending.slice(end + 4);
        const [method, path = ""] = line.split(" ");
        const isAllowed = method === "GET" && this.#mayAsk(socket);
        const { status, body } = isAllowed
          ? this.#answer(path)
          : { status: 401, body: "a client certificate is needed\n" };
        const bytes = Buffer.from(body);
        socket.write(
          `HTTP/1.1 ${status} ${status === 200 ? "OK" : "Refused"}\r\ncontent-type: ${CONTENT_TYPE}\r\ncontent-length: ${bytes.length}\r\n\r\n`,
        );
        socket.write(bytes);
      }
      if (pending.length > LONGEST_REQUEST) socket.destroy();
    });
  }

  #answer(url: string): { readonly status: number; readonly body: string } {
    if (url.split("?")[0] !== "/metrics") return { status: 404, body: "try /metrics\n" };
    return { status: 200, body: this.#registry.render() };
  }

  /** The modes between none and all that TLS itself does not know. */
  #mayAsk(socket: TLSSocket): boolean {
    const hasCertificate = Object.keys(socket.getPeerCertificate() ?? {}).length > 0;
    const mode = this.#settings.PrometheusMetricsClientAuth;
    if (mode === "RequireAndVerifyClientCert") return socket.authorized;
    if (mode === "RequireAnyClientCert") return hasCertificate;
    if (mode === "VerifyClientCertIfGiven") return !hasCertificate || socket.authorized;
    return true;
  }

  #again(error: unknown): void {
    this.#log.warn("metrics cannot be served; trying again", { error: describeError(error) });
    this.#retry = setTimeout(() => this.start(), RETRY_MS);
  }
}
