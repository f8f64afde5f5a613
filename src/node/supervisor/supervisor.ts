// Child processes that run as long as we do: started when what they need is there, started again when they end, stopped
// with us. What is known about them stands in one file for probes and people.
import { type ChildProcess, spawn } from "node:child_process";
import { readlinkSync } from "node:fs";
import type { Logger } from "../../lib/log/log.ts";
import { startTimeOf } from "../../lib/process/process-identity.ts";
import { backoffDelay, pause } from "../../lib/retry.ts";
import { replaceFile } from "../../lib/files/replace-file.ts";

export interface ChildPlan {
  readonly name: string;
  readonly command: readonly [string, ...string[]];
  /** Found out anew at every start, put after the command's own arguments. */
  readonly extraArguments?: () => readonly string[];
  /** What the program is to think it was called as. */
  readonly argv0?: string;
  readonly env: Readonly<Record<string, string | undefined>>;
  /** What to do when there is no such program. */
  readonly ifMissing?: string;
  /** Started only once this holds. */
  readonly startsWhen?: () => boolean;
  /** The exit code by which it requests to be started again, such as for a changed configuration. */
  readonly restartCode?: number;
  /** What ends it. BIRD is killed: a BIRD that says goodbye takes the routes of its neighbours with it. */
  readonly stopSignal: "SIGTERM" | "SIGKILL";
}

export interface ChildState {
  readonly name: string;
  /** `restarting`: it requested this by its exit code, and not again and again. */
  readonly state: "waiting" | "running" | "stopped" | "failing" | "restarting";
  readonly pid?: number;
  readonly startedAt?: string;
  /** Tells this process from a later one with the same pid (`startTimeOf`). */
  readonly startTime?: string;
  readonly restarts: number;
  readonly lastExit?: {
    readonly code: number | null;
    readonly signal: string | null;
    readonly at: string;
    /** It could not even be started. */
    readonly error?: string;
  };
}

export interface SupervisorState {
  /** All pids of this state are as calico-node sees them: in a container not as the host does. */
  readonly pid: number;
  /** Tells this calico-node from a later process with the same pid (`startTimeOf`). */
  readonly startTime?: string;
  /** Identifies the pid namespace that the pids belong to: `pid:[4026531836]`. */
  readonly pidNamespace?: string;
  readonly children: readonly ChildState[];
}

export interface SupervisorOptions {
  readonly plans: readonly ChildPlan[];
  /** Where the state is written. */
  readonly file: string;
  readonly log: Logger;
  /** Every line a child writes. */
  readonly output: (child: string, line: string) => void;
  readonly backoff?: { readonly firstMs: number; readonly maxMs: number };
  readonly stopWithinMs?: number;
}

