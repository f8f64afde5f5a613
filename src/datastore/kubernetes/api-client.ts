// Sends requests to the Kubernetes API over node:https: JSON requests, paged lists, watches and patches, with a limit on
// requests per second. It contains nothing specific to Calico.
import { Agent as HttpAgent, type ClientRequest, type IncomingMessage, request as httpRequest } from "node:http";
import { Agent as HttpsAgent, request as httpsRequest, type RequestOptions } from "node:https";
import type { Socket } from "node:net";
import { parseLosslessJson, stringifyLosslessJson } from "../../lib/encoding/lossless-json.ts";
import { delay } from "../../lib/retry.ts";
import { KEEP_ALIVE_IDLE_MS, KEEP_ALIVE_LIMIT_MS } from "../../lib/http/tcp-keepalive.ts";
import { TokenBucket } from "../../lib/token-bucket.ts";
import { Unavailable } from "../errors.ts";
import type { Access, Credentials } from "./access.ts";
import { KubeStatusError, statusError } from "./status-error.ts";

/** The fields that every object of the API has. */
export interface KubeObject {
  readonly apiVersion?: string;
  readonly kind?: string;
  readonly metadata: KubeMetadata;
}
export interface KubeMetadata {
  readonly name: string;
  readonly namespace?: string;
  readonly generateName?: string;
  readonly uid?: string;
  readonly resourceVersion?: string;
  readonly creationTimestamp?: string;
  readonly deletionTimestamp?: string;
  readonly labels?: Readonly<Record<string, string>>;
  readonly annotations?: Readonly<Record<string, string>>;
  readonly ownerReferences?: readonly unknown[];
  readonly finalizers?: readonly string[];
}
export interface KubeList<T extends KubeObject = KubeObject> {
  readonly items: readonly T[];
  readonly metadata: { readonly resourceVersion?: string; readonly continue?: string };
}

export interface KubeRequest {
  readonly method: "GET" | "POST" | "PUT" | "PATCH" | "DELETE";
  readonly path: string;
  readonly query?: Readonly<Record<string, string | undefined>>;
  readonly body?: unknown;
  readonly contentType?: string;
  readonly signal?: AbortSignal;
  /** The body may contain integers above 2^53, which must keep their exact value. */
  readonly lossless?: boolean;
}

export interface KubeApiOptions {
  readonly timeoutMs?: number;
  /** A watch without events for this time is ended, so that its reader resumes it. */
  readonly watchIdleMs?: number;
  readonly qps?: number;
  readonly burst?: number;
  /** Called before every request except GET. If it throws, the request is not sent. */
  readonly beforeWrite?: () => void;
}

export type KubeWatchEvent =
  | { readonly type: "ADDED" | "MODIFIED" | "DELETED" | "BOOKMARK"; readonly object: KubeObject }
  | {
      readonly type: "ERROR";
      readonly object: { readonly code?: number; readonly reason?: string; readonly message?: string };
    };

const MAX_PAGE_ITEMS = 500;
/**
 * The first page of a list is small and the next ones aim at this size, because parsing a page blocks the process: an
 * object has up to 1.5 MB, and a tenant may create hundreds of that size.
 */
const PAGE_BYTES = 8 << 20;
const FIRST_PAGE_ITEMS = 20;
const MAX_PAGE_GROWTH = 5;
const DEFAULT_TIMEOUT_MS = 10_000;
const DEFAULT_WATCH_IDLE_MS = 150_000;

/** Allows `burst` requests at once and `qps` per second after that. `qps` of 0 or less = no limit. */
export const requestLimit = (qps: number, burst: number): TokenBucket =>
  new TokenBucket({ capacity: burst, refillMs: qps <= 0 ? 0 : 1000 / qps });

/** Returns how many objects to request, if `items` of them had `size` characters. */
export function nextPageItems(items: number, size: number): number {
  const wanted = Math.floor((items * PAGE_BYTES) / Math.max(1, size));
  return Math.max(1, Math.min(wanted, items * MAX_PAGE_GROWTH, MAX_PAGE_ITEMS));
}

export class KubeApi {
  readonly #access: Access;
  readonly #agent: HttpAgent | HttpsAgent;
  readonly #limit: TokenBucket;
  readonly #timeoutMs: number;
  readonly #watchIdleMs: number;
  readonly #beforeWrite: (() => void) | undefined;
  /** Number of requests sent, including watches, for benchmarks and tests. */
  requests = 0;

