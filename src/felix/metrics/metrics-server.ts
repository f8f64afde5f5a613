// Gives metrics to scrapers, in the clear or over TLS. Certificates are read again whenever their files change, so that
// a renewed one needs no restart.
import { type FSWatcher, readFileSync, watch } from "node:fs";
import { createServer as createHttpServer, type RequestListener, type Server } from "node:http";
import { createServer as createHttpsServer, type Server as HttpsServer } from "node:https";
import { dirname } from "node:path";
import type { TlsOptions } from "node:tls";
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

export class MetricsServer {
  readonly #registry: MetricsRegistry;
  readonly #settings: MetricsSettings;
  readonly #log: Logger;
  #server: Server | HttpsServer | undefined;
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
      this.#server = this.#isTls ? this.#tlsServer() : createHttpServer(this.#answer);
    } catch (error) {
      return this.#again(error);
    }
    this.#server.on("error", (error) => this.#again(error));
    this.#server.listen(port, host === "" ? undefined : host);
  }

  close(): void {
    clearTimeout(this.#retry);
    for (const each of this.#watches) each.close();
    this.#server?.close();
    this.#server?.closeAllConnections();
  }

  get #isTls(): boolean {
    return this.#settings.PrometheusMetricsCertFile !== "" || this.#settings.PrometheusMetricsKeyFile !== "";
  }

  #tlsServer(): HttpsServer {
    const server = createHttpsServer(this.#tlsOptions(), this.#answer);
    const reload = () => {
      try {
        server.setSecureContext(this.#tlsOptions());
      } catch (error) {
        this.#log.warn("the metrics certificate cannot be read; the old one stays in use", {
          error: describeError(error),
        });
      }
    };
    const {
      PrometheusMetricsCertFile: cert,
      PrometheusMetricsKeyFile: key,
      PrometheusMetricsCAFile: ca,
    } = this.#settings;
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

  readonly #answer: RequestListener = (request, response) => {
    if (!this.#mayAsk(request)) response.writeHead(401).end("a client certificate is needed\n");
    else if (request.url?.split("?")[0] !== "/metrics") response.writeHead(404).end("try /metrics\n");
    else
      response
        .writeHead(200, { "content-type": "text/plain; version=0.0.4; charset=utf-8" })
        .end(this.#registry.render());
  };

  /** The modes between none and all that TLS itself does not know. */
  #mayAsk(request: Parameters<RequestListener>[0]): boolean {
    if (!this.#isTls) return true;
    const socket = request.socket as unknown as { authorized?: boolean; getPeerCertificate?: () => object };
    const hasCertificate = Object.keys(socket.getPeerCertificate?.() ?? {}).length > 0;
    const mode = this.#settings.PrometheusMetricsClientAuth;
    if (mode === "RequireAnyClientCert") return hasCertificate;
    if (mode === "VerifyClientCertIfGiven") return !hasCertificate || socket.authorized === true;
    return true;
  }

  #again(error: unknown): void {
    this.#log.warn("metrics cannot be served; trying again", { error: describeError(error) });
    this.#retry = setTimeout(() => this.start(), RETRY_MS);
  }
}