const BACKOFF = { firstMs: 250, maxMs: 10_000 };
/** One that ran so long starts again at once. */
const STEADY_MS = 60_000;
/** More requested restarts in a row than this, each within `STEADY_MS`, are a failure. */
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

  /** Keeps the children running; ends when the signal aborts and the last of them is gone. */
  async run(signal: AbortSignal): Promise<void> {
    this.#write();
    await Promise.all(this.#options.plans.map((plan) => this.#keep(plan, signal)));
  }

  get state(): SupervisorState {
    return {
      ...identityOf(process.pid),
      pidNamespace: readlinkSync("/proc/self/ns/pid"),
      children: [...this.#states.values()],
    };
  }

  async #keep(plan: ChildPlan, signal: AbortSignal): Promise<void> {
    const { log } = this.#options;
    const backoff = this.#options.backoff ?? BACKOFF;
    for (let failures = 0; !signal.aborted; ) {
      while (plan.startsWhen?.() === false && !signal.aborted) await pause(POLL_MS, signal);
      if (signal.aborted) break;
      const began = performance.now();
      const { code, signal: endedBy, error } = await this.#runOnce(plan, failures, signal);
      if (signal.aborted) break;
      failures = performance.now() - began > STEADY_MS ? 0 : failures + 1;
      const waitMs = failures === 0 ? 0 : backoffDelay(backoff, failures - 1);
      if (error === undefined)
        log.warn("a part of the node ended and is started again", { name: plan.name, code, endedBy, waitMs });
      await pause(waitMs, signal);
    }
    this.#set(plan.name, { state: "stopped" });
  }

  /** @param failures how many times in a row it has ended early before */
  async #runOnce(plan: ChildPlan, failures: number, signal: AbortSignal) {
    const { log, output } = this.#options;
    const restarts = this.#states.get(plan.name)?.restarts ?? 0;
    const [program, ...args] = plan.command;
    const child = spawn(program, [...args, ...(plan.extraArguments?.() ?? [])], {
      env: plan.env as NodeJS.ProcessEnv,
      stdio: ["ignore", "pipe", "pipe"],
      argv0: plan.argv0,
    });
    for (const stream of [child.stdout, child.stderr]) eachLine(stream, (line) => output(plan.name, line));
    const ended = endOf(child);
    const pid = child.pid;
    if (pid !== undefined) {
      this.#set(plan.name, {
        state: "running",
        ...identityOf(pid),
        startedAt: new Date().toISOString(),
        restarts,
      });
      log.info("a part of the node runs", { name: plan.name, pid });
    }
    const stop = () => void this.#stop(plan, child, ended);
    signal.addEventListener("abort", stop, { once: true });
    const result = await ended;
    signal.removeEventListener("abort", stop);
    const error = result.error === undefined ? undefined : startFault(plan, result.error);
    const { code, signal: endedBy } = result;
    const lastExit = { code, signal: endedBy, at: new Date().toISOString(), error };
    const isRequested = code !== null && code === plan.restartCode && failures < MAX_RESTARTS_IN_A_ROW;
    this.#set(plan.name, { state: isRequested ? "restarting" : "failing", restarts: restarts + 1, lastExit });
    if (error !== undefined) log.error("a part of the node cannot be started", { name: plan.name, error });
    return result;
  }

  async #stop(plan: ChildPlan, child: ChildProcess, ended: Promise<unknown>): Promise<void> {
    child.kill(plan.stopSignal);
    const timer = setTimeout(() => child.kill("SIGKILL"), this.#options.stopWithinMs ?? STOP_WITHIN_MS);
    await ended;
    clearTimeout(timer);
  }

  #set(name: string, change: Partial<ChildState>): void {
    const { pid: _, startedAt: __, startTime: ___, ...kept } = this.#states.get(name) ?? { name, restarts: 0 };
    this.#states.set(name, { state: "waiting", ...kept, ...change });
    this.#write();
  }

  /** Whole or not at all: probes read it at any moment. */
  #write(): void {
    const { file, log } = this.#options;
    try {
      replaceFile(file, `${JSON.stringify(this.state, undefined, 2)}\n`);
    } catch (error) {
      log.warn("the state of the node's parts could not be written", { file, error });
    }
  }
}

function identityOf(pid: number): Pick<SupervisorState, "pid" | "startTime"> {
  const startTime = startTimeOf(pid);
  return startTime === undefined ? { pid } : { pid, startTime };
}

interface End {
  readonly code: number | null;
  readonly signal: string | null;
  readonly error?: Error;
}

function startFault(plan: ChildPlan, error: Error): string {
  const isMissing = (error as NodeJS.ErrnoException).code === "ENOENT";
  return isMissing && plan.ifMissing !== undefined
    ? `no program ${plan.command[0]} in PATH: ${plan.ifMissing}`
    : error.message;
}

function endOf(child: ChildProcess): Promise<End> {
  return new Promise((resolve) => {
    child.once("error", (error) => resolve({ code: null, signal: null, error }));
    child.once("exit", (code, signal) => resolve({ code, signal }));
  });
}

/** A line that never ends is passed on in pieces. */
const LONGEST_LINE = 64 * 1024;

function eachLine(stream: NodeJS.ReadableStream | null, tell: (line: string) => void): void {
  let rest = "";
  stream?.on("data", (chunk: Buffer) => {
    const lines = (rest + chunk.toString()).split("\n");
    rest = lines.pop() ?? "";
    for (const line of lines) tell(line);
    if (rest.length > LONGEST_LINE) {
      tell(rest);
      rest = "";
    }
  });
  stream?.on("end", () => {
    if (rest !== "") tell(rest);
  });
}
