// Runs one fuzz target in a child process and monitors it. An input that takes more than a second of CPU time or ends the
// process is a finding, like an error of the wrong type.
import { createHash } from "node:crypto";
import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import type { ChildOrders, ChildReport } from "./child.ts";
import type { Finding, FindingKind } from "./executor.ts";
import { createInFlightFile, readInFlight } from "./in-flight.ts";

export interface TargetRun {
  readonly target: string;
  readonly seconds: number;
  readonly seed: number;
  /** The folder of the corpus. */
  readonly corpus: string;
}

export interface TargetResult {
  readonly target: string;
  readonly executions: number;
  readonly accepted: number;
  readonly seconds: number;
  readonly findings: readonly Finding[];
}

const POLL_MS = 100;
/** CPU time of the process's main thread. Elapsed time would include waiting for a CPU on a busy machine. */
const MOST_CPU_MS = 1000;
/** Elapsed time, for an input that makes the parser wait forever. */
const MOST_WALL_MS = 20_000;
const CLOCK_TICK_MS = 10; // USER_HZ is 100 on all supported architectures

export async function runTarget(run: TargetRun): Promise<TargetResult> {
  const folder = mkdtempSync(join(tmpdir(), "fuzz-"));
  try {
    const inFlightFile = join(folder, "in-flight");
    createInFlightFile(inFlightFile);
    return await watch(run, inFlightFile);
  } finally {
    rmSync(folder, { recursive: true });
  }
}

/** Sorts inputs that were findings first. */
export function corpusFiles(folder: string): readonly string[] {
  if (!existsSync(folder)) return [];
  const isRegression = (name: string): boolean => name.startsWith("found-");
  return readdirSync(folder)
    .sort((a, b) => Number(isRegression(b)) - Number(isRegression(a)) || (a < b ? -1 : 1))
    .map((name) => join(folder, name));
}

/** Stores the input. @returns its path */
export function saveFinding(folder: string, { input }: Finding): string {
  mkdirSync(folder, { recursive: true });
  const path = join(folder, `found-${createHash("sha256").update(input).digest("hex").slice(0, 12)}`);
  writeFileSync(path, input);
  return path;
}

async function watch(run: TargetRun, inFlightFile: string): Promise<TargetResult> {
  const { target, seconds, seed } = run;
  const orders: ChildOrders = { target, seconds, seed, inFlightFile, corpus: corpusFiles(run.corpus) };
  const child = Bun.spawn([process.execPath, join(import.meta.dir, "child.ts")], {
    stdin: Buffer.from(JSON.stringify(orders)),
    stdout: "pipe",
    stderr: "pipe",
  });
  const output = new Response(child.stdout).text();
  const errors = new Response(child.stderr).text();
  const started = performance.now();
  let isOver = false;
  const exited = child.exited.finally(() => (isOver = true));
  const watchdog = new Watchdog(child.pid, inFlightFile);
  let hang: Finding | undefined;
  while (!isOver && hang === undefined) {
    await Promise.race([exited, Bun.sleep(POLL_MS)]);
    if (!isOver) hang = watchdog.look();
  }
  if (hang !== undefined) child.kill("SIGKILL");
  const code = await exited;
  const findings: Finding[] = hang === undefined ? [] : [hang];
  let done: Extract<ChildReport, { readonly type: "done" }> | undefined;
  for (const line of (await output).split("\n")) {
    if (line === "") continue;
    const report = JSON.parse(line) as ChildReport;
    if (report.type === "done") done = report;
    else
      findings.push({
        kind: report.kind as FindingKind,
        what: report.what,
        input: new Uint8Array(Buffer.from(report.input, "base64")),
      });
  }
  if (done !== undefined) return { ...done, target, findings };
  const { executions, accepted, input } = readInFlight(inFlightFile);
  if (hang === undefined)
    findings.push({
      kind: "crash",
      what: `the process ended with ${child.signalCode ?? `code ${code}`}: ${(await errors).slice(-500)}`,
      input: input ?? new Uint8Array(0),
    });
  return { target, executions, accepted, seconds: (performance.now() - started) / 1000, findings };
}

class Watchdog {
  readonly #pid: number;
  readonly #file: string;
  #executions = -1;
  #sinceMs = 0;
  #cpuMs = 0;

  constructor(pid: number, file: string) {
    this.#pid = pid;
    this.#file = file;
  }

  /** The input that has taken too long. */
  look(): Finding | undefined {
    const { executions, input } = readInFlight(this.#file);
    const cpuMs = mainThreadCpuMs(this.#pid);
    if (executions !== this.#executions || input === undefined) {
      this.#executions = executions;
      this.#sinceMs = performance.now();
      this.#cpuMs = cpuMs;
      return undefined;
    }
    const spentMs = cpuMs - this.#cpuMs;
    const waitedMs = performance.now() - this.#sinceMs;
    if (spentMs > MOST_CPU_MS)
      return { kind: "hang", what: `one input took more than ${MOST_CPU_MS} ms of processor time`, input };
    if (waitedMs > MOST_WALL_MS) return { kind: "hang", what: `one input took more than ${MOST_WALL_MS} ms`, input };
    return undefined;
  }
}

/** Returns 0 if the process has ended. */
function mainThreadCpuMs(pid: number): number {
  try {
    const stat = readFileSync(`/proc/${pid}/task/${pid}/stat`, "utf8");
    const fields = stat.slice(stat.lastIndexOf(")") + 2).split(" ");
    return (Number(fields[11]) + Number(fields[12])) * CLOCK_TICK_MS;
  } catch {
    return 0;
  }
}
