// A few pages for probes and scrapers, over HTTP or HTTPS. Each page is computed when it is asked for.
import type { ServerOptions } from "node:https";
import type { AddressInfo } from "node:net";

export interface Page {
  readonly status: number;
  readonly body: string;
  readonly contentType?: string;
}
export interface PageServer {
  readonly port: number;
  close(): Promise<void>;
}

export async function servePages(options: {
  readonly host?: string;
  readonly port: number;
  readonly tls?: ServerOptions;
  readonly pages: Readonly<Record<string, () => Page>>;
}): Promise<PageServer> {
  const { host, port, tls, pages } = options;
  const answer = (path: string): Page => {
    const page = Object.hasOwn(pages, path) ? pages[path] : undefined;
    return page?.() ?? { status: 404, body: `no such page; there are ${Object.keys(pages).join(", ")}\n` };
  };
  const listener = (
    request: { readonly url?: string | undefined },
    response: { writeHead(status: number, headers: Record<string, string>): unknown; end(body: string): unknown },
  ) => {
    const {
      status,
      body,
      contentType = "text/plain; charset=utf-8",
    } = answer((request.url ?? "/").split("?")[0] ?? "/");
    response.writeHead(status, { "content-type": contentType });
    response.end(body);
  };
  const server =
    tls === undefined
      ? (await import("node:http")).createServer(listener)
      : (await import("node:https")).createServer(tls, listener);
  await new Promise<void>((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host === "" ? undefined : host, resolve);
  });
  return {
    port: (server.address() as AddressInfo).port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeAllConnections();
      }),
  };
}
