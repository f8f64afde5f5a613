// Provides a gRPC server of the service `cni.CniDataplane` on a Unix socket, which records its requests.
import { createServer, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { ProtoWriter } from "../../../src/lib/encoding/protobuf.ts";
import { rawFields } from "../../../src/lib/testing/proto-fields.ts";

export interface ReceivedCall {
  readonly method: string;
  /** The message's fields by number. */
  readonly fields: Fields;
}
export type Fields = { readonly [number: number]: readonly string[] };
export type Reply =
  | { readonly hostName?: string; readonly mac?: string; readonly error?: string }
  /** A gRPC status instead of a reply. */
  | { readonly status: number; readonly message: string }
  | "no reply";

export class DataplaneServer implements AsyncDisposable {
  readonly calls: ReceivedCall[] = [];
  /** By default every call succeeds. */
  replyTo: (call: ReceivedCall) => Reply | Promise<Reply> = () => ({});
  readonly #server = createServer();
  readonly #sessions = new Set<ServerHttp2Session>();

  private constructor() {
    this.#server.on("session", (session) => {
      this.#sessions.add(session);
      session.on("close", () => this.#sessions.delete(session));
      session.on("error", () => {});
    });
    this.#server.on("stream", (opened, headers) => this.#serve(opened as ServerHttp2Stream, String(headers[":path"])));
  }

  static async listen(path: string): Promise<DataplaneServer> {
    const server = new DataplaneServer();
    await new Promise<void>((resolve) => server.#server.listen(path, resolve));
    return server;
  }

  #serve(stream: ServerHttp2Stream, path: string): void {
    stream.on("error", () => {});
    const pieces: Buffer[] = [];
    stream.on("data", (piece: Buffer) => pieces.push(piece));
    stream.on("end", async () => {
      const call = { method: path, fields: fieldsOf(Buffer.concat(pieces).subarray(5)) };
      this.calls.push(call);
      const reply = await this.replyTo(call);
      if (reply === "no reply") return;
      const isStatus = "status" in reply;
      stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
      stream.on("wantTrailers", () =>
        stream.sendTrailers({
          "grpc-status": isStatus ? String(reply.status) : "0",
          ...(isStatus ? { "grpc-message": encodeURIComponent(reply.message) } : {}),
        }),
      );
      stream.end(isStatus ? undefined : encodeFrame(call, reply));
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of this.#sessions) session.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

/** Decodes a field that is a message. */
export const messageFields = (text: string | undefined): Fields => fieldsOf(Buffer.from(text ?? "", "latin1"));
/** Decodes a map of strings. */
export const mapOf = (entries: readonly string[] = []): Record<string, string> =>
  Object.fromEntries(entries.map((entry) => [textOf(messageFields(entry)[1]), textOf(messageFields(entry)[2])]));
export const textOf = (values: readonly string[] | undefined): string =>
  Buffer.from(values?.[0] ?? "", "latin1").toString("utf8");

function fieldsOf(bytes: Uint8Array): Fields {
  const fields: Record<number, string[]> = {};
  for (const { number, value } of rawFields(bytes))
    (fields[number] ??= []).push(typeof value === "number" ? String(value) : value.toString("latin1"));
  return fields;
}

function encodeFrame(
  call: ReceivedCall,
  { hostName, mac, error }: Exclude<Reply, "no reply" | { status: number }>,
): Buffer {
  const w = new ProtoWriter();
  w.bool(1, error === undefined);
  w.string(2, error);
  if (call.method.endsWith("/Add")) {
    w.string(3, hostName ?? textOf(call.fields[3]));
    w.string(4, mac ?? "02:00:00:00:00:41");
  }
  const message = w.finish();
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}
