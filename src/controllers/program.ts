// calico-kube-controllers: runs the controllers, and restarts them when their configuration changes or the leader lease is lost.
// A wrapper that restarts the program itself sets CALICO_KUBE_CONTROLLERS_INNER=1; the program then exits with code 129.
import type { Call } from "../lib/command-line/command.ts";
import { DatastoreError } from "../datastore/index.ts";
import { BUILD } from "../lib/process/build.ts";
import { describeError } from "../lib/log/log.ts";
import { stderrLogger } from "../lib/log/stderr-log.ts";
import { delay } from "../lib/retry.ts";
import { InvalidSetting } from "./environment.ts";
import type { controllersGrammar } from "./table.ts";

const RESTART_CODE = 129;
/** Exit code after SIGTERM or SIGINT, as in Calico. */
const STOPPED_CODE = 255;
const RESTART_DELAY_MS = 100;

export async function run({ flags, io }: Call<typeof controllersGrammar>): Promise<number> {
  if (flags.version) {
    io.out(`${BUILD.version}\n`);
    return 0;
  }
  const { "status-file": statusFile, "health-port": healthPort } = flags;
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => stop.abort());
  const options = { env: process.env, statusFile, healthPort, logger: stderrLogger };
  // Imported late, so that `-v` does not load the controllers.
  const { runControllers, StartupFailure } = await import("./run.ts");
  for (let isRestart = false; ; isRestart = true)
    try {
      await runControllers({ ...options, isRestart }, stop.signal);
      if (stop.signal.aborted) return STOPPED_CODE;
      if (process.env["CALICO_KUBE_CONTROLLERS_INNER"] === "1") return RESTART_CODE;
      await delay(RESTART_DELAY_MS, stop.signal);
    } catch (error) {
      if (stop.signal.aborted) return STOPPED_CODE;
      const isKnown = error instanceof StartupFailure;
      io.err(`calico-kube-controllers: ${isKnown ? describeError(error) : reasonOf(error)}\n`);
      return 1;
    }
}

/** One line for errors that the operator can correct. Other errors are bugs, so the stack trace is added. */
function reasonOf(error: unknown): string {
  const isKnown = [InvalidSetting, DatastoreError].some((type) => error instanceof type);
  if (isKnown || !(error instanceof Error)) return describeError(error);
  return `${describeError(error)}\n${error.stack ?? ""}`;
}
