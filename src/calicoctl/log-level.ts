// The levels `--log-level` takes and what each lets through.
import { createLogger, formatText, type Logger, type LogLevel } from "../lib/log.ts";

export const LOG_LEVELS = ["panic", "fatal", "error", "warn", "info", "debug"] as const;
export type CommandLogLevel = (typeof LOG_LEVELS)[number];

export const isLogLevel = (text: string): text is CommandLogLevel => (LOG_LEVELS as readonly string[]).includes(text);

const THRESHOLD: Readonly<Record<CommandLogLevel, LogLevel | "none">> = {
  panic: "none",
  fatal: "none",
  error: "error",
  warn: "warn",
  info: "info",
  debug: "debug",
};

/** Lines for people on standard error. */
export function commandLogger(level: CommandLogLevel, write: (line: string) => void): Logger {
  return createLogger({ level: THRESHOLD[level], write: (record) => write(`${formatText(record)}\n`) });
}
