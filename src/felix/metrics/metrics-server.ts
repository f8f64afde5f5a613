// Serves metrics over HTTP or HTTPS. Certificates are read again when their files change, so that a renewed certificate
// needs no restart.
import { type FSWatcher, readFileSync, watch } from "node:fs";
import { createServer as createHttpServer, type Server } from "node:http";
import { dirname } from "node:path";
import type { SecureContextOptions, Server as TlsServer } from "node:tls";
import { describeError, type Logger } from "../../lib/log/log.ts";
import type { MetricsRegistry } from "../../lib/metrics.ts";
import { NOT_FOUND_PAGE } from "../../lib/http/pages.ts";
import { TlsPageServer } from "../../lib/http/tls-pages.ts";
import type { FelixConfig } from "../../model/index.ts";

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
const CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8";

export class MetricsServer {
  readonly #registry: MetricsRegistry;
  readonly #settings: MetricsSettings;
  readonly #log: Logger;
  #tls: TlsPageServer | undefined;
  #server: Server | TlsServer | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #watches: FSWatcher[] = [];

  constructor(registry: MetricsRegistry, settings: MetricsSettings, log: Logger) {
    this.#registry = registry;
    this.#settings = settings;
    this.#log = log;
  }

  /** The port, once the server listens. */
  get port(): number | undefined {
    const address = this.#server?.address();
    return typeof address === "object" && address !== null ? address.port : undefined;
  }

  start(): void {
    const { PrometheusMetricsPort: port, PrometheusMetricsHost: host } = this.#settings;
    try {
      this.#server = this.#isTls ? this.#tlsServer() : this.#plainServer();
    } catch (error) {
      return this.#retryLater(error);
    }
    this.#server.on("error", (error) => this.#retryLater(error));
    this.#server.listen(port, host === "" ? undefined : host);
  }

  close(): void {
    clearTimeout(this.#retry);
    for (const each of this.#watches) each.close();
    this.#tls?.close();
    this.#server?.close();
  }

  get #isTls(): boolean {
    return this.#settings.PrometheusMetricsCertFile !== "" || this.#settings.PrometheusMetricsKeyFile !== "";
  }

  #plainServer(): Server {
    return createHttpServer((request, response) => {
      const { status, body, contentType } = this.#answer(request.url ?? "");
      response.writeHead(status, { "content-type": contentType, connection: "close" }).end(body);
    });
  }

  #tlsServer(): TlsServer {
    const pages = new TlsPageServer({
      context: this.#context(),
      clientAuth: this.#settings.PrometheusMetricsClientAuth,
      render: (path) => this.#answer(path),
      onHandshakeError: (error) =>
        this.#log.debug("TLS handshake with a metrics client failed", { error: describeError(error) }),
    });
    this.#tls = pages;
    const {
      PrometheusMetricsCertFile: cert,
      PrometheusMetricsKeyFile: key,
      PrometheusMetricsCAFile: ca,
    } = this.#settings;
    const reload = () => {
      try {
        pages.setCertificate(this.#context());
      } catch (error) {
        this.#log.warn("the metrics certificate cannot be read; keeping the previous one", {
          error: describeError(error),
        });
      }
    };
    // Kubernetes replaces a mounted Secret by renaming a folder, which a watch on the file itself would not report.
    const folders = new Set([cert, key, ca].filter((file) => file !== "").map(dirname));
    this.#watches = [...folders].map((folder) => watch(folder, { persistent: false }, reload));
    return pages.server;
  }

  #context(): SecureContextOptions {
    const settings = this.#settings;
    const ca = settings.PrometheusMetricsCAFile;
    return {
      cert: readFileSync(settings.PrometheusMetricsCertFile),
      key: readFileSync(settings.PrometheusMetricsKeyFile),
      ...(ca !== "" && { ca: readFileSync(ca) }),
    };
  }

  #answer(url: string): { readonly status: number; readonly body: string; readonly contentType: string } {
    if (url.split("?")[0] !== "/metrics") return { ...NOT_FOUND_PAGE, contentType: "text/plain; charset=utf-8" };
    return { status: 200, body: this.#registry.render(), contentType: CONTENT_TYPE };
  }

  #retryLater(error: unknown): void {
    this.#log.warn("metrics cannot be served; retrying", { error: describeError(error) });
    this.#retry = setTimeout(() => this.start(), RETRY_MS);
  }
}
