// Runs calico-kube-controllers as a process: the executable if it is built, or else the source.
import { type ChildProcess, spawn } from "node:child_process";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { Environment } from "./cluster.ts";

const ROOT = join(import.meta.dir, "../..");

/** Returns the command for one of the programs and its arguments. */
export function command(role: "calico-kube-controllers" | "check-status", args: readonly string[]) {
  const built = join(ROOT, "dist", role);
  if (existsSync(built)) return { file: built, args, env: {} };
  return {
    file: process.execPath,
    args: [join(ROOT, "test/support/run-program.ts"), ...args],
    env: { PROGRAM: role },
  };
}

export class ControllersProgram implements AsyncDisposable {
  readonly folder = mkdtempSync(join(tmpdir(), "kube-controllers-"));
  readonly statusFile = join(this.folder, "status.json");
  output = "";
  /** Its exit code, or the signal that killed it. */
  readonly ended: Promise<number | string>;
  readonly #child: ChildProcess;

  constructor(env: Environment, args: readonly string[] = []) {
    const run = command("calico-kube-controllers", ["--status-file", this.statusFile, ...args]);
    this.#child = spawn(run.file, run.args, {
      cwd: this.folder,
      stdio: ["ignore", "pipe", "pipe"],
      env: { PATH: process.env["PATH"], ...run.env, ...env },
    });
    for (const stream of [this.#child.stdout, this.#child.stderr])
      stream?.on("data", (chunk: Buffer) => (this.output = (this.output + chunk.toString()).slice(-100_000)));
    this.ended = new Promise((resolve) => this.#child.on("exit", (code, signal) => resolve(code ?? signal ?? "")));
  }

  get pid(): number {
    return this.#child.pid ?? 0;
  }
  get isRunning(): boolean {
    return this.#child.exitCode === null && this.#child.signalCode === null;
  }
  kill(signal: "SIGTERM" | "SIGKILL" | "SIGSTOP" | "SIGCONT"): void {
    this.#child.kill(signal);
  }

  /** Returns the status of each part in the status file; undefined if there is no file. */
  readiness(): Readonly<Record<string, { readonly Ready: boolean; readonly Reason: string }>> {
    try {
      return (JSON.parse(readFileSync(this.statusFile, "utf8")) as { Readiness: never }).Readiness;
    } catch {
      return {};
    }
  }
  get isReady(): boolean {
    const parts = Object.values(this.readiness());
    return parts.length === 3 && parts.every(({ Ready }) => Ready);
  }

  /** Stops the process with SIGTERM, so that it releases the lease, and with SIGKILL if that takes long. */
  async [Symbol.asyncDispose](): Promise<void> {
    if (this.isRunning) this.#child.kill("SIGTERM");
    const force = setTimeout(() => this.#child.kill("SIGKILL"), 5000);
    await this.ended;
    clearTimeout(force);
    rmSync(this.folder, { recursive: true, force: true });
  }
}
