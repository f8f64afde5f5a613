// The log of programs that write it to standard error, for a person or for whoever collects their lines.
import { writeSync } from "node:fs";
import { createLogger, formatText, type Logger, type LogLevel } from "./log.ts";

/** Who does not read must not stop the program: a line that cannot be written is lost. */
export function screenLogger(level: LogLevel | "none"): Logger {
  return createLogger({
    level,
    write: (record) => {
      try {
        writeSync(2, `${formatText(record)}\n`);
      } catch {
        // Nobody reads: nothing to be done about it.
      }
    },
  });
}
