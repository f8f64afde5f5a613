// The pages others read: /metrics on one port, /liveness and /readiness on another.
import { createServer } from "node:http";
import type { HealthAggregator, HealthAnswer } from "../lib/health.ts";
import { describeError, type Logger } from "../lib/log.ts";
import type { MetricsRegistry } from "../lib/metrics.ts";

type Page = () => { readonly status: number; readonly type: string; readonly body: string };

export function metricsPages(registry: MetricsRegistry): Readonly<Record<string, Page>> {
  return {
    "/metrics": () => ({ status: 200, type: "text/plain; version=0.0.4; charset=utf-8", body: registry.render() }),
  };
}

export function healthPages(health: HealthAggregator): Readonly<Record<string, Page>> {
  const page =
    (answer: () => HealthAnswer): Page =>
    () => ({ ...answer(), type: "text/plain; charset=utf-8" });
  return { "/liveness": page(() => health.liveness()), "/readiness": page(() => health.readiness()) };
}

/** Until disposed of. A port that is taken is said, and the program goes on. */
export function servePages(
  what: string,
  port: number,
  pages: Readonly<Record<string, Page>>,
  log: Logger,
): Disposable & { readonly port: () => number | undefined } {
  const server = createServer((request, response) => {
    const path = request.url?.split("?")[0] ?? "";
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
    if (page === undefined) return void response.writeHead(404).end("404 page not found\n");
    const { status, type, body } = page();
    response.writeHead(status, { "content-type": type }).end(body);
  });
  server.on("error", (error) => log.error(`${what} cannot be served`, { port, error: describeError(error) }));
  server.listen(port);
  return {
    port: () => {
      const address = server.address();
      return typeof address === "object" && address !== null ? address.port : undefined;
    },
    [Symbol.dispose]() {
      server.close();
      server.closeAllConnections();
    },
  };
}
