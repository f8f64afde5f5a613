// Calls etcd over gRPC, with one connection per endpoint and failover to the next endpoint. Every call ends within its
// timeout.
import type { EtcdConfig } from "../config.ts";
import { DatastoreFailure, Unauthorized } from "../errors.ts";
import type { EtcdApi, EtcdCall, EtcdWatchStream } from "./api.ts";
import { type Endpoint, EndpointFailover, loadTls } from "./endpoints.ts";
import { TokenExpired } from "./failures.ts";
import { GrpcChannel } from "./grpc-channel.ts";
import { GrpcWatchStream } from "./grpc-watch.ts";
import {
  AUTHENTICATE,
  COMPACT,
  decodeAnswer,
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
} from "./messages.ts";

interface UnaryOptions extends EtcdCall {
  readonly repeatable: boolean;
  readonly onLostAnswer?: () => void;
  readonly revision?: number;
}

export class GrpcEtcdApi implements EtcdApi {
  readonly #config: EtcdConfig;
  readonly #timeoutMs: number;
  readonly #silenceMs: number | undefined;
  readonly #failover: EndpointFailover;
  readonly #channels = new Map<string, GrpcChannel>();
  #token: Promise<string> | undefined;

  constructor(
    config: EtcdConfig,
    endpoints: readonly Endpoint[],
    options: { readonly timeoutMs: number; readonly silenceMs?: number },
  ) {
    this.#config = config;
    this.#timeoutMs = options.timeoutMs;
    this.#silenceMs = options.silenceMs;
    this.#failover = new EndpointFailover(endpoints);
  }

  range(request: RangeRequest, call: EtcdCall): Promise<RangeResponse> {
    return this.#call(RANGE, request, { ...call, repeatable: true, revision: request.revision ?? 0 });
  }

  async txn(request: TxnRequest, call: EtcdCall & { readonly repeatable: boolean }): Promise<TxnResponse> {
    let hadLostAnswer = false;
    const onLostAnswer = (): void => {
      hadLostAnswer = true;
    };
    const answer = await this.#call(TXN, request, { ...call, onLostAnswer });
    return hadLostAnswer ? { ...answer, hadLostAnswer } : answer;
  }

  grantLease(ttlSeconds: number, call: EtcdCall): Promise<bigint> {
    return this.#call(LEASE_GRANT, { ttlSeconds }, { ...call, repeatable: true });
  }

  compact(revision: number, call: EtcdCall): Promise<void> {
    return this.#call(COMPACT, { revision }, { ...call, repeatable: true, revision });
  }

  async openWatch(create: WatchCreate, signal: AbortSignal): Promise<EtcdWatchStream> {
    return this.#failover.run({ timeoutMs: this.#timeoutMs, signal, repeatable: true }, (endpoint, budgetMs) =>
      this.#authenticated(endpoint, budgetMs, (token) =>
        GrpcWatchStream.open({
          call: (handlers) => this.#channel(endpoint).open({ path: WATCH_PATH, token }, handlers, { budgetMs, signal }),
          ...{ create, signal, budgetMs, silenceMs: this.#silenceMs, endpoint: endpoint.url },
          onLost: () => this.#failover.leave(endpoint),
        }),
      ),
    );
  }

  async close(): Promise<void> {
    for (const channel of this.#channels.values()) channel.close();
    this.#channels.clear();
  }

  #call<Q, S>(method: Method<Q, S>, request: Q, options: UnaryOptions): Promise<S> {
    const message = method.encode(request);
    return this.#failover.run({ ...options, timeoutMs: this.#timeoutMs }, (endpoint, budgetMs) =>
      this.#authenticated(endpoint, budgetMs, async (token) => {
        const { revision, signal } = options;
        const target = { path: method.path, token, revision };
        const answer = await this.#channel(endpoint).unary(target, message, { budgetMs, signal });
        return decodeAnswer(method.decode, answer);
      }),
    );
  }

  /** Calls `run` with a session token if there are credentials. Logs in again once if the token has expired. */
  async #authenticated<T>(endpoint: Endpoint, budgetMs: number, run: (token: string) => Promise<T>): Promise<T> {
    if (this.#config.credentials === undefined) return run("");
    try {
      return await run(await this.#login(endpoint, budgetMs));
    } catch (error) {
      if (!(error instanceof TokenExpired)) throw error;
      this.#token = undefined;
      return run(await this.#login(endpoint, budgetMs));
    }
  }

  #login(endpoint: Endpoint, budgetMs: number): Promise<string> {
    const { credentials: account } = this.#config;
    if (account === undefined) return Promise.resolve("");
    this.#token ??= this.#channel(endpoint)
      .unary({ path: AUTHENTICATE.path, token: "" }, AUTHENTICATE.encode(account), { budgetMs })
      .then((answer) => decodeAnswer(AUTHENTICATE.decode, answer))
      .catch((error: unknown) => {
        this.#token = undefined;
        // Authentication is disabled on the server: no token is needed.
        if (error instanceof Unauthorized && error.message.includes("authentication is not enabled")) return "";
        if (error instanceof TokenExpired) throw new DatastoreFailure(error.message);
        throw error;
      });
    return this.#token;
  }

  #channel(endpoint: Endpoint): GrpcChannel {
    let channel = this.#channels.get(endpoint.url);
    if (channel === undefined) {
      channel = new GrpcChannel(endpoint, () => loadTls(this.#config.tls));
      this.#channels.set(endpoint.url, channel);
    }
    return channel;
  }
}
