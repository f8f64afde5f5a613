// Defines the values of `--log-level` and the log lines that each prints.
import { createLogger, formatText, type Logger, type LogLevel } from "../../lib/log/log.ts";

export const LOG_LEVELS = ["panic", "fatal", "error", "warn", "info", "debug"] as const;
export type CommandLogLevel = (typeof LOG_LEVELS)[number];

const SYNONYMS: Readonly<Record<string, CommandLogLevel>> = { warning: "warn", trace: "debug" };

/** Parses a level in any letter case. Returns undefined if it is unknown. */
export function parseLogLevel(text: string): CommandLogLevel | undefined {
  const word = text.toLowerCase();
  return LOG_LEVELS.find((level) => level === word) ?? SYNONYMS[word];
}

const THRESHOLD: Readonly<Record<CommandLogLevel, LogLevel | "none">> = {
  panic: "none",
  fatal: "none",
  error: "error",
  warn: "warn",
  info: "info",
  debug: "debug",
};

/** Creates a logger that writes readable lines. */
export function commandLogger(level: CommandLogLevel, write: (line: string) => void): Logger {
  return createLogger({ level: THRESHOLD[level], write: (record) => write(`${formatText(record)}\n`) });
}
