// A gRPC server of the service `cni.CniDataplane` on a Unix socket, on the runtime's HTTP/2: it remembers what it was asked.
import { createServer, type ServerHttp2Session, type ServerHttp2Stream } from "node:http2";
import { ProtoWriter } from "../../../src/lib/encoding/protobuf.ts";
import { rawFields } from "../../../src/lib/testing/proto-fields.ts";

export interface Asked {
  readonly method: string;
  /** The message's fields by their numbers. */
  readonly fields: Fields;
}
export type Fields = { readonly [number: number]: readonly string[] };
export type Answer =
  | { readonly hostName?: string; readonly mac?: string; readonly refusal?: string }
  /** A status of gRPC instead of an answer. */
  | { readonly status: number; readonly message: string }
  | "nothing";

export class DataplaneServer implements AsyncDisposable {
  readonly asked: Asked[] = [];
  /** By method; absent: done, as it was wished. */
  answer: (asked: Asked) => Answer | Promise<Answer> = () => ({});
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
      const asked = { method: path, fields: fieldsOf(Buffer.concat(pieces).subarray(5)) };
      this.asked.push(asked);
      const answer = await this.answer(asked);
      if (answer === "nothing") return;
      const isStatus = "status" in answer;
      stream.respond({ ":status": 200, "content-type": "application/grpc" }, { waitForTrailers: true });
      stream.on("wantTrailers", () =>
        stream.sendTrailers({
          "grpc-status": isStatus ? String(answer.status) : "0",
          ...(isStatus ? { "grpc-message": encodeURIComponent(answer.message) } : {}),
        }),
      );
      stream.end(isStatus ? undefined : framed(asked, answer));
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const session of this.#sessions) session.destroy();
    await new Promise<void>((resolve) => this.#server.close(() => resolve()));
  }
}

/** What one field holds when it is a message. */
export const inside = (text: string | undefined): Fields => fieldsOf(Buffer.from(text ?? "", "latin1"));
/** A map of texts. */
export const mapOf = (entries: readonly string[] = []): Record<string, string> =>
  Object.fromEntries(entries.map((entry) => [textOf(inside(entry)[1]), textOf(inside(entry)[2])]));
export const textOf = (values: readonly string[] | undefined): string =>
  Buffer.from(values?.[0] ?? "", "latin1").toString("utf8");

function fieldsOf(bytes: Uint8Array): Fields {
  const fields: Record<number, string[]> = {};
  for (const { number, value } of rawFields(bytes))
    (fields[number] ??= []).push(typeof value === "number" ? String(value) : value.toString("latin1"));
  return fields;
}

function framed(asked: Asked, { hostName, mac, refusal }: Exclude<Answer, "nothing" | { status: number }>): Buffer {
  const w = new ProtoWriter();
  w.bool(1, refusal === undefined);
  w.string(2, refusal);
  if (asked.method.endsWith("/Add")) {
    w.string(3, hostName ?? textOf(asked.fields[3]));
    w.string(4, mac ?? "02:00:00:00:00:41");
  }
  const message = w.finish();
  const head = Buffer.alloc(5);
  head.writeUInt32BE(message.length, 1);
  return Buffer.concat([head, message]);
}
