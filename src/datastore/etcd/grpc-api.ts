// etcd over gRPC: one channel per endpoint, the next one when it fails. Each call ends within its time, whatever the
// network does.
import { isIP } from "node:net";
import { checkServerIdentity, type PeerCertificate } from "node:tls";
import {
  type CallOptions,
  Client,
  credentials,
  type ClientUnaryCall,
  connectivityState,
  Metadata,
  type ServiceError,
  status,
} from "@grpc/grpc-js";
import type { EtcdConfig } from "../config.ts";
import { DatastoreFailure, Unauthorized } from "../errors.ts";
import type { EtcdApi, EtcdCall, EtcdWatchStream } from "./api.ts";
import { checkTls } from "./certificates.ts";
import { type Endpoint, EndpointWalk, loadTls, tlsGeneration } from "./endpoints.ts";
import { AttemptTimedOut, connectionFailure, failureOf, TokenExpired } from "./failures.ts";
import { GrpcWatchStream } from "./grpc-watch.ts";
import {
  AUTHENTICATE,
  COMPACT,
  decodeWatchResponse,
  encodeWatchRequest,
  LEASE_GRANT,
  type Method,
  RANGE,
  type RangeRequest,
  type RangeResponse,
  TXN,
  type TxnRequest,
  type TxnResponse,
  WATCH_PATH,
  type WatchCreate,
  type WatchRequest,
  type WatchResponse,
} from "./messages.ts";

const CHANNEL_OPTIONS = {
  "grpc.max_receive_message_length": -1,
  "grpc.max_send_message_length": -1,
  "grpc.keepalive_time_ms": 30_000,
  "grpc.keepalive_timeout_ms": 10_000,
  "grpc.keepalive_permit_without_calls": 0,
  "grpc.initial_reconnect_backoff_ms": 100,
  "grpc.max_reconnect_backoff_ms": 2_000,
  "grpc.enable_http_proxy": 0,
  "grpc.enable_retries": 0,
};

interface UnaryOptions extends EtcdCall {
  readonly repeatable: boolean;
  readonly revision?: number;
}

export class GrpcEtcdApi implements EtcdApi {
  readonly #config: EtcdConfig;
  readonly #timeoutMs: number;
  readonly #silenceMs: number | undefined;
  readonly #walk: EndpointWalk;
  readonly #clients = new Map<string, { readonly generation: string; readonly client: Client }>();
  #token: Promise<string> | undefined;

  constructor(
    config: EtcdConfig,
    endpoints: readonly Endpoint[],
    options: { readonly timeoutMs: number; readonly silenceMs?: number | undefined },
  ) {
    this.#config = config;
    this.#timeoutMs = options.timeoutMs;
    this.#silenceMs = options.silenceMs;
    this.#walk = new EndpointWalk(endpoints);
  }

  range(request: RangeRequest, call: EtcdCall): Promise<RangeResponse> {
    return this.#call(RANGE, request, { ...call, repeatable: true, revision: request.revision ?? 0 });
  }

  txn(request: TxnRequest, call: EtcdCall & { readonly repeatable: boolean }): Promise<TxnResponse> {
    return this.#call(TXN, request, call);
  }

  grantLease(ttlSeconds: number, call: EtcdCall): Promise<bigint> {
    return this.#call(LEASE_GRANT, { ttlSeconds }, { ...call, repeatable: true });
  }

  compact(revision: number, call: EtcdCall): Promise<void> {
    return this.#call(COMPACT, { revision }, { ...call, repeatable: true, revision });
  }

