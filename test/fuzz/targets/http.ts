// Targets for HTTP: requests to the health and metrics servers, replies of the API server, and gRPC streams of etcd.
import { EventEmitter } from "node:events";
import type { ClientHttp2Session } from "node:http2";
import { type AddressInfo, connect, createServer } from "node:net";
import { DatastoreError } from "../../../src/datastore/errors.ts";
import { KubeApi } from "../../../src/datastore/kubernetes/api-client.ts";
import { KubeStatusError } from "../../../src/datastore/kubernetes/status-error.ts";
import { watchObjects } from "../../../src/datastore/kubernetes/watch-objects.ts";
import { AttemptFailed } from "../../../src/lib/http/attempt-failed.ts";
import { GrpcCall } from "../../../src/lib/http/grpc-call.ts";
import { type PageServer, servePages } from "../../../src/lib/http/pages.ts";
import { bytes } from "../structure/bytes.ts";
import { json } from "../structure/json.ts";
import { text } from "../structure/text.ts";
import { type FuzzTarget, require, textOf } from "../target.ts";

/** Time limit for one exchange: the receiver of an incomplete request or reply waits for more. */
const EXCHANGE_MS = 50;

let pages: Promise<PageServer> | undefined;
let requests = 0;

async function requestPage(input: Uint8Array): Promise<boolean> {
  pages ??= servePages({ host: "127.0.0.1", port: 0, pages: { "/liveness": () => ({ status: 200, body: "live" }) } });
  const { port } = await pages;
  const answer = await exchange(port, input);
  require(answer === "" || answer.startsWith("HTTP/1.1 "), `an answer that is not HTTP: ${answer.slice(0, 80)}`);
  if (++requests % 16 === 0) {
    const sound = await exchange(port, new TextEncoder().encode("GET /liveness HTTP/1.1\r\nHost: x\r\n\r\n"), 5000);
    require(sound.startsWith("HTTP/1.1 200 "), "the server still answers");
  }
  return answer.startsWith("HTTP/1.1 200 ");
}

/** Sends the bytes. Resolves with the reply when the server closes the connection, or at the time limit. */
function exchange(port: number, input: Uint8Array, limitMs = EXCHANGE_MS): Promise<string> {
  return new Promise((resolve) => {
    const chunks: Buffer[] = [];
    const socket = connect(port, "127.0.0.1", () => socket.write(input));
    const done = (): void => {
      clearTimeout(timer);
      socket.destroy();
      resolve(Buffer.concat(chunks).toString("latin1"));
    };
    const timer = setTimeout(done, limitMs);
    socket.on("data", (chunk: Buffer) => chunks.push(chunk));
    socket.on("error", done);
    socket.on("close", done);
  });
}

/** The time limit of an exchange has expired. */
class Stopped extends Error {}

let api: Promise<KubeApi> | undefined;
let answer: Uint8Array = new Uint8Array(0);

/** Starts an API server that sends the input as its reply, unchanged, and closes the connection. */
async function openApi(): Promise<KubeApi> {
  const server = createServer((socket) => {
    socket.on("error", () => {});
    socket.once("data", () => socket.end(answer));
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const { port } = server.address() as AddressInfo;
  const access = {
    server: new URL(`http://127.0.0.1:${port}`),
    tls: { rejectUnauthorized: true },
    credentials: async () => ({}),
    clearCache: () => {},
  };
  return new KubeApi(access, { timeoutMs: EXCHANGE_MS, watchIdleMs: EXCHANGE_MS, qps: 1e9, burst: 1e9 });
}

/** The first line selects the request, the rest is the reply. */
async function requestApi(input: Uint8Array): Promise<boolean> {
  const client = await (api ??= openApi());
  const line = input.indexOf(10);
  const request = textOf(input.subarray(0, Math.max(0, line)));
  answer = input.subarray(line + 1);
  const stop = new AbortController();
  const timer = setTimeout(() => stop.abort(new Stopped()), 4 * EXCHANGE_MS);
  const { signal } = stop;
  try {
    if (request === "watch") {
      const events = watchObjects({ api: client, path: "/api/v1/pods", after: "1", signal, kind: "Pod" });
      for await (const batch of events)
        for (const { object } of batch) require(typeof object.metadata === "object", "an event has an object");
      return true;
    }
    if (request === "list") {
      const { items } = await client.list("/api/v1/pods", { signal });
      require(Array.isArray(items), "a list has items");
    } else await client.get("/api/v1/pods/p", { signal });
    return true;
  } finally {
    clearTimeout(timer);
  }
}

class FakeStream extends EventEmitter {
  closed = false;
  destroyed = false;
  readonly rstCode = 0;
  close(): void {
    this.closed = true;
  }
  write(): void {}
  end(): void {}
}

/** Splits the input into chunks; its first byte gives their size. */
function readGrpc(input: Uint8Array): boolean {
  const stream = new FakeStream();
  const session = { request: () => stream } as unknown as ClientHttp2Session;
  const messages: Buffer[] = [];
  const ends: (Error | undefined)[] = [];
  const target = {
    path: "/x",
    server: "etcd",
    toError: (_code: number, message: string) => new AttemptFailed(message, true),
  };
  const handlers = {
    onMessage: (message: Buffer) => void messages.push(message),
    onEnd: (failure: Error | undefined) => void ends.push(failure),
  };
  const call = new GrpcCall(session, target, handlers);
  stream.emit("response", { ":status": 200 });
  const size = 1 + (input[0] ?? 0);
  const body = input.subarray(1);
  for (let at = 0; at < body.length; at += size) stream.emit("data", Buffer.from(body.subarray(at, at + size)));
  stream.emit("trailers", { "grpc-status": "0", "grpc-message": "%zz" });
  stream.emit("end");
  call.cancel();
  require(ends.length === 1, `the call ended ${ends.length} times`);
  const [failure] = ends;
  if (failure !== undefined) throw failure;
  const total = messages.reduce((sum, { length }) => sum + length + 5, 0);
  require(total <= body.length, "messages are not longer than the stream");
  return messages.length > 0;
}

export const targets: Readonly<Record<string, FuzzTarget>> = {
  "http-request": {
    about: "requests to the pages for health and metrics",
    structure: text,
    dictionary: [
      "GET ",
      " HTTP/1.1\r\n",
      "\r\n\r\n",
      "Host: a\r\n",
      "Content-Length: 5\r\n",
      "Transfer-Encoding: chunked\r\n",
      "Expect: 100-continue\r\n",
      "/liveness",
      "?",
      "%00",
      "//",
    ],
    rejections: [],
    run: requestPage,
  },
  "kubernetes-answer": {
    about: "HTTP answers of the API server: objects, lists, watches, errors",
    structure: (input, context) => (context.random.oneIn(2) ? text : json)(input, context),
    dictionary: [
      "HTTP/1.1 200 OK\r\n",
      "Transfer-Encoding: chunked\r\n",
      "Content-Length: ",
      "\r\n\r\n",
      '{"type":"ADDED","object":',
      "watch\n",
      "list\n",
      "Retry-After: 1\r\n",
    ],
    rejections: [DatastoreError, KubeStatusError, Stopped],
    run: requestApi,
  },
  "grpc-stream": {
    about: "the stream of a gRPC answer of etcd",
    structure: bytes,
    rejections: [AttemptFailed],
    run: readGrpc,
  },
};
