// One question to a gRPC server of this node, on a connection of its own: the plugin asks once and ends.
import { type ClientHttp2Session, connect as connectHttp2 } from "node:http2";
import { connect, type Socket } from "node:net";
import { AttemptFailed } from "../../lib/http/attempt-failed.ts";
import { GrpcCall } from "../../lib/http/grpc-call.ts";
import { CniError, INTERNAL, TRY_AGAIN_LATER } from "../error.ts";

export interface GrpcServer {
  /** As it was configured, for whoever must find it. */
  readonly name: string;
  readonly address: { readonly path: string } | { readonly host: string; readonly port: number };
}
export interface Question {
  readonly path: string;
  readonly message: Uint8Array;
  readonly timeoutMs: number;
}

/** The server may stop when nobody waits any more, not before: it would not say why. */
const LATER_MS = 500;
const DEADLINE_EXCEEDED = 4;
const UNAVAILABLE = 14;

export async function askGrpc(server: GrpcServer, { path, message, timeoutMs }: Question): Promise<Uint8Array> {
  return onConnection(server, timeoutMs, (session, { resolve, reject }: PromiseWithResolvers<Uint8Array>) => {
    let answer: Uint8Array | undefined;
    const target = {
      path,
      headers: { "grpc-timeout": `${timeoutMs + LATER_MS}m` },
      server: "a gRPC server",
      toError: (code: number, text: string) => refusal(server, code, text),
    };
    const call = new GrpcCall(session, target, {
      onMessage: (bytes) => (answer = Uint8Array.from(bytes)),
      onEnd: (failure) => {
        if (failure !== undefined) reject(failure);
        else if (answer === undefined) reject(new AttemptFailed("the answer is empty", true));
        else resolve(answer);
      },
    });
    call.sendLast(Buffer.from(message));
  });
}

/** That it speaks HTTP/2: it has told its settings. */
export async function reachGrpc(server: GrpcServer, timeoutMs: number): Promise<void> {
  return onConnection(server, timeoutMs, (session, { resolve }: PromiseWithResolvers<void>) => {
    session.once("remoteSettings", () => resolve());
  });
}

/** Whatever comes of it, the connection ends with it. */
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
  socket.once("close", () => setImmediate(lost)); // an error may follow, and tell more
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

function refusal(server: GrpcServer, code: number, text: string): Error {
  if (code === UNAVAILABLE || code === DEADLINE_EXCEEDED) return unreachable(server, text);
  return new CniError(INTERNAL, `grpc dataplane error: ${text} (gRPC status ${code})`, `asked at ${server.name}`);
}

const unreachable = (server: GrpcServer, reason: string, cause?: unknown): CniError =>
  new CniError(
    TRY_AGAIN_LATER,
    `the dataplane at ${server.name} does not answer: ${reason}`,
    "is its agent running on this node, and does dataplane_options.socket name its socket?",
    cause === undefined ? undefined : { cause },
  );