  async openWatch(create: WatchCreate, signal: AbortSignal): Promise<EtcdWatchStream> {
    return this.#walk.run({ timeoutMs: this.#timeoutMs, signal, repeatable: true }, (endpoint, budgetMs) =>
      this.#authenticated(endpoint, budgetMs, (metadata) => {
        const stream = this.#client(endpoint).makeBidiStreamRequest<WatchRequest, WatchResponse>(
          WATCH_PATH,
          encodeWatchRequest,
          decodeWatchResponse,
          metadata,
        );
        const silenceMs = this.#silenceMs;
        return GrpcWatchStream.open({ stream, create, signal, budgetMs, silenceMs, endpoint: endpoint.url });
      }),
    );
  }

  async close(): Promise<void> {
    for (const { client } of this.#clients.values()) client.close();
    this.#clients.clear();
  }

  #call<Q, S>(method: Method<Q, S>, request: Q, options: UnaryOptions): Promise<S> {
    return this.#walk.run({ ...options, timeoutMs: this.#timeoutMs }, (endpoint, budgetMs) =>
      this.#authenticated(endpoint, budgetMs, (metadata) =>
        this.#unary(endpoint, method, request, { ...options, metadata, budgetMs }),
      ),
    );
  }

  async #unary<Q, S>(
    endpoint: Endpoint,
    method: Method<Q, S>,
    request: Q,
    options: UnaryOptions & { readonly metadata: Metadata; readonly budgetMs: number },
  ): Promise<S> {
    const client = this.#client(endpoint);
    const { promise, resolve, reject } = Promise.withResolvers<S>();
    const callOptions: CallOptions = { deadline: Date.now() + options.budgetMs };
    const done = (error: ServiceError | null, response?: S) => {
      if (error === null) resolve(response as S);
      else reject(this.#failure(client, endpoint, error, options.revision ?? 0));
    };
    const call: ClientUnaryCall = client.makeUnaryRequest(
      method.path,
      method.encode,
      method.decode,
      request,
      options.metadata,
      callOptions,
      done,
    );
    const onAbort = () => {
      reject(options.signal?.reason);
      call.cancel();
    };
    options.signal?.addEventListener("abort", onAbort, { once: true });
    try {
      return await promise;
    } finally {
      options.signal?.removeEventListener("abort", onAbort);
    }
  }

  /** A call that never found a connection was surely not carried out. */
  #failure(client: Client, endpoint: Endpoint, error: ServiceError, revision: number): Error {
    const connected = client.getChannel().getConnectivityState(false) === connectivityState.READY;
    if (error.code === status.DEADLINE_EXCEEDED)
      return new AttemptTimedOut(connected ? "no answer in time" : "no connection in time", connected, {
        cause: error,
      });
    if (error.code === status.UNAVAILABLE && error.details.startsWith("No connection established")) {
      const fault = connectionFault(error.details);
      return connectionFailure(fault === "" ? "no connection" : fault, endpoint, { wasSent: false, cause: error });
    }
    return failureOf(error.code, error.details, revision);
  }

  /** Runs with a session token when there are credentials, logging in again once when it has expired. */
  async #authenticated<T>(endpoint: Endpoint, budgetMs: number, run: (metadata: Metadata) => Promise<T>): Promise<T> {
    const metadata = async (): Promise<Metadata> => {
      const result = new Metadata();
      const token = await this.#login(endpoint, budgetMs);
      if (token !== "") result.set("token", token);
      return result;
    };
    try {
      return await run(await metadata());
    } catch (error) {
      if (!(error instanceof TokenExpired)) throw error;
      this.#token = undefined;
      return run(await metadata());
    }
  }

  #login(endpoint: Endpoint, budgetMs: number): Promise<string> {
    const { credentials: account } = this.#config;
    if (account === undefined) return Promise.resolve("");
    this.#token ??= this.#unary(endpoint, AUTHENTICATE, account, {
      repeatable: true,
      metadata: new Metadata(),
      budgetMs,
    }).catch((error: unknown) => {
      this.#token = undefined;
      // A server that asks nobody to log in is content with anybody.
      if (error instanceof Unauthorized && error.message.includes("authentication is not enabled")) return "";
      if (error instanceof TokenExpired) throw new DatastoreFailure(error.message);
      throw error;
    });
    return this.#token;
  }

  /** The endpoint's channel; a new one when the certificates on disk were renewed and it is not in use. */
  #client(endpoint: Endpoint): Client {
    const known = this.#clients.get(endpoint.url);
    if (known !== undefined) {
      const settled = known.client.getChannel().getConnectivityState(false) === connectivityState.READY;
      if (settled || known.generation === tlsGeneration(this.#config.tls)) return known.client;
      known.client.close();
    }
    const generation = tlsGeneration(this.#config.tls);
    const client = endpoint.secure ? this.#secureClient(endpoint) : plainClient(endpoint);
    this.#clients.set(endpoint.url, { generation, client });
    return client;
  }

  #secureClient(endpoint: Endpoint): Client {
    const material = loadTls(this.#config.tls);
    checkTls(material);
    const { ca, key, cert } = material;
    const host = endpoint.host.replace(/^\[|\]$/g, "");
    const security = credentials.createSsl(ca ?? null, key ?? null, cert ?? null, {
      checkServerIdentity: (_name, certificate) => checkServerIdentity(host, certificate as PeerCertificate),
    });
    // TLS forbids an address as server name; the certificate is held against the address all the same.
    const nameless = isIP(host) === 0 ? {} : { "grpc.ssl_target_name_override": "etcd" };
    return new Client(`${endpoint.host}:${endpoint.port}`, security, { ...CHANNEL_OPTIONS, ...nameless });
  }
}

const plainClient = (endpoint: Endpoint): Client =>
  new Client(`${endpoint.host}:${endpoint.port}`, credentials.createInsecure(), CHANNEL_OPTIONS);

/** What went wrong, without gRPC's wrapping. */
function connectionFault(details: string): string {
  return details
    .replace(/^No connection established\.(?: Last error: )?/, "")
    .replace(/\.? Resolution note:.*$/s, "")
    .replace(/^(?:\w*Error(?: \[\w+\])?: )/, "")
    .replace(/ \(\d{4}-\d\d-\d\dT[\d:.]+Z\)$/, "")
    .trim();
}
