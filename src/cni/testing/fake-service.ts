// Provides servers for tests of the service's client: one that records requests and sends a given reply, and one that is stopped.
import { once } from "node:events";
import { connect, createServer, type Socket } from "node:net";
import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";

export type Answer = (connection: Socket, request: Buffer) => unknown;

export const replyWith =
  (text: string): Answer =>
  (connection) =>
    connection.end(text);

export class FakeService implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), "fake-service-"));
  readonly path: string;
  readonly requests: Buffer[] = [];
  answer: Answer = replyWith("0\n\n");
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
      void this.answer(connection, request);
    });
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const connection of this.#connections) connection.destroy();
    await new Promise((resolve) => this.#server.close(resolve));
    rmSync(this.folder, { recursive: true, force: true });
  }
}

/** A process that listens and is stopped with SIGSTOP: it accepts no connection, and its queue can be filled. */
export class StoppedService implements AsyncDisposable {
  readonly #waiting: Socket[] = [];
  private constructor(
    readonly path: string,
    readonly child: ReturnType<typeof Bun.spawn>,
  ) {}

  static async start(path: string): Promise<StoppedService> {
    const script = `require("node:net").createServer().listen({ path: process.argv[1], backlog: 1 }, () => console.log("listens"))`;
    const child = Bun.spawn([process.execPath, "-e", script, path], { stdout: "pipe", stderr: "inherit" });
    await child.stdout.getReader().read();
    child.kill("SIGSTOP");
    return new StoppedService(path, child);
  }

  /** Connects until the queue of connections is full. */
  async fill(): Promise<void> {
    for (let fits = true; fits; ) {
      const socket = connect(this.path);
      this.#waiting.push(socket);
      fits = await once(socket, "connect").then(
        () => true,
        () => false,
      );
    }
  }

  async [Symbol.asyncDispose](): Promise<void> {
    for (const socket of this.#waiting) socket.destroy();
    this.child.kill("SIGKILL");
    await this.child.exited;
  }
}