  constructor(access: Access, options: KubeApiOptions = {}) {
    this.#access = access;
    this.#timeoutMs = options.timeoutMs ?? DEFAULT_TIMEOUT_MS;
    this.#watchIdleMs = options.watchIdleMs ?? DEFAULT_WATCH_IDLE_MS;
    this.#beforeWrite = options.beforeWrite;
    this.#limit = requestLimit(options.qps ?? 5, options.burst ?? 100);
    const isTls = access.server.protocol === "https:";
    const keepAlive = { keepAlive: true, keepAliveMsecs: KEEP_ALIVE_IDLE_MS };
    this.#agent = isTls ? new HttpsAgent({ ...keepAlive, ...access.tls }) : new HttpAgent(keepAlive);
  }

  get endpoint(): string {
    return this.#access.server.origin;
  }

  async get<T extends KubeObject>(
    path: string,
    options: { query?: KubeRequest["query"]; signal?: AbortSignal } = {},
  ): Promise<T> {
    const object = await this.json<T>({ method: "GET", path, query: options.query, signal: options.signal });
    if (!isMapping(object)) throw this.#unreadable(path, "it is not an object");
    return object;
  }

  /** Returns all pages of a list. If the list expires between two pages, it starts again. */
  async list<T extends KubeObject>(
    path: string,
    options: { query?: KubeRequest["query"]; signal?: AbortSignal; lossless?: boolean } = {},
  ): Promise<KubeList<T>> {
    for (let attempt = 0; ; attempt++) {
      const items: T[] = [];
      let next: string | undefined;
      let limit = FIRST_PAGE_ITEMS;
      try {
        for (;;) {
          // The continue token contains the revision; the server rejects a request that has both.
          const { resourceVersion, resourceVersionMatch, ...others } = options.query ?? {};
          const first = next === undefined ? { resourceVersion, resourceVersionMatch } : {};
          const query = { ...others, ...first, limit: String(limit), continue: next };
          const { value: page, size } = await this.#request<KubeList<T>>({
            method: "GET",
            path,
            query,
            signal: options.signal,
            lossless: options.lossless,
          });
          if (!isList(page)) throw this.#unreadable(path, "it is not a list");
          for (const item of page.items ?? []) {
            if (!isObject(item)) throw this.#unreadable(path, "an item has no metadata");
            items.push(item);
          }
          limit = nextPageItems(limit, size);
          next = page.metadata.continue === "" ? undefined : page.metadata.continue;
          if (next === undefined) return { items, metadata: page.metadata };
        }
      } catch (error) {
        if (next !== undefined && attempt < 3 && error instanceof KubeStatusError && error.code === 410) continue;
        throw error;
      }
    }
  }

  /** Sends a request and returns the parsed answer. Retries once with new credentials after 401, and after 429. */
  async json<T>(request: KubeRequest): Promise<T> {
    return (await this.#request<T>(request)).value;
  }

  /** @returns the parsed answer and the length of its text */
  async #request<T>(request: KubeRequest): Promise<{ readonly value: T; readonly size: number }> {
    await this.#limit.take(request.signal);
    for (let attempt = 0; ; attempt++) {
      const answer = await this.#exchange(request, attempt);
      if (answer === undefined) continue;
      const { response, text, code } = answer;
      if (code >= 200 && code < 300) return { value: this.#parse(request, text) as T, size: text.length };
      const error = statusError(nameOf(request), response, text);
      if (code === 401 && attempt === 0) {
        this.#access.clearCache();
        continue;
      }
      // The server is busy or starting, and sends the delay before the next attempt.
      if ((code === 429 || (code >= 500 && error.retryAfterSeconds !== undefined)) && attempt < 3) {
        await delay(Math.min(10, error.retryAfterSeconds ?? 1) * 1000, request.signal);
        continue;
      }
      throw error;
    }
  }

  /** Throws unless the path is answered with a 2xx status, whatever the body is. */
  async probe(path: string, signal?: AbortSignal): Promise<void> {
    const request: KubeRequest = { method: "GET", path, signal };
    const response = await this.#send(request, this.#timeoutMs);
    const text = await this.#readAll(request, response);
    const code = response.statusCode ?? 0;
    if (code < 200 || code >= 300) throw statusError(nameOf(request), response, text);
  }

  /**
   * Yields an empty batch when the watch is open, then events as they come. Returns when the server ends the watch,
   * throws when the connection is lost or the signal aborts. A watch without events ends too, and its reader resumes it:
   * the server sends bookmarks only for kinds that have changed, so a proxy that lost the stream looks the same.
   */
  async *watch(
    path: string,
    query: Readonly<Record<string, string | undefined>>,
    signal: AbortSignal,
    lossless = false,
  ): AsyncGenerator<readonly KubeWatchEvent[]> {
    await this.#limit.take(signal);
    const response = await this.#openWatch(path, query, signal);
    const { socket } = response;
    let wasSilent = false;
    const idle = setTimeout(() => {
      wasSilent = true;
      response.destroy();
    }, this.#watchIdleMs);
    let rest = "";
    const decoder = new TextDecoder();
    try {
      yield [];
      for await (const chunk of response as AsyncIterable<Uint8Array>) {
        idle.refresh();
        const lines = (rest + decoder.decode(chunk, { stream: true })).split("\n");
        rest = lines.pop() ?? "";
        const events = lines.filter((line) => line !== "").map((line) => eventOf(parse(lossless)(line)));
        if (events.length > 0) yield events;
      }
    } catch (error) {
      if (signal.aborted) throw signal.reason;
      if (wasSilent) return;
      // The stream reports that it was aborted; the socket has the reason.
      const cause = (socket.errored ?? error) as Error & { readonly code?: string };
      const silentMs = cause.code === "ETIMEDOUT" ? KEEP_ALIVE_LIMIT_MS : 0;
      throw new Unavailable(this.endpoint, `watch ${path} was interrupted: ${cause.message}`, { cause, silentMs });
    } finally {
      clearTimeout(idle);
      response.destroy();
    }
  }

  close(): void {
    this.#agent.destroy();
  }

  #dropIdleConnections(): void {
    for (const sockets of Object.values(this.#agent.freeSockets)) for (const socket of sockets ?? []) socket.destroy();
  }

  async #openWatch(path: string, query: KubeRequest["query"], signal: AbortSignal): Promise<IncomingMessage> {
    const watching = { ...query, watch: "true", allowWatchBookmarks: "true" };
    const request: KubeRequest = { method: "GET", path, query: watching, signal };
    for (let attempt = 0; ; attempt++) {
      const response = await this.#send(request, this.#timeoutMs);
      const code = response.statusCode ?? 0;
      if (code === 200) return response;
      if (code === 401) this.#access.clearCache();
      const error = statusError(nameOf(request), response, await this.#readAll(request, response));
      // A server that has just started sends 429 until it has read its storage.
      if (code !== 429 || attempt >= 3) throw error;
      await delay(Math.min(10, error.retryAfterSeconds ?? 1) * 1000, signal);
    }
  }

  /** Returns undefined if a GET failed because the server had closed the idle connection: the caller sends it again. */
  async #exchange(request: KubeRequest, attempt: number) {
    try {
      const response = await this.#send(request, this.#timeoutMs);
      return { response, text: await this.#readAll(request, response), code: response.statusCode ?? 0 };
    } catch (error) {
      const { code } = ((error as Error).cause ?? {}) as { readonly code?: string };
      if (request.method === "GET" && attempt === 0 && (code === "ECONNRESET" || code === "EPIPE")) return undefined;
      throw error;
    }
  }

  async #readAll(request: KubeRequest, response: IncomingMessage): Promise<string> {
    // Not a limit for the whole answer: a long list over a slow connection would never be complete.
    const timer = setTimeout(
      () => response.destroy(new Error(`no data for ${this.#timeoutMs / 1000} s`)),
      this.#timeoutMs,
    );
    try {
      const chunks: Uint8Array[] = [];
      for await (const chunk of response as AsyncIterable<Uint8Array>) {
        timer.refresh();
        chunks.push(chunk);
      }
      return Buffer.concat(chunks).toString("utf8");
    } catch (error) {
      if (request.signal?.aborted === true) throw request.signal.reason;
      const { message } = error as Error;
      throw new Unavailable(this.endpoint, `the answer to ${nameOf(request)} was interrupted: ${message}`, {
        cause: error,
      });
    } finally {
      clearTimeout(timer);
    }
  }

  #parse(request: KubeRequest, text: string): unknown {
    if (text === "") return undefined;
    try {
      return parse(request.lossless)(text);
    } catch (error) {
      if (!(error instanceof SyntaxError)) throw error;
      throw this.#unreadable(request.path, "it is not JSON");
    }
  }

  /** The error for an answer that an API server never sends: it comes from a proxy or another server. */
  #unreadable(path: string, why: string): Unavailable {
    return new Unavailable(this.endpoint, `the answer to ${path} is invalid: ${why}`);
  }

  async #send(request: KubeRequest, timeoutMs: number): Promise<IncomingMessage> {
    const body = bodyText(request);
    const options = this.#requestOptions(request, body, await this.#access.credentials());
    const gate = request.method === "GET" ? undefined : this.#beforeWrite;
    gate?.();
    this.requests++;
    const send = this.#access.server.protocol === "https:" ? httpsRequest : httpRequest;
    const started = performance.now();
    return new Promise((resolve, reject) => {
      const outgoing = send(options, (response) => {
        clearTimeout(timer);
        resolve(response);
      });
      let silentMs = 0;
      const timer = setTimeout(() => {
        silentMs = timeoutMs;
        outgoing.destroy(new Error(`no answer within ${timeoutMs / 1000} s`));
        this.#dropIdleConnections(); // another request on one of them would time out too
      }, timeoutMs);
      outgoing.on("error", (error) => {
        clearTimeout(timer);
        if (request.signal?.aborted === true) return reject(request.signal.reason);
        const seconds = ((performance.now() - started) / 1000).toFixed(1);
        reject(new Unavailable(this.endpoint, `${error.message} (after ${seconds} s)`, { cause: error, silentMs }));
      });
      if (gate === undefined) outgoing.end(body);
      else
        whenConnected(outgoing, () => {
          try {
            gate();
            outgoing.end(body);
          } catch (error) {
            clearTimeout(timer);
            reject(error);
            outgoing.destroy();
          }
        });
    });
  }

  #requestOptions(request: KubeRequest, body: string | undefined, credentials: Credentials): RequestOptions {
    const { server, tls } = this.#access;
    const isTls = server.protocol === "https:";
    return {
      agent: this.#agent,
      host: server.hostname.replace(/^\[|\]$/g, ""),
      port: server.port === "" ? (isTls ? 443 : 80) : Number(server.port),
      method: request.method,
      path: `${server.pathname.replace(/\/$/, "")}${request.path}${queryText(request.query)}`,
      ...(isTls ? tls : {}),
      ...(credentials.cert === undefined ? {} : { cert: credentials.cert }),
      ...(credentials.key === undefined ? {} : { key: credentials.key }),
      signal: request.signal,
      headers: {
        accept: "application/json",
        "user-agent": "calico-ts",
        ...(credentials.authorization === undefined ? {} : { authorization: credentials.authorization }),
        ...(body === undefined
          ? {}
          : { "content-type": request.contentType ?? "application/json", "content-length": Buffer.byteLength(body) }),
      },
    };
  }
}

