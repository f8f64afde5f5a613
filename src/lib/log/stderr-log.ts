// A logger that writes to standard error.
import { writeSync } from "node:fs";
import { createLogger, formatText, type Logger, type LogLevel } from "./log.ts";

/** A line that cannot be written is lost, so that a closed or full pipe does not stop the program. */
export function stderrLogger(level: LogLevel | "none"): Logger {
  return createLogger({
    level,
    write: (record) => {
      try {
        writeSync(2, `${formatText(record)}\n`);
      } catch {
        // There is no other place to report it.
      }
    },
  });
}
