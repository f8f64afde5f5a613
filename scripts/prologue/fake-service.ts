// The node's service as tests need it: it keeps what it is asked and answers as it is told.
import { createServer, type Socket } from "node:net";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export type Answer = (connection: Socket, request: Buffer) => void;

export const say =
  (text: string): Answer =>
  (connection) =>
    connection.end(text);

export class FakeService implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), "prologue-"));
  readonly path: string;
  readonly requests: Buffer[] = [];
  answer: Answer = say("0\n\n");
  readonly #connections = new Set<Socket>();
  readonly #server = createServer({ allowHalfOpen: true }, (connection) => this.#accept(connection));

  private constructor(name: string) {
    this.path = name.startsWith("/") ? name : join(this.folder, name);
  }
  static async start(name = "cni.sock"): Promise<FakeService> {
    const service = new FakeService(name);
    await new Promise<void>((resolve) => service.#server.listen(service.path, resolve));
    return service;
  }

  #accept(connection: Socket): void {
    this.#connections.add(connection);
    const chunks: Buffer[] = [];
    connection.on("data", (chunk: Buffer) => chunks.push(chunk));
    connection.on("error", () => {});
    connection.on("close", () => this.#connections.delete(connection));
    connection.on("end", () => {
      const request = Buffer.concat(chunks);
      this.requests.push(request);
      this.answer(connection, request);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of this.#connections) connection.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
    rmSync(this.folder, { recursive: true, force: true });
  }
}
