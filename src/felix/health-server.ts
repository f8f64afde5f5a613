// Serves /liveness and /readiness: the status code is the result, the page is a table of all health reports.
import { createServer, type Server } from "node:http";
import type { HealthAggregator } from "../lib/http/health.ts";
import { describeError, type Logger } from "../lib/log/log.ts";
import { NOT_FOUND_PAGE } from "../lib/http/pages.ts";

const RETRY_MS = 1000;

/** If the port is in use, opening it is retried every second. */
export class HealthServer {
  readonly #health: HealthAggregator;
  readonly #log: Logger;
  #server: Server | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #address = "";
  #loggedError = "";

  constructor(health: HealthAggregator, log: Logger) {
    this.#health = health;
    this.#log = log;
  }

  /** @param at undefined: stop serving */
  serve(at: { readonly host: string; readonly port: number } | undefined): void {
    const address = at === undefined ? "" : `${at.host}:${at.port}`;
    if (address === this.#address) return;
    this.close();
    this.#address = address;
    if (at !== undefined) this.#listen(at);
  }

  /** The port, once the server listens. */
  get port(): number | undefined {
    const address = this.#server?.address();
    return typeof address === "object" && address !== null ? address.port : undefined;
  }

  close(): void {
    clearTimeout(this.#retry);
    this.#server?.close();
    this.#server?.closeAllConnections();
    this.#server = undefined;
    this.#address = "";
  }

  #listen(at: { readonly host: string; readonly port: number }): void {
    const server = createServer((request, response) => {
      const path = request.url?.split("?")[0];
      const answer =
        path === "/liveness" ? this.#health.liveness() : path === "/readiness" ? this.#health.readiness() : undefined;
      const { status, body } = answer ?? NOT_FOUND_PAGE;
      response.writeHead(status, { "content-type": "text/plain; charset=utf-8", connection: "close" }).end(body);
    });
    this.#server = server;
    server.on("error", (error) => {
      const text = describeError(error);
      if (text !== this.#loggedError)
        this.#log.error(
          "the health port cannot be opened and probes fail: free the port or change HealthPort; retrying",
          {
            ...at,
            error: text,
          },
        );
      this.#loggedError = text;
      this.#retry = setTimeout(() => this.#listen(at), RETRY_MS);
    });
    server.on("listening", () => {
      if (this.#loggedError !== "") this.#log.warn("the health port is open", at);
      this.#loggedError = "";
    });
    server.listen(at.port, at.host);
  }
}
