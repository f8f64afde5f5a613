// Runs child processes: starts each when its start condition holds, restarts it when it exits, and stops all of them when
// the supervisor stops. Their state is in one file, for probes and operators.
import { type ChildProcess, spawn } from "node:child_process";
import { readlinkSync } from "node:fs";
import type { Logger } from "../../lib/log/log.ts";
import { startTimeOf } from "../../lib/process/process-identity.ts";
import { backoffDelay, pause } from "../../lib/retry.ts";
import { replaceFile } from "../../lib/files/replace-file.ts";

export interface ChildPlan {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  /** Computed at each start and appended to the command. */
  readonly extraArguments?: () => readonly string[];
  /** The name under which the program sees itself called. */
  readonly argv0?: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** Advice for the operator if the program is not found. */
  readonly ifMissing?: string;
  /** Start condition, polled. */
  readonly startsWhen?: () => boolean;
  /** Exit code with which the child requests a restart, for example after a configuration change. */
  readonly restartCode?: number;
  /** SIGKILL for BIRD: on SIGTERM it would close its sessions, and peers would delete the node's routes. */
  readonly stopSignal: "SIGTERM" | "SIGKILL";
}

export interface ChildState {
  readonly name: string;
  /** `restarting`: the child requested it by its exit code, at most `MAX_RESTARTS_IN_A_ROW` times. */
  readonly state: "waiting" | "running" | "stopped" | "failing" | "restarting";
  readonly pid?: number;
  readonly startedAt?: string;
  /** Distinguishes this process from a later one with the same pid (`startTimeOf`). */
  readonly startTime?: string;
  readonly restarts: number;
  readonly lastExit?: {
    readonly code: number | null;
    readonly signal: string | null;
    readonly at: string;
    /** Set if the process could not be started. */
    readonly error?: string;
  };
}

export interface SupervisorState {
  /** All pids are those of calico-node's pid namespace, which in a container is not the host's. */
  readonly pid: number;
  /** Distinguishes this calico-node from a later process with the same pid (`startTimeOf`). */
  readonly startTime?: string;
  /** Identifies the pid namespace that the pids belong to: `pid:[4026531836]`. */
  readonly pidNamespace?: string;
  readonly children: readonly ChildState[];
}

export interface SupervisorOptions {
  readonly plans: readonly ChildPlan[];
  /** The state file. */
  readonly file: string;
  readonly log: Logger;
  /** Receives each line that a child writes. */
  readonly output: (child: string, line: string) => void;
  readonly backoff?: { readonly firstMs: number; readonly maxMs: number };
  readonly stopWithinMs?: number;
}

const BACKOFF = { firstMs: 250, maxMs: 10_000 };
/** A child that ran longer than this is restarted without delay. */
const STABLE_AFTER_MS = 60_000;
/** More requested restarts in a row than this, each within `STABLE_AFTER_MS`, are a failure. */
const MAX_RESTARTS_IN_A_ROW = 3;
const POLL_MS = 100;
const STOP_WITHIN_MS = 5_000;

export class Supervisor {
  readonly #options: SupervisorOptions;
  readonly #states = new Map<string, ChildState>();

  constructor(options: SupervisorOptions) {
    this.#options = options;
    for (const { name } of options.plans) this.#states.set(name, { name, state: "waiting", restarts: 0 });
  }

