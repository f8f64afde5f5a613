// calico-typha [-c|--config-file FILE] | version
import { appendFileSync, mkdirSync, writeSync } from "node:fs";
import { dirname } from "node:path";
import { parseArgs } from "node:util";
import { BUILD } from "../lib/build.ts";
import { createLogger, formatText, type Logger, type LogLevel } from "../lib/log.ts";
import { screenLogger } from "../lib/screen-log.ts";
import { writePrivateFile } from "../lib/private-file.ts";
import { delay } from "../lib/retry.ts";
import { type LoadedConfig, readConfigFile, resolveConfig, type TyphaConfig } from "./config.ts";
import type { TyphaDaemon } from "./daemon.ts";

const CONFIG_FILE = "/etc/calico/typha.cfg";
const RETRY_MS = 1_000;
const USAGE = "Usage: calico-typha [-c FILE | --config-file FILE]\n       calico-typha version\n";

export async function main(argv: readonly string[]): Promise<number> {
  let file = CONFIG_FILE;
  try {
    const { values, positionals } = parseArgs({
      args: [...argv],
      options: {
        "config-file": { type: "string", short: "c" },
        version: { type: "boolean" },
        help: { type: "boolean", short: "h" },
      },
      allowPositionals: true,
    });
    if (values.version === true || positionals[0] === "version") return print(1, `${BUILD.version}\n`, 0);
    if (values.help === true) return print(1, USAGE, 0);
    if (positionals.length > 0) return print(2, `calico-typha: unexpected ${positionals[0]}\n${USAGE}`, 2);
    file = values["config-file"] ?? CONFIG_FILE;
  } catch (error) {
    return print(2, `calico-typha: ${error instanceof Error ? error.message : String(error)}\n${USAGE}`, 2);
  }
  const early = screenLogger(levelOf(process.env["TYPHA_EARLYLOGSEVERITYSCREEN"] ?? "INFO"));
  const daemon = await start(file, early);
  await stopSignal();
  await daemon.shutDown();
  return 0;
}

/** Whatever is wrong with the configuration may be repaired while we wait: tried again every second. */
async function start(file: string, early: Logger): Promise<TyphaDaemon> {
  // Only now: what merely prints its version loads no server.
  const { TyphaDaemon } = await import("./daemon.ts");
  for (;;) {
    let daemon: InstanceType<typeof TyphaDaemon> | undefined;
    try {
      const { config, warnings }: LoadedConfig = resolveConfig(process.env, readConfigFile(file));
      const log = loggerFor(config);
      for (const warning of warnings) log.warn("configuration value not taken", { reason: warning });
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
  if (path === "") return screenLogger(screen);
  try {
    mkdirSync(dirname(path), { recursive: true });
    appendFileSync(path, "");
  } catch (error) {
    const log = screenLogger(screen);
    log.warn("log file cannot be written, logging to the screen only", { path, error });
    return log;
  }
  const screenWriter = screenLogger(screen);
  return createLogger({
    level: "debug",
    write: (record) => {
      const fileLevel = levelOf(config.LogSeverityFile);
      if (rank(record.level) >= rank(fileLevel)) appendFileSync(path, `${formatText(record)}\n`);
      screenWriter[record.level](record.sentence, record.fields);
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

/** What the memory is used for, for somebody who looks for a leak. */
function writeHeapProfile(config: TyphaConfig, log: Logger): void {
  if (config.DebugMemoryProfilePath === "") return;
  const stamp = new Date().toISOString().replaceAll(":", "-");
  const path = config.DebugMemoryProfilePath.replace("<timestamp>", stamp);
  writePrivateFile(path, JSON.stringify(Bun.generateHeapSnapshot()));
  log.info("heap profile written", { path });
}

function print(fd: 1 | 2, text: string, code: number): number {
  writeSync(fd, text);
  return code;
}
