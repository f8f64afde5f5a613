// Tests the gRPC client with a server that misbehaves in ways in which etcd does not.
import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { createServer, type Http2Server, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { AttemptFailed, AttemptTimedOut, TokenExpired } from "../../src/datastore/etcd/failures.ts";
import { GrpcChannel } from "../../src/datastore/etcd/grpc-channel.ts";
import { Unauthorized } from "../../src/datastore/index.ts";
import { freePort } from "../support/free-port.ts";
import { eventually } from "../../src/lib/testing/eventually.ts";

type Behaviour = (stream: ServerHttp2Stream, session: ServerHttp2Session) => void;

let server: Http2Server;
let port: number;
let behave: Behaviour;
const sessions = new Set<ServerHttp2Session>();
let connections = 0;

beforeAll(async () => {
  port = await freePort();
  server = createServer();
  server.on("session", (session) => {
    connections++;
    sessions.add(session);
    session.on("close", () => sessions.delete(session));
    session.on("error", () => {});
  });
  server.on("stream", (opened) => {
    const stream = opened as ServerHttp2Stream;
    stream.on("error", () => {});
    behave(stream, stream.session as ServerHttp2Session);
  });
  await new Promise<void>((resolve) => server.listen(port, "127.0.0.1", resolve));
});
afterAll(() => {
  for (const session of sessions) session.destroy();
  server.close();
});

const channel = (): GrpcChannel =>
  new GrpcChannel({ url: `http://127.0.0.1:${port}`, secure: false, host: "127.0.0.1", port }, () => ({}));
const ask = (on: GrpcChannel, budgetMs = 2000, signal?: AbortSignal): Promise<string | Error> =>
  on.unary({ path: "/test/Ask", token: "" }, Buffer.from("question"), { budgetMs, signal }).then(String, (e) => e);

const framed = (text: string): Buffer => {
  const body = Buffer.from(text);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(body.length, 1);
  return Buffer.concat([head, body]);
};
function answer(stream: ServerHttp2Stream, pieces: readonly Buffer[], status = "0", message = ""): void {
  stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
  stream.on("wantTrailers", () => stream.sendTrailers({ "grpc-status": status, "grpc-message": message }));
  const next = (i: number): void => {
    const piece = pieces[i];
    if (piece === undefined) return void stream.end();
    stream.write(piece);
    setTimeout(() => next(i + 1), 2);
  };
  next(0);
}

describe("one call", () => {
  test("a message that is split anywhere is reassembled", async () => {
    const whole = framed("a long answer");
    const on = channel();
    for (let cut = 1; cut < whole.length; cut++) {
      behave = (stream) => answer(stream, [whole.subarray(0, cut), whole.subarray(cut)]);
      expect(await ask(on)).toBe("a long answer");
    }
    behave = (stream) =>
      answer(
        stream,
        Array.from(whole, (byte) => Buffer.of(byte)),
      );
    expect(await ask(on)).toBe("a long answer");
    on.close();
  });

  test("an empty message is valid; an answer without a message is a failure", async () => {
    const on = channel();
    behave = (stream) => answer(stream, [framed("")]);
    expect(await ask(on)).toBe("");
    behave = (stream) => answer(stream, []);
    expect(await ask(on)).toMatchObject({
      message: expect.stringContaining("the answer is empty; the server may not be etcd"),
    });
    on.close();
  });

  test("an error is read from headers or trailers, and its percent-encoded message is decoded", async () => {
    const on = channel();
    behave = (stream) =>
      stream.respond(
        { ":status": 200, "grpc-status": "16", "grpc-message": "etcdserver: invalid auth token" },
        { endStream: true },
      );
    expect(await ask(on)).toBeInstanceOf(TokenExpired);
    behave = (stream) => answer(stream, [], "7", "etcdserver: permission denied f%C3%BCr alle");
    const refused = await ask(on);
    expect(refused).toBeInstanceOf(Unauthorized);
    expect((refused as Error).message).toContain("für alle");
    on.close();
  });

  test("distinguishes a server that does not speak gRPC from a lost connection", async () => {
    const on = channel();
    behave = (stream) => {
      stream.respond({ ":status": 502 });
      stream.end("bad gateway");
    };
    expect(await ask(on)).toMatchObject({ reason: "HTTP status 502: is this etcd?" });
    behave = (stream, session) => {
      stream.respond({ ":status": 200 });
      session.ping(() => session.destroy()); // the client answers a ping after it has read the headers
    };
    expect(await ask(on)).toMatchObject({ reason: "the connection was lost", mayHaveRun: true });
    on.close();
  });

  test("a compressed message is rejected, because compression was not negotiated", async () => {
    const on = channel();
    const compressed = framed("whatever");
    compressed[0] = 1;
    behave = (stream) => answer(stream, [compressed]);
    expect(await ask(on)).toBeInstanceOf(AttemptFailed);
    on.close();
  });
});

describe("the connection", () => {
  test("concurrent calls wait for the same connection, and later calls use it", async () => {
    const on = channel();
    behave = (stream) => answer(stream, [framed("yes")]);
    const before = connections;
    expect(await Promise.all([ask(on), ask(on), ask(on)])).toEqual(["yes", "yes", "yes"]);
    expect(await ask(on)).toBe("yes");
    expect(connections - before).toBe(1);
    on.close();
  });

  test("after GOAWAY, calls in flight are answered, and the next call uses a new connection", async () => {
    const on = channel();
    behave = (stream, session) => {
      session.goaway();
      setTimeout(() => answer(stream, [framed("the last")]), 20);
    };
    const before = connections;
    expect(await ask(on)).toBe("the last");
    behave = (stream) => answer(stream, [framed("the first")]);
    expect(await ask(on)).toBe("the first");
    expect(connections - before).toBe(2);
    on.close();
  });

  test("an unanswered call times out; the next call uses another connection, and open calls of the first continue", async () => {
    const on = channel();
    const messages: string[] = [];
    const ended = Promise.withResolvers<Error | undefined>();
    let stream: ServerHttp2Stream | undefined;
    behave = (opened) => {
      stream = opened;
      opened.respond({ ":status": 200, "content-type": "application/grpc" });
      opened.write(framed("one"));
    };
    const call = await on.open(
      { path: "/test/Watch", token: "" },
      { onMessage: (bytes) => void messages.push(String(bytes)), onEnd: ended.resolve },
      { budgetMs: 2000 },
    );
    call.send(Buffer.from("go"));
    await eventually(() => messages.length >= 1);
    behave = () => {};
    const started = performance.now();
    expect(await ask(on, 100)).toBeInstanceOf(AttemptTimedOut);
    expect(performance.now() - started).toBeLessThan(1000);
    behave = (opened) => answer(opened, [framed("yes")]);
    const before = connections;
    expect(await ask(on)).toBe("yes");
    expect(connections - before).toBe(1);
    stream!.write(framed("two"));
    await eventually(() => messages.length >= 2);
    expect(messages).toEqual(["one", "two"]);
    stream!.session!.destroy();
    expect(await ended.promise).toMatchObject({ reason: "the connection was lost" });
    on.close();
  });

  test("an aborted call rejects at once, and the server receives a reset", async () => {
    const on = channel();
    const cancelled = Promise.withResolvers<void>();
    behave = (stream) => stream.on("close", () => cancelled.resolve());
    const aborter = new AbortController();
    const asked = ask(on, 5000, aborter.signal);
    setTimeout(() => aborter.abort(new Error("enough")), 50);
    expect(await asked).toMatchObject({ message: "enough" });
    await cancelled.promise;
    behave = (stream) => answer(stream, [framed("yes")]);
    expect(await ask(on)).toBe("yes");
    on.close();
  });
});
