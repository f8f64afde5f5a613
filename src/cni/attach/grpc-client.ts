// Sends one request to a gRPC server of this node, on a new connection, because the plugin process exits after the reply.
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { AttemptFailed } from "../../lib/http/attempt-failed.ts";
import { GrpcCall } from "../../lib/http/grpc-call.ts";
import { CniError, INTERNAL, TRY_AGAIN_LATER } from "../error.ts";

export interface GrpcServer {
  /** As configured, for messages. */
  readonly name: string;
  readonly address: { readonly path: string } | { readonly host: string; readonly port: number };
}
export interface GrpcRequest {
  readonly path: string;
  readonly message: Uint8Array;
  readonly timeoutMs: number;
}

/** Added to the timeout that the server gets, so that this client's timeout, which gives a clearer error, expires first. */
const SERVER_TIMEOUT_MARGIN_MS = 500;
const DEADLINE_EXCEEDED = 4;
const UNAVAILABLE = 14;

export async function callGrpc(server: GrpcServer, { path, message, timeoutMs }: GrpcRequest): Promise<Uint8Array> {
  return onConnection(server, timeoutMs, (session, { resolve, reject }: PromiseWithResolvers<Uint8Array>) => {
    let reply: Uint8Array | undefined;
    const target = {
      path,
      headers: { "grpc-timeout": `${timeoutMs + SERVER_TIMEOUT_MARGIN_MS}m` },
      server: "a gRPC server",
      toError: (code: number, text: string) => statusError(server, code, text),
    };
    const call = new GrpcCall(session, target, {
      onMessage: (bytes) => (reply = Uint8Array.from(bytes)),
      onEnd: (failure) => {
        if (failure !== undefined) reject(failure);
        else if (reply === undefined) reject(new AttemptFailed("the reply is empty", true));
        else resolve(reply);
      },
    });
    call.sendLast(Buffer.from(message));
  });
}

/** Resolves when the server has sent its HTTP/2 settings. */
export async function checkGrpcServer(server: GrpcServer, timeoutMs: number): Promise<void> {
  return onConnection(server, timeoutMs, (session, { resolve }: PromiseWithResolvers<void>) => {
    session.once("remoteSettings", () => resolve());
  });
}

/** Opens a connection, and closes it when `use` has settled the outcome or the timeout expires. */
async function onConnection<T>(
  server: GrpcServer,
  timeoutMs: number,
  use: (session: ClientHttp2Session, outcome: PromiseWithResolvers<T>) => void,
): Promise<T> {
  const outcome = Promise.withResolvers<T>();
  const { reject } = outcome;
  let session: ClientHttp2Session | undefined;
  const timer = setTimeout(() => reject(new AttemptFailed(`no answer within ${timeoutMs / 1000} s`, true)), timeoutMs);
  const socket: Socket = connect(server.address);
  const lost = (error?: Error): void =>
    reject(new AttemptFailed(error?.message ?? "the connection was closed", session !== undefined, { cause: error }));
  socket.on("error", lost);
  socket.once("close", () => setImmediate(lost)); // an error event with a more specific message may follow
  socket.once("connect", () => {
    session = connectHttp2("http://localhost", { createConnection: () => socket });
    session.on("error", lost);
    session.once("close", () => setImmediate(lost));
    use(session, outcome);
  });
  try {
    return await outcome.promise;
  } catch (error) {
    if (!(error instanceof AttemptFailed)) throw error;
    throw unreachable(server, error.reason, error);
  } finally {
    clearTimeout(timer);
    session?.destroy();
    socket.destroy();
  }
}

function statusError(server: GrpcServer, code: number, text: string): Error {
  if (code === UNAVAILABLE || code === DEADLINE_EXCEEDED) return unreachable(server, text);
  return new CniError(INTERNAL, `grpc dataplane error: ${text} (gRPC status ${code})`, `server: ${server.name}`);
}

const unreachable = (server: GrpcServer, reason: string, cause?: unknown): CniError =>
  new CniError(
    TRY_AGAIN_LATER,
    `the dataplane at ${server.name} does not respond: ${reason}`,
    "is its agent running on this node, and does dataplane_options.socket name its socket?",
    cause === undefined ? undefined : { cause },
  );
