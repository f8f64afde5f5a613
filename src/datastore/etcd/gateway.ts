// Sends requests to etcd's JSON gateway, for commands that send a few requests and exit. They use the runtime's own
// fetch, which costs nothing to load. With gRPC over node:http2 (grpc-api.ts) the same commands take about 10 ms longer:
// `calicoctl get node n1` 33 instead of 22 ms, `apply` of one resource 50 instead of 37 ms (medians of 30 runs; with TLS 34
// instead of 25 and 61 instead of 45 ms). Programs that send many requests or watch use gRPC: it is faster per request, and
// the gateway cannot detect that the server of a silent watch is dead.
import type { EtcdConfig } from "../config.ts";
import { Unauthorized, Unsupported } from "../errors.ts";
import type { EtcdApi, EtcdCall, EtcdWatchStream } from "./api.ts";
import { type Endpoint, EndpointFailover, loadTls, type TlsMaterial } from "./endpoints.ts";
import { AttemptFailed, AttemptTimedOut, connectionFailure, failureOf, TokenExpired } from "./failures.ts";
import type { Compare, EtcdRow, Operation, RangeRequest, RangeResponse, TxnRequest, TxnResponse } from "./messages.ts";

/** In JSON, 64-bit numbers are decimal text and bytes are base64; zero values are omitted. */
interface JsonRow {
  readonly key?: string;
  readonly value?: string;
  readonly create_revision?: string;
  readonly mod_revision?: string;
}
interface JsonRange {
  readonly header?: { readonly revision?: string };
  readonly kvs?: readonly JsonRow[];
  readonly more?: boolean;
}
interface JsonTxn {
  readonly header?: { readonly revision?: string };
  readonly succeeded?: boolean;
  readonly responses?: readonly {
    readonly response_range?: JsonRange;
    readonly response_delete_range?: { readonly prev_kvs?: readonly JsonRow[] };
  }[];
}
interface JsonFault {
  readonly error?: string;
  readonly message?: string;
  readonly code?: number;
}

export class GatewayEtcdApi implements EtcdApi {
  readonly #config: EtcdConfig;
  readonly #timeoutMs: number;
  readonly #failover: EndpointFailover;
  #tls: TlsMaterial | undefined;
  #token: Promise<string> | undefined;

  constructor(config: EtcdConfig, endpoints: readonly Endpoint[], timeoutMs: number) {
    this.#config = config;
    this.#timeoutMs = timeoutMs;
    this.#failover = new EndpointFailover(endpoints);
  }

  async range(request: RangeRequest, call: EtcdCall): Promise<RangeResponse> {
    const options = { ...call, repeatable: true, revision: request.revision ?? 0 };
    const answer = await this.#call<JsonRange>("/v3/kv/range", rangeJson(request), options);
    return {
      rows: (answer.kvs ?? []).map(rowOf),
      more: answer.more ?? false,
      revision: Number(answer.header?.revision ?? 0),
    };
  }

  async txn(request: TxnRequest, call: EtcdCall & { readonly repeatable: boolean }): Promise<TxnResponse> {
    const body = {
      compare: request.compare.map(compareJson),
      success: request.success.map(operationJson),
      failure: request.failure.map(operationJson),
    };
    let hadLostAnswer = false;
    const onLostAnswer = (): void => {
      hadLostAnswer = true;
    };
    const answer = await this.#call<JsonTxn>("/v3/kv/txn", body, { ...call, onLostAnswer });
    return {
      hadLostAnswer,
      succeeded: answer.succeeded ?? false,
      revision: Number(answer.header?.revision ?? 0),
      rows: (answer.responses ?? []).map((r) =>
        (r.response_range?.kvs ?? r.response_delete_range?.prev_kvs ?? []).map(rowOf),
      ),
    };
  }

  async grantLease(ttlSeconds: number, call: EtcdCall): Promise<bigint> {
    const body = { TTL: String(ttlSeconds) };
    const answer = await this.#call<{ ID?: string }>("/v3/lease/grant", body, { ...call, repeatable: true });
    return BigInt(answer.ID ?? 0);
  }

  async compact(revision: number, call: EtcdCall): Promise<void> {
    const body = { revision: String(revision) };
    await this.#call("/v3/kv/compaction", body, { ...call, repeatable: true, revision });
  }

  openWatch(): Promise<EtcdWatchStream> {
    return Promise.reject(new Unsupported("Watch", "etcd", "opened for single requests only"));
  }

  async close(): Promise<void> {}

