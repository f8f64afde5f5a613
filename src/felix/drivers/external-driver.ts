// A dataplane in a process of its own: messages go out on its descriptor 3, reports come back on 4, each a frame of
// eight bytes of length and a protobuf message. A driver written for the original works here.
import { type ChildProcess, spawn } from "node:child_process";
import type { Readable, Writable } from "node:stream";
import { type DataplaneMessage, decodeFromDataplane, encodeToDataplane, frame, FrameReader } from "../../calc/index.ts";
import type { Logger } from "../../lib/log.ts";
import { aborted, delay } from "../../lib/retry.ts";
import { DriverStopped, type ReportListener, type RunningDriver } from "./driver.ts";

export interface ExternalDriverOptions {
  readonly program: string;
  readonly log: Logger;
  readonly report: ReportListener;
  /** How long it may take to end when asked, and then when killed. */
  readonly termMs?: number;
  readonly killMs?: number;
}

const REAP_MS = 300;

export class ExternalDriver implements RunningDriver {
  readonly #options: ExternalDriverOptions;
  readonly #child: ChildProcess;
  readonly #out: Writable;
  readonly #ended: Promise<Error>;
  #sequence = 0;
  #full: Promise<void> | undefined;

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
      const stop = (why: string) => resolve(new DriverStopped(`dataplane driver ${program}: ${why}`));
      this.#child.on("error", (error) => stop(error.message));
      this.#child.on("exit", (code, signal) =>
        stop(code === null ? `killed by ${signal ?? "?"}` : `exited with ${code}`),
      );
      // A driver that died breaks its pipe first and is reaped after: that it died is the better news.
      out.on("error", (error) => setTimeout(() => stop(`its pipe broke: ${error.message}`), REAP_MS));
      const frames = new FrameReader();
      back.on("data", (chunk: Buffer) => {
        try {
          for (const message of frames.take(chunk)) this.#take(message);
        } catch (error) {
          stop(`its reports cannot be read: ${error instanceof Error ? error.message : String(error)}`);
        }
      });
    });
    log.info("started the dataplane driver", { program, pid: this.#child.pid });
  }

  send(message: DataplaneMessage): void {
    const hasRoom = this.#out.write(frame(encodeToDataplane(message, this.#sequence++)));
    if (hasRoom || this.#full !== undefined) return;
    this.#full = new Promise((resolve) =>
      this.#out.once("drain", () => {
        this.#full = undefined;
        resolve();
      }),
    );
  }

  ready(): Promise<void> {
    return this.#full ?? Promise.resolve();
  }

  async run(signal: AbortSignal): Promise<void> {
    const end = await Promise.race([this.#ended, aborted(signal)]);
    if (end !== undefined) throw end;
    await this.#stop();
  }

  async #stop(): Promise<void> {
    const gone = (ms: number) => Promise.race([this.#ended.then(() => true), delay(ms).then(() => false)]);
    this.#child.kill("SIGTERM");
    if (await gone(this.#options.termMs ?? 4000)) return;
    this.#options.log.warn("the dataplane driver does not end; killing it", { pid: this.#child.pid });
    this.#child.kill("SIGKILL");
    await gone(this.#options.killMs ?? 1000);
  }

  #take(message: Uint8Array): void {
    const report = decodeFromDataplane(message);
    if (report === undefined || report.type === "dataplaneInSync")
      this.#options.log.warn("the dataplane driver reports something unknown; ignored", { type: report?.type });
    else this.#options.report(report);
  }
}
