// Creates the logger of calico-node: one line of text per record, on standard output.
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

/** @param level in any case; an unknown level means info */
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
    // standard output is closed
  }
}
