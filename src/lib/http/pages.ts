// Serves pages for probes and scrapers over HTTP or HTTPS. Each page is computed when it is requested.
import type { AddressInfo } from "node:net";
import type { SecureContextOptions } from "node:tls";
import type { HealthAggregator } from "./health.ts";
import type { MetricsRegistry } from "../metrics.ts";
import type { ClientAuth } from "./tls-pages.ts";

export interface Page {
  readonly status: number;
  readonly body: string;
  readonly contentType?: string;
}
/** By path. */
export type Pages = Readonly<Record<string, () => Page>>;

export interface PageServer extends AsyncDisposable {
  readonly port: number;
}

export const healthPages = (health: HealthAggregator): Pages => ({
  "/liveness": () => health.liveness(),
  "/readiness": () => health.readiness(),
});

/** The same text as Calico's servers, which use Go's http.NotFound. */
export const NOT_FOUND_PAGE = { status: 404, body: "404 page not found\n" } as const;

export const metricsPages = (registry: MetricsRegistry): Pages => ({
  "/metrics": () => ({
    status: 200,
    body: registry.render(),
    contentType: "text/plain; version=0.0.4; charset=utf-8",
  }),
});

/** @throws when the port cannot be had */
export async function servePages(options: {
  readonly host?: string;
  readonly port: number;
  readonly tls?: { readonly context: SecureContextOptions; readonly clientAuth: ClientAuth };
  readonly pages: Pages;
}): Promise<PageServer> {
  const { host, port, tls, pages } = options;
  const render = (path: string): Page => {
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
    return page?.() ?? NOT_FOUND_PAGE;
  };
  const listener = (
    request: { readonly url?: string },
    response: { writeHead(status: number, headers: Record<string, string>): unknown; end(body: string): unknown },
  ) => {
    const {
      status,
      body,
      contentType = "text/plain; charset=utf-8",
    } = render((request.url ?? "/").split("?")[0] ?? "/");
    // The connection is closed after each response, because the runtime never closes an idle one.
    response.writeHead(status, { "content-type": contentType, connection: "close" });
    response.end(body);
  };
  const { server, closeAll } = tls === undefined ? await plainServer(listener) : await tlsServer(tls, render);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host === "" ? undefined : host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    [Symbol.asyncDispose]: () =>
      new Promise((resolve) => {
        server.once("close", () => resolve());
        closeAll();
      }),
  };
}

async function plainServer(listener: import("node:http").RequestListener) {
  const server = (await import("node:http")).createServer(listener);
  const closeAll = () => {
    server.close();
    server.closeAllConnections();
  };
  return { server, closeAll };
}

async function tlsServer(
  tls: { readonly context: SecureContextOptions; readonly clientAuth: ClientAuth },
  render: (path: string) => Page,
) {
  const { TlsPageServer } = await import("./tls-pages.ts");
  const pages = new TlsPageServer({ ...tls, render });
  return { server: pages.server, closeAll: () => pages.close() };
}
