// Answers probes: /liveness and /readiness, each a table of who says what.
import { createServer, type Server } from "node:http";
import type { HealthAggregator } from "../lib/health.ts";
import { describeError, type Logger } from "../lib/log.ts";
import { UNKNOWN_PAGE } from "../lib/pages.ts";

const RETRY_MS = 1000;

/** Serves while it is wanted; a port that is taken is tried again every second. */
export class HealthServer {
  readonly #health: HealthAggregator;
  readonly #log: Logger;
  #server: Server | undefined;
  #retry: ReturnType<typeof setTimeout> | undefined;
  #address = "";
  #told = "";

  constructor(health: HealthAggregator, log: Logger) {
    this.#health = health;
    this.#log = log;
  }

  /** @param at undefined = not at all */
  serve(at: { readonly host: string; readonly port: number } | undefined): void {
    const address = at === undefined ? "" : `${at.host}:${at.port}`;
    if (address === this.#address) return;
    this.close();
    this.#address = address;
    if (at !== undefined) this.#listen(at);
  }

  /** The port it listens on, once it does. */
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
      const { status, body } = answer ?? UNKNOWN_PAGE;
      response.writeHead(status, { "content-type": "text/plain; charset=utf-8", connection: "close" }).end(body);
    });
    this.#server = server;
    server.on("error", (error) => {
      const text = describeError(error);
      if (text !== this.#told)
        this.#log.error("the health port cannot be opened, so probes fail: free it, or set HealthPort; trying again", {
          ...at,
          error: text,
        });
      this.#told = text;
      this.#retry = setTimeout(() => this.#listen(at), RETRY_MS);
    });
    server.on("listening", () => {
      if (this.#told !== "") this.#log.warn("the health port is open now", at);
      this.#told = "";
    });
    server.listen(at.port, at.host);
  }
}
