// Where the parts of a node write their lines: standard output, one line of text each.
import { writeSync } from "node:fs";
import { createLogger, formatText, type Logger, type LogLevel } from "../lib/log/log.ts";

const LEVELS: Readonly<Record<string, LogLevel>> = {
  debug: "debug",
  info: "info",
  warn: "warn",
  warning: "warn",
  error: "error",
  fatal: "error",
  panic: "error",
};

/** @param level any case; info when it is no level */
export function nodeLogger(level: string | undefined, write: (line: string) => void = toStdout): Logger {
  return createLogger({
    level: LEVELS[(level ?? "info").toLowerCase()] ?? "info",
    write: (record) => write(`${formatText(record)}\n`),
  });
}

function toStdout(line: string): void {
  try {
    writeSync(1, line);
  } catch {
    // Nobody reads: nothing to be done about it.
  }
}