function bodyText({ body, lossless }: KubeRequest): string | undefined {
  if (body === undefined) return undefined;
  return lossless === true ? stringifyLosslessJson(body) : JSON.stringify(body);
}

/** Calls `ready` when the connection is open. Connecting may take long, for instance if the process is suspended. */
function whenConnected(outgoing: ClientRequest, ready: () => void): void {
  outgoing.once("socket", (socket: Socket & { readonly secureConnecting?: boolean }) => {
    if (socket.secureConnecting === true) socket.once("secureConnect", ready);
    else if (socket.connecting) socket.once("connect", ready);
    else ready();
  });
}

const nameOf = ({ method, path }: KubeRequest): string => `${method} ${path}`;

const parse = (lossless: boolean | undefined): ((text: string) => unknown) =>
  lossless === true ? parseLosslessJson : JSON.parse;

const isMapping = (value: unknown): value is Readonly<Record<string, unknown>> =>
  typeof value === "object" && value !== null && !Array.isArray(value);
const isObject = (value: unknown): value is KubeObject => isMapping(value) && isMapping(value["metadata"]);
const isList = (value: unknown): boolean => isObject(value) && Array.isArray((value as Partial<KubeList>).items ?? []);

/** Checks the shape of an event, because a proxy may insert any text. */
function eventOf(value: unknown): KubeWatchEvent {
  const isEvent =
    isMapping(value) && isMapping(value["object"]) && (value["type"] === "ERROR" || isObject(value["object"]));
  if (!isEvent) throw new Error("a line is not an event");
  return value as unknown as KubeWatchEvent;
}

function queryText(query: KubeRequest["query"]): string {
  const words = Object.entries(query ?? {}).flatMap(([name, value]) =>
    value === undefined ? [] : [`${encodeURIComponent(name)}=${encodeURIComponent(value)}`],
  );
  return words.length === 0 ? "" : `?${words.join("&")}`;
}