  #call<S>(
    path: string,
    body: unknown,
    options: EtcdCall & {
      readonly repeatable: boolean;
      readonly revision?: number;
      readonly onLostAnswer?: () => void;
    },
  ): Promise<S> {
    return this.#failover.run({ ...options, timeoutMs: this.#timeoutMs }, async (endpoint, budgetMs) => {
      const post = async () =>
        this.#post<S>(endpoint, path, body, { ...options, budgetMs, token: await this.#login(endpoint, budgetMs) });
      try {
        return await post();
      } catch (error) {
        if (!(error instanceof TokenExpired)) throw error;
        this.#token = undefined;
        return post();
      }
    });
  }

  async #post<S>(
    endpoint: Endpoint,
    path: string,
    body: unknown,
    options: EtcdCall & { readonly budgetMs: number; readonly token: string; readonly revision?: number },
  ): Promise<S> {
    const timeout = AbortSignal.timeout(options.budgetMs);
    const tls = endpoint.secure ? { tls: (this.#tls ??= loadTls(this.#config.tls)) } : {};
    let text: string;
    let ok: boolean;
    try {
      const response = await fetch(endpoint.url + path, {
        method: "POST",
        body: JSON.stringify(body),
        redirect: "error",
        proxy: false, // the environment may contain a proxy for image downloads
        signal: options.signal === undefined ? timeout : AbortSignal.any([timeout, options.signal]),
        ...(options.token === "" ? {} : { headers: { Authorization: options.token } }),
        ...tls,
      });
      ok = response.ok;
      text = await response.text();
    } catch (error) {
      options.signal?.throwIfAborted();
      if (timeout.aborted) throw new AttemptTimedOut("no answer in time", true, { cause: error });
      if (this.#tls !== undefined) (await import("./certificates.ts")).checkTls(this.#tls);
      throw connectionFailure(describe(error), endpoint, { wasSent: wasSent(error), cause: error });
    }
    const json = parseJson(text);
    if (json === undefined) throw new AttemptFailed("the answer is not JSON; the server may not be etcd", false);
    if (ok) return json as S;
    const fault = json as JsonFault;
    throw failureOf(fault.code ?? 2, fault.message ?? fault.error ?? "unknown failure", options.revision ?? 0);
  }

  #login(endpoint: Endpoint, budgetMs: number): Promise<string> {
    const { credentials } = this.#config;
    if (credentials === undefined) return Promise.resolve("");
    const body = { name: credentials.username, password: credentials.password };
    this.#token ??= this.#post<{ token?: string }>(endpoint, "/v3/auth/authenticate", body, { budgetMs, token: "" })
      .then((answer) => answer.token ?? "")
      .catch((error: unknown) => {
        this.#token = undefined;
        if (error instanceof Unauthorized && error.message.includes("authentication is not enabled")) return "";
        throw error;
      });
    return this.#token;
  }
}

const base64 = (text: string): string => Buffer.from(text).toString("base64");
const text = (encoded: string | undefined): string => Buffer.from(encoded ?? "", "base64").toString();

const rowOf = (row: JsonRow): EtcdRow => ({
  path: text(row.key),
  value: text(row.value),
  createRevision: Number(row.create_revision ?? 0),
  revision: Number(row.mod_revision ?? 0),
});

const rangeJson = ({ key, end, limit, revision }: RangeRequest): object => ({
  key: base64(key),
  range_end: end === undefined ? undefined : base64(end),
  limit: limit?.toString(),
  revision: revision?.toString(),
});

function compareJson(compare: Compare): object {
  const key = base64(compare.key);
  return compare.field === "mod"
    ? { target: "MOD", key, mod_revision: String(compare.equals) }
    : { target: "VERSION", key, version: String(compare.equals) };
}

function operationJson(operation: Operation): object {
  switch (operation.type) {
    case "range":
      return { request_range: rangeJson(operation.range) };
    case "put": {
      const { key, value, lease } = operation.put;
      const put = { key: base64(key), value: base64(value), lease: lease?.toString() };
      return { request_put: put };
    }
    case "delete":
      return { request_delete_range: { key: base64(operation.delete.key), prev_kv: true } };
  }
}

function parseJson(body: string): object | undefined {
  try {
    const json: unknown = JSON.parse(body);
    return typeof json === "object" && json !== null ? json : undefined;
  } catch {
    return undefined;
  }
}

/** Returns false if the connection was refused or its TLS handshake failed: then no request was sent. */
const wasSent = (error: unknown): boolean =>
  !/ConnectionRefused|ECONNREFUSED|FailedToOpenSocket|CERT|SSL|TLS|HOST|DNS/i.test(codeOf(error) + describe(error));

const codeOf = (error: unknown): string => (error instanceof Error && "code" in error ? String(error.code) : "");
const describe = (error: unknown): string => (error instanceof Error ? error.message : String(error));
