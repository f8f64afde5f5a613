// Makes one gRPC call as an HTTP/2 request: each message has a length prefix, and the status is in the trailers.
// https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md
import { type ClientHttp2Session, type ClientHttp2Stream, constants } from "node:http2";
import { AttemptFailed } from "./attempt-failed.ts";

/** Precedes each message: the compressed flag and the length. */
const PREFIX_BYTES = 5;
/** The same limit as in etcd's own client. */
const MAX_MESSAGE_BYTES = 2 ** 31 - 1;
const OK = 0;

export interface CallHandlers {
  readonly onMessage: (message: Buffer) => void;
  /** Called once, as the last call; undefined if the status is OK. */
  readonly onEnd: (failure: Error | undefined) => void;
}

export interface CallTarget {
  readonly path: string;
  readonly headers?: Readonly<Record<string, string>>;
  /** The expected server (`etcd`), for the error message if an HTTP server without gRPC replies. */
  readonly server: string;
  /** Converts a status other than OK. */
  readonly toError: (code: number, message: string) => Error;
}

export class GrpcCall {
  readonly #target: CallTarget;
  readonly #handlers: CallHandlers;
  readonly #session: ClientHttp2Session;
  readonly #stream: ClientHttp2Stream;
  /** A message that has not been received completely, with its prefix. */
  #partial: Buffer | undefined;
  /** Number of bytes in `#partial` that were received. */
  #received = 0;
  #status: { readonly code: number; readonly message: string } | undefined;
  #httpStatus = 0;
  #hasEnded = false;

  /** @throws AttemptFailed if the connection accepts no more calls */
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
      this.#readStatus(headers); // an error without messages has its status in the first headers
    });
    stream.on("trailers", (headers) => this.#readStatus(headers));
    stream.on("data", (chunk: Buffer) => this.#read(chunk));
    stream.on("end", () => this.#finish());
    stream.on("error", (error: Error) => this.#fail(error));
    stream.on("close", () => this.#finish());
  }

  send(message: Buffer): void {
    if (!this.#hasEnded) this.#stream.write(frame(message));
  }

  /** The last message, or the only one. */
  sendLast(message: Buffer): void {
    if (!this.#hasEnded) this.#stream.end(frame(message));
  }

  pause(): void {
    this.#stream.pause();
  }

  resume(): void {
    this.#stream.resume();
  }

  /** Ends the call at once, and lets the server stop working on it. */
  cancel(): void {
    if (this.#hasEnded) return;
    this.#end(new AttemptFailed("cancelled", true));
    this.#stream.close(constants.NGHTTP2_CANCEL);
  }

  /** Closes the connection, so that all its calls fail. For a server that does not respond. */
  dropConnection(reason: Error): void {
    this.#session.destroy(reason);
  }

  onConnectionLost(cause?: Error): void {
    this.#fail(cause);
  }

  #readStatus(headers: Readonly<Record<string, unknown>>): void {
    const code = headers["grpc-status"];
    if (code !== undefined) this.#status = { code: Number(code), message: decodeMessage(headers["grpc-message"]) };
  }

  #read(chunk: Buffer): void {
    if (this.#httpStatus !== 200) return; // not gRPC, but an error page
    let rest = chunk;
    try {
      while (rest.length > 0 && !this.#hasEnded)
        rest = this.#partial === undefined ? this.#startMessage(rest) : this.#continueMessage(rest);
    } catch (error) {
      this.#end(error instanceof Error ? error : new Error(String(error)));
      this.#stream.close(constants.NGHTTP2_CANCEL);
    }
  }

  /** Reads a message from its start, and returns the bytes that follow it. */
  #startMessage(bytes: Buffer): Buffer {
    if (bytes.length >= PREFIX_BYTES) {
      const end = PREFIX_BYTES + lengthIn(bytes);
      if (bytes.length >= end) {
        this.#handlers.onMessage(bytes.subarray(PREFIX_BYTES, end));
        return bytes.subarray(end);
      }
      this.#partial = Buffer.allocUnsafe(end);
    } else this.#partial = Buffer.allocUnsafe(PREFIX_BYTES); // the length is not known yet
    this.#received = 0;
    return this.#continueMessage(bytes);
  }

  #continueMessage(bytes: Buffer): Buffer {
    const partial = this.#partial ?? Buffer.alloc(0);
    const copied = bytes.copy(partial, this.#received);
    this.#received += copied;
    const rest = bytes.subarray(copied);
    if (this.#received < partial.length) return rest;
    const end = PREFIX_BYTES + lengthIn(partial);
    if (partial.length < end) {
      this.#partial = Buffer.allocUnsafe(end);
      partial.copy(this.#partial);
      return rest;
    }
    this.#partial = undefined;
    this.#handlers.onMessage(partial.subarray(PREFIX_BYTES));
    return rest;
  }

  /** Called when all messages were read, and when the stream is closed. */
  #finish(): void {
    const { code, message } = this.#status ?? {};
    if (code === undefined || message === undefined) {
      if (this.#stream.closed || this.#stream.destroyed) this.#fail();
    } else this.#end(code === OK ? undefined : this.#target.toError(code, message));
  }

  #fail(cause?: Error): void {
    if (this.#httpStatus !== 200 && this.#httpStatus !== 0)
      return this.#end(
        new AttemptFailed(`HTTP status ${this.#httpStatus}: is this ${this.#target.server}?`, true, { cause }),
      );
    const mayHaveRun = this.#stream.rstCode !== constants.NGHTTP2_REFUSED_STREAM;
    this.#end(new AttemptFailed("the connection was lost", mayHaveRun, { cause }));
  }

  #end(failure: Error | undefined): void {
    if (this.#hasEnded) return;
    this.#hasEnded = true;
    this.#handlers.onEnd(failure);
  }
}

function lengthIn(prefix: Buffer): number {
  if (prefix[0] !== 0) throw new AttemptFailed("compressed message received, but compression was not negotiated", true);
  const length = prefix.readUInt32BE(1);
  if (length > MAX_MESSAGE_BYTES) throw new AttemptFailed(`a message of ${length} bytes is too long`, true);
  return length;
}

function frame(message: Buffer): Buffer {
  const frame = Buffer.allocUnsafe(PREFIX_BYTES + message.length);
  frame[0] = 0;
  frame.writeUInt32BE(message.length, 1);
  message.copy(frame, PREFIX_BYTES);
  return frame;
}

/** Decodes a status message, in which all characters except printable ASCII are percent-encoded. */
function decodeMessage(text: unknown): string {
  if (typeof text !== "string") return "";
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}