  /** Returns when the signal has aborted and all children have exited. */
  async run(signal: AbortSignal): Promise<void> {
    this.#write();
    await Promise.all(this.#options.plans.map((plan) => this.#keepRunning(plan, signal)));
  }

  get state(): SupervisorState {
    return {
      ...identityOf(process.pid),
      pidNamespace: readlinkSync("/proc/self/ns/pid"),
      children: [...this.#states.values()],
    };
  }

  async #keepRunning(plan: ChildPlan, signal: AbortSignal): Promise<void> {
    const { log } = this.#options;
    const backoff = this.#options.backoff ?? BACKOFF;
    for (let failures = 0; !signal.aborted; ) {
      while (plan.startsWhen?.() === false && !signal.aborted) await pause(POLL_MS, signal);
      if (signal.aborted) break;
      const startedMs = performance.now();
      const { code, signal: endedBy, error } = await this.#runOnce(plan, failures, signal);
      if (signal.aborted) break;
      failures = performance.now() - startedMs > STABLE_AFTER_MS ? 0 : failures + 1;
      const delayMs = failures === 0 ? 0 : backoffDelay(backoff, failures - 1);
      if (error === undefined)
        log.warn("component exited, restarting", { name: plan.name, code, signal: endedBy, delayMs });
      await pause(delayMs, signal);
    }
    this.#set(plan.name, { state: "stopped" });
  }

  /** @param failures number of exits in a row, each within `STABLE_AFTER_MS` */
  async #runOnce(plan: ChildPlan, failures: number, signal: AbortSignal) {
    const { log, output } = this.#options;
    const restarts = this.#states.get(plan.name)?.restarts ?? 0;
    const [program, ...args] = plan.command;
    const child = spawn(program, [...args, ...(plan.extraArguments?.() ?? [])], {
      env: plan.env as NodeJS.ProcessEnv,
      stdio: ["ignore", "pipe", "pipe"],
      argv0: plan.argv0,
    });
    for (const stream of [child.stdout, child.stderr]) forEachLine(stream, (line) => output(plan.name, line));
    const exited = waitForExit(child);
    const pid = child.pid;
    if (pid !== undefined) {
      this.#set(plan.name, {
        state: "running",
        ...identityOf(pid),
        startedAt: new Date().toISOString(),
        restarts,
      });
      log.info("component started", { name: plan.name, pid });
    }
    const stop = () => void this.#stop(plan, child, exited);
    signal.addEventListener("abort", stop, { once: true });
    const result = await exited;
    signal.removeEventListener("abort", stop);
    const error = result.error === undefined ? undefined : describeStartError(plan, result.error);
    const { code, signal: endedBy } = result;
    const lastExit = { code, signal: endedBy, at: new Date().toISOString(), error };
    const isRequested = code !== null && code === plan.restartCode && failures < MAX_RESTARTS_IN_A_ROW;
    this.#set(plan.name, { state: isRequested ? "restarting" : "failing", restarts: restarts + 1, lastExit });
    if (error !== undefined) log.error("component failed to start", { name: plan.name, error });
    return result;
  }

  async #stop(plan: ChildPlan, child: ChildProcess, exited: Promise<unknown>): Promise<void> {
    child.kill(plan.stopSignal);
    const timer = setTimeout(() => child.kill("SIGKILL"), this.#options.stopWithinMs ?? STOP_WITHIN_MS);
    await exited;
    clearTimeout(timer);
  }

  #set(name: string, change: Partial<ChildState>): void {
    const { pid: _, startedAt: __, startTime: ___, ...kept } = this.#states.get(name) ?? { name, restarts: 0 };
    this.#states.set(name, { state: "waiting", ...kept, ...change });
    this.#write();
  }

  /** Replaces the file atomically, because probes may read it at any time. */
  #write(): void {
    const { file, log } = this.#options;
    try {
      replaceFile(file, `${JSON.stringify(this.state, undefined, 2)}\n`);
    } catch (error) {
      log.warn("could not write the supervisor state", { file, error });
    }
  }
}

function identityOf(pid: number): Pick<SupervisorState, "pid" | "startTime"> {
  const startTime = startTimeOf(pid);
  return startTime === undefined ? { pid } : { pid, startTime };
}

interface ExitResult {
  readonly code: number | null;
  readonly signal: string | null;
  readonly error?: Error;
}

function describeStartError(plan: ChildPlan, error: Error): string {
  const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
  return isMissing && plan.ifMissing !== undefined
    ? `${plan.command[0]} not found in PATH: ${plan.ifMissing}`
    : error.message;
}

function waitForExit(child: ChildProcess): Promise<ExitResult> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve({ code: null, signal: null, error }));
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
}

/** Longer lines are emitted in pieces. */
const MAX_LINE_LENGTH = 64 * 1024;

function forEachLine(stream: NodeJS.ReadableStream | null, emit: (line: string) => void): void {
  let rest = "";
  stream?.on("data", (chunk: Buffer) => {
    const lines = (rest + chunk.toString()).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) emit(line);
    if (rest.length > MAX_LINE_LENGTH) {
      emit(rest);
      rest = "";
    }
  });
  stream?.on("end", () => {
    if (rest !== "") emit(rest);
  });
}
