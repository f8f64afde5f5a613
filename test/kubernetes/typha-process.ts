// Runs Typha as a process for a test.
import { join } from "node:path";
import { freePort } from "../support/free-port.ts";

const RUNNER = join(import.meta.dir, "../support/run-program.ts");

export class TyphaProcess implements AsyncDisposable {
  /** Its output so far. */
  output = "";
  readonly #process;
  readonly #reading: Promise<void>;

  constructor(
    readonly port: number,
    env: Readonly<Record<string, string | undefined>>,
  ) {
    const child = Bun.spawn([process.execPath, RUNNER], {
      env: {
        PATH: process.env["PATH"] ?? "",
        PROGRAM: "calico-typha",
        TYPHA_DATASTORETYPE: "kubernetes",
        TYPHA_LOGFILEPATH: "none",
        ...env,
        TYPHA_SERVERPORT: String(port),
      },
      stdout: "pipe",
      stderr: "pipe",
    });
    this.#process = child;
    this.#reading = Promise.all([this.#collect(child.stdout), this.#collect(child.stderr)]).then(() => {});
  }

  static async start(env: Readonly<Record<string, string | undefined>>): Promise<TyphaProcess> {
    return new TyphaProcess(await freePort(), env);
  }

  async kill(): Promise<void> {
    this.#process.kill("SIGKILL");
    await this.#process.exited;
    await this.#reading;
  }

  async [Symbol.asyncDispose](): Promise<void> {
    await this.kill();
  }

  async #collect(stream: ReadableStream<Uint8Array>): Promise<void> {
    const decoder = new TextDecoder();
    for await (const chunk of stream) this.output += decoder.decode(chunk, { stream: true });
  }
}
