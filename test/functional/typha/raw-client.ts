// Provides a client that sends arbitrary bytes and stores the received frames.
import { connect, type Socket } from "node:net";
import { connect as connectTls } from "node:tls";
import type { ConnectionOptions } from "node:tls";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import {
  FEATURES,
  FRAME,
  type Frame,
  FrameReader,
  jsonFrame,
  MAX_SERVER_FRAME,
  PREFACE,
} from "../../../src/typha/protocol.ts";

export const HELLO = {
  version: 1,
  hostname: "raw",
  info: "",
  clientVersion: "",
  syncer: "felix",
  features: FEATURES as readonly string[],
};

export class RawClient implements Disposable {
  readonly socket: Socket;
  readonly frames: Frame[] = [];
  readonly #reader = new FrameReader({ maxFrame: MAX_SERVER_FRAME, allowCompressed: true });
  isClosed = false;
  bytes = 0;

  constructor(port: number, options: { readonly reads?: boolean; readonly tls?: ConnectionOptions } = {}) {
    const { tls } = options;
    this.socket =
      tls === undefined
        ? connect({ port, host: "127.0.0.1" })
        : connectTls({ port, host: "127.0.0.1", checkServerIdentity: () => undefined, ...tls });
    this.socket.on("error", () => {});
    this.socket.on("close", () => (this.isClosed = true));
    if (options.reads === false) this.socket.pause();
    else
      this.socket.on("data", (chunk: Buffer) => {
        this.bytes += chunk.length;
        this.#reader.push(chunk);
        try {
          for (let frame = this.#reader.next(); frame !== undefined; frame = this.#reader.next())
            this.frames.push(frame);
        } catch {
          this.socket.destroy(); // a reply in another protocol, such as a TLS alert
        }
      });
  }

  send(bytes: Uint8Array): this {
    this.socket.write(bytes);
    return this;
  }

  greet(hello: object = HELLO): this {
    return this.send(Buffer.concat([PREFACE, jsonFrame(FRAME.clientHello, hello)]));
  }

  /** Returns the reason in the server's goodbye, after the connection is closed. */
  async goodbye(withinMs?: number): Promise<string> {
    await eventually(() => this.isClosed || this.frames.some(({ type }) => type === FRAME.goodbye), withinMs);
    const frame = this.frames.find(({ type }) => type === FRAME.goodbye);
    return frame === undefined ? "" : (JSON.parse(frame.payload.toString()) as { reason: string }).reason;
  }

  types(): number[] {
    return this.frames.map(({ type }) => type);
  }

  [Symbol.dispose](): void {
    this.socket.destroy();
  }
}
