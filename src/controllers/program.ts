// calico-kube-controllers [--status-file FILE] [--health-port PORT] | -v
//
// Runs the controllers, and again from the start whenever something else should run. A wrapper that does the restarting
// itself sets CALICO_KUBE_CONTROLLERS_INNER=1 and gets exit code 129 instead.
import { parseArgs } from "node:util";
import { DatastoreError } from "../datastore/index.ts";
import { BUILD } from "../lib/build.ts";
import { describeError } from "../lib/log.ts";
import { screenLogger } from "../lib/screen-log.ts";
import { delay } from "../lib/retry.ts";
import { InvalidSetting } from "./environment.ts";
import { STATUS_FILE } from "./health.ts";

const USAGE = "Usage: calico-kube-controllers [--status-file FILE] [--health-port PORT] | -v";
const RESTART = 129;
/** What the original says when it is told to stop. */
const STOPPED = 255;
const RESTART_MS = 100;

export async function main(argv: readonly string[]): Promise<number> {
  let statusFile: string;
  let healthPort: number;
  try {
    const { values } = parseArgs({
      args: [...argv],
      options: {
        "status-file": { type: "string", default: STATUS_FILE },
        "health-port": { type: "string", default: "0" },
        version: { type: "boolean", short: "v" },
        help: { type: "boolean", short: "h" },
      },
    });
    if (values.version === true) return say(1, BUILD.version, 0);
    if (values.help === true) return say(1, USAGE, 0);
    statusFile = values["status-file"];
    healthPort = Number(values["health-port"]);
    if (!Number.isInteger(healthPort) || healthPort < 0 || healthPort > 65535)
      return say(2, `--health-port ${values["health-port"]}: want a port`, 1);
  } catch (error) {
    return say(2, `Error: ${(error as Error).message}\n${USAGE}`, 1);
  }
  const stop = new AbortController();
  for (const signal of ["SIGTERM", "SIGINT"] as const) process.once(signal, () => stop.abort());
  const options = { env: process.env, statusFile, healthPort, logger: screenLogger };
  // Only now: what merely prints its version loads no controller.
  const { runControllers, StartupFailure } = await import("./run.ts");
  for (let isRestart = false; ; isRestart = true)
    try {
      await runControllers({ ...options, isRestart }, stop.signal);
      if (stop.signal.aborted) return STOPPED;
      if (process.env["CALICO_KUBE_CONTROLLERS_INNER"] === "1") return RESTART;
      await delay(RESTART_MS, stop.signal);
    } catch (error) {
      if (stop.signal.aborted) return STOPPED;
      const isExpected = error instanceof StartupFailure;
      return say(2, `calico-kube-controllers: ${isExpected ? describeError(error) : reasonOf(error)}`, 1);
    }
}

/** One line for what the operator can change; anything else is a fault of ours and wants its whole story. */
function reasonOf(error: unknown): string {
  const isExpected = [InvalidSetting, DatastoreError].some((type) => error instanceof type);
  if (isExpected || !(error instanceof Error)) return describeError(error);
  return `${describeError(error)}\n${error.stack ?? ""}`;
}

function say(stream: 1 | 2, text: string, code: number): number {
  (stream === 1 ? console.log : console.error)(text);
  return code;
}
