// One gRPC call as an HTTP/2 request: messages with their lengths before them, the outcome in the last headers.
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
import { type ClientHttp2Session, type ClientHttp2Stream, constants } from "node:http2";
import { AttemptFailed } from "./attempt-failed.ts";

/** Before each message: whether it is compressed, and its length. */
const HEAD_BYTES = 5;
/** The limit of etcd's own client. */
const MOST_MESSAGE_BYTES = 2 ** 31 - 1;
const OK = 0;

export interface CallHandlers {
  readonly onMessage: (message: Buffer) => void;
  /** Once; without a failure the server was content. Nothing comes after it. */
  readonly onEnd: (failure: Error | undefined) => void;
}

export interface CallTarget {
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** What should answer there, for when something else does: `etcd`. */
  readonly server: string;
  /** What a status other than OK means there. */
  readonly refused: (code: number, message: string) => Error;
}

export class GrpcCall {
  readonly #target: CallTarget;
  readonly #handlers: CallHandlers;
  readonly #session: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  #unread: Buffer | undefined;
  /** How far `#unread` is filled. */
  #filled = 0;
  #outcome: { readonly code: number; readonly message: string } | undefined;
  #httpStatus = 0;
  #isOver = false;

  /** @throws AttemptFailed when the connection takes no more calls */
  constructor(session: ClientHttp2Session, target: CallTarget, handlers: CallHandlers) {
    this.#target = target;
    this.#handlers = handlers;
    this.#session = session;
    try {
      this.#stream = session.request({
        ":method": "POST",
        ":path": target.path,
        "content-type": "application/grpc",
        te: "trailers",
        ...target.headers,
      });
    } catch (error) {
      throw new AttemptFailed("the connection was lost", false, { cause: error });
    }
    const stream = this.#stream;
    stream.on("response", (headers) => {
      this.#httpStatus = Number(headers[":status"] ?? 0);
      this.#hear(headers); // a refusal comes with the first headers
    });
    stream.on("trailers", (headers) => this.#hear(headers));
    stream.on("data", (piece: Buffer) => this.#read(piece));
    stream.on("end", () => this.#conclude());
    stream.on("error", (error: Error) => this.#lose(error));
    stream.on("close", () => this.#conclude());
  }

  send(message: Buffer): void {
    if (!this.#isOver) this.#stream.write(framed(message));
  }

  /** The last message, or the only one. */
  sendLast(message: Buffer): void {
    if (!this.#isOver) this.#stream.end(framed(message));
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  /** The server may stop working on it; nobody hears of it any more. */
  cancel(): void {
    if (this.#isOver) return;
    this.#end(new AttemptFailed("cancelled", true));
    this.#stream.close(constants.NGHTTP2_CANCEL);
  }

  /** Destroys the connection and fails every call on it: for a server that does not answer. */
  dropConnection(reason: Error): void {
    this.#session.destroy(reason);
  }

  /** The connection is gone, and with it the answer. */
  connectionLost(cause?: Error): void {
    this.#lose(cause);
  }

  #hear(headers: Readonly<Record<string, unknown>>): void {
    const code = headers["grpc-status"];
    if (code !== undefined) this.#outcome = { code: Number(code), message: decoded(headers["grpc-message"]) };
  }

  #read(piece: Buffer): void {
    if (this.#httpStatus !== 200) return; // no gRPC: what it says is for people
    let rest = piece;
    try {
      while (rest.length > 0 && !this.#isOver) rest = this.#unread === undefined ? this.#begin(rest) : this.#goOn(rest);
    } catch (error) {
      this.#end(error instanceof Error ? error : new Error(String(error)));
      this.#stream.close(constants.NGHTTP2_CANCEL);
    }
  }

  /** Takes a message from its beginning; what follows it comes back. */
  #begin(bytes: Buffer): Buffer {
    if (bytes.length >= HEAD_BYTES) {
      const end = HEAD_BYTES + lengthIn(bytes);
      if (bytes.length >= end) {
        this.#handlers.onMessage(bytes.subarray(HEAD_BYTES, end));
        return bytes.subarray(end);
      }
      this.#unread = Buffer.allocUnsafe(end);
    } else this.#unread = Buffer.allocUnsafe(HEAD_BYTES); // not even its length is known yet
    this.#filled = 0;
    return this.#goOn(bytes);
  }

  #goOn(bytes: Buffer): Buffer {
    const unread = this.#unread ?? Buffer.alloc(0);
    const taken = bytes.copy(unread, this.#filled);
    this.#filled += taken;
    const rest = bytes.subarray(taken);
    if (this.#filled < unread.length) return rest;
    const end = HEAD_BYTES + lengthIn(unread);
    if (unread.length < end) {
      this.#unread = Buffer.allocUnsafe(end);
      unread.copy(this.#unread);
      return rest;
    }
    this.#unread = undefined;
    this.#handlers.onMessage(unread.subarray(HEAD_BYTES));
    return rest;
  }

  /** All was read, or nothing more will come. */
  #conclude(): void {
    const { code, message } = this.#outcome ?? {};
    if (code === undefined || message === undefined) {
      if (this.#stream.closed || this.#stream.destroyed) this.#lose();
    } else this.#end(code === OK ? undefined : this.#target.refused(code, message));
  }

  #lose(cause?: Error): void {
    if (this.#httpStatus !== 200 && this.#httpStatus !== 0)
      return this.#end(
        new AttemptFailed(`HTTP status ${this.#httpStatus}: is this ${this.#target.server}?`, true, { cause }),
      );
    const wasTaken = this.#stream.rstCode !== constants.NGHTTP2_REFUSED_STREAM;
    this.#end(new AttemptFailed("the connection was lost", wasTaken, { cause }));
  }

  #end(failure: Error | undefined): void {
    if (this.#isOver) return;
    this.#isOver = true;
    this.#handlers.onEnd(failure);
  }
}

function lengthIn(head: Buffer): number {
  if (head[0] !== 0) throw new AttemptFailed("the answer is compressed, which nobody asked for", true);
  const length = head.readUInt32BE(1);
  if (length > MOST_MESSAGE_BYTES) throw new AttemptFailed(`an answer of ${length} bytes is too long`, true);
  return length;
}

function framed(message: Buffer): Buffer {
  const frame = Buffer.allocUnsafe(HEAD_BYTES + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  message.copy(frame, HEAD_BYTES);
  return frame;
}

/** What is not printable ASCII travels as %XX. */
function decoded(text: unknown): string {
  if (typeof text !== "string") return "";
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
