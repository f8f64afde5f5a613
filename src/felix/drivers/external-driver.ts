// Runs an external dataplane driver, with Calico's protocol: the driver reads messages from file descriptor 3 and writes
// reports to 4. A frame is a length of eight bytes and a protobuf message.
import { type ChildProcess, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { type DataplaneMessage, decodeFromDataplane, encodeToDataplane, frame, FrameReader } from "../../calc/index.ts";
import type { Logger } from "../../lib/log/log.ts";
import { aborted, delay } from "../../lib/retry.ts";
import { DriverStopped, type ReportListener, type RunningDriver } from "./driver.ts";

export interface ExternalDriverOptions {
  readonly program: string;
  readonly log: Logger;
  readonly report: ReportListener;
  /** How long to wait for the process to exit after SIGTERM, and after SIGKILL. */
  readonly termMs?: number;
  readonly killMs?: number;
}

const EXIT_AFTER_PIPE_ERROR_MS = 300;

export class ExternalDriver implements RunningDriver {
  readonly #options: ExternalDriverOptions;
  readonly #child: ChildProcess;
  readonly #out: Writable;
  readonly #ended: Promise<Error>;
  #sequence = 0;
  #drained: Promise<void> | undefined;

  constructor(options: ExternalDriverOptions) {
    this.#options = options;
    const { log, program } = options;
    this.#child = spawn(program, [], { stdio: ["ignore", "pipe", "pipe", "pipe", "pipe"] });
    const [, stdout, stderr, out, back] = this.#child.stdio as unknown as [
      null,
      Readable,
      Readable,
      Writable,
      Readable,
    ];
    this.#out = out;
    stdout.on("data", (chunk: Buffer) => process.stdout.write(chunk));
    stderr.on("data", (chunk: Buffer) => process.stderr.write(chunk));
    this.#ended = new Promise((resolve) => {
      const stop = (reason: string) => resolve(new DriverStopped(`dataplane driver ${program}: ${reason}`));
      this.#child.on("error", (error) => stop(error.message));
      this.#child.on("exit", (code, signal) =>
        stop(code === null ? `killed by ${signal ?? "?"}` : `exited with ${code}`),
      );
      // If the driver dies, the pipe error arrives before its exit status, which explains more: wait for the status.
      out.on("error", (error) => setTimeout(() => stop(`write failed: ${error.message}`), EXIT_AFTER_PIPE_ERROR_MS));
      const frames = new FrameReader();
      back.on("data", (chunk: Buffer) => {
        try {
          for (const message of frames.read(chunk)) this.#onReport(message);
        } catch (error) {
          stop(`its reports cannot be decoded: ${error instanceof Error ? error.message : String(error)}`);
        }
      });
    });
    log.info("started the dataplane driver", { program, pid: this.#child.pid });
  }

  send(message: DataplaneMessage): void {
    const isBelowLimit = this.#out.write(frame(encodeToDataplane(message, this.#sequence++)));
    if (isBelowLimit || this.#drained !== undefined) return;
    this.#drained = new Promise((resolve) =>
      this.#out.once("drain", () => {
        this.#drained = undefined;
        resolve();
      }),
    );
  }

  ready(): Promise<void> {
    return this.#drained ?? Promise.resolve();
  }

  async run(signal: AbortSignal): Promise<void> {
    const end = await Promise.race([this.#ended, aborted(signal)]);
    if (end !== undefined) throw end;
    await this.#stop();
  }

  async #stop(): Promise<void> {
    const exited = (ms: number) => Promise.race([this.#ended.then(() => true), delay(ms).then(() => false)]);
    this.#child.kill("SIGTERM");
    if (await exited(this.#options.termMs ?? 4000)) return;
    this.#options.log.warn("the dataplane driver did not exit after SIGTERM; killing it", { pid: this.#child.pid });
    this.#child.kill("SIGKILL");
    await exited(this.#options.killMs ?? 1000);
  }

  #onReport(message: Uint8Array): void {
    const report = decodeFromDataplane(message);
    if (report === undefined || report.type === "dataplaneInSync")
      this.#options.log.warn("unknown report from the dataplane driver ignored", { type: report?.type });
    else this.#options.report(report);
  }
}
