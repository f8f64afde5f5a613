// Runs calico-typha until SIGTERM or SIGINT.
import { appendFileSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import type { Call } from "../lib/command-line/command.ts";
import { BUILD } from "../lib/process/build.ts";
import { createLogger, formatText, type Logger, type LogLevel } from "../lib/log/log.ts";
import { stderrLogger } from "../lib/log/stderr-log.ts";
import { writePrivateFile } from "../lib/files/private-file.ts";
import { delay } from "../lib/retry.ts";
import { type LoadedConfig, readConfigFile, resolveConfig, type TyphaConfig } from "./config.ts";
import type { TyphaDaemon } from "./daemon.ts";
import type { typhaGrammar } from "./table.ts";

const RETRY_MS = 1_000;

export async function run(call: Call<typeof typhaGrammar>): Promise<number> {
  const { flags } = call;
  if (flags.version) return printVersion(call);
  const early = stderrLogger(levelOf(process.env["TYPHA_EARLYLOGSEVERITYSCREEN"] ?? "INFO"));
  const daemon = await start(flags["config-file"], early);
  await stopSignal();
  await daemon.shutDown();
  return 0;
}

export function printVersion({ io }: Pick<Call, "io">): number {
  io.out(`${BUILD.version}\n`);
  return 0;
}

/** Retries every second, because an invalid configuration may be corrected meanwhile. */
async function start(file: string, early: Logger): Promise<TyphaDaemon> {
  // Loaded here, so that `calico-typha version` does not load the server.
  const { TyphaDaemon } = await import("./daemon.ts");
  for (;;) {
    let daemon: InstanceType<typeof TyphaDaemon> | undefined;
    try {
      const { config, warnings }: LoadedConfig = resolveConfig(process.env, readConfigFile(file));
      const log = loggerFor(config);
      for (const warning of warnings) log.warn("invalid configuration value; using the default", { reason: warning });
      daemon = new TyphaDaemon({ config, env: process.env, log, version: BUILD.version });
      await daemon.start();
      process.on("SIGUSR1", () => writeHeapProfile(config, log));
      return daemon;
    } catch (error) {
      early.error("cannot start", { error });
      await daemon?.stop();
      await delay(RETRY_MS);
    }
  }
}

const stopSignal = (): Promise<void> =>
  new Promise((resolve) => {
    process.once("SIGTERM", () => resolve());
    process.once("SIGINT", () => resolve());
  });

function loggerFor(config: TyphaConfig): Logger {
  const screen = levelOf(config.LogSeverityScreen);
  const path = config.LogSeverityFile === "NONE" ? "" : config.LogFilePath;
  if (path === "") return stderrLogger(screen);
  try {
    mkdirSync(dirname(path), { recursive: true });
    appendFileSync(path, "");
  } catch (error) {
    const log = stderrLogger(screen);
    log.warn("cannot write the log file; logging to the screen only", { path, error });
    return log;
  }
  const screenWriter = stderrLogger(screen);
  return createLogger({
    level: "debug",
    write: (record) => {
      const fileLevel = levelOf(config.LogSeverityFile);
      if (rank(record.level) >= rank(fileLevel)) appendFileSync(path, `${formatText(record)}\n`);
      screenWriter[record.level](record.message, record.fields);
    },
  });
}

const RANKS: readonly (LogLevel | "none")[] = ["debug", "info", "warn", "error", "none"];
const rank = (level: LogLevel | "none"): number => RANKS.indexOf(level);

function levelOf(severity: string): LogLevel | "none" {
  switch (severity.toUpperCase()) {
    case "DEBUG":
      return "debug";
    case "WARNING":
      return "warn";
    case "ERROR":
    case "CRITICAL":
      return "error";
    case "NONE":
      return "none";
    default:
      return "info";
  }
}

/** Writes a heap snapshot, to find memory leaks. */
function writeHeapProfile(config: TyphaConfig, log: Logger): void {
  if (config.DebugMemoryProfilePath === "") return;
  const stamp = new Date().toISOString().replaceAll(":", "-");
  const path = config.DebugMemoryProfilePath.replace("<timestamp>", stamp);
  writePrivateFile(path, JSON.stringify(Bun.generateHeapSnapshot()));
  log.info("wrote a heap profile", { path });
}
