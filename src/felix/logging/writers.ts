// The ends of the log: the standard output, a file that may be rotated away under us, the local syslog.
import { closeSync, mkdirSync, openSync, statSync, write, writeSync } from "node:fs";
import { dirname } from "node:path";
import type { Syslog } from "../../kernel/index.ts";
import type { LineWriter } from "./destination.ts";

/** @param fd 1, or 2 where the standard output is for something else */
export const screenWriter = (fd: 1 | 2): LineWriter => ({
  write: (text, done) => write(fd, text, (error) => done(error !== null && error !== undefined)),
  writeNow: (text) => {
    writeSync(fd, text);
  },
});

/** @throws when the file cannot be opened */
export function fileWriter(path: string): LineWriter {
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
  let fd = openSync(path, "a", 0o644);
  let inode = statSync(path).ino;
  // A rotated file has another name by now: the old name is a new file.
  const reopen = () => {
    let current: number | undefined;
    try {
      current = statSync(path).ino;
    } catch {
      current = undefined;
    }
    if (current === inode) return;
    closeSync(fd);
    fd = openSync(path, "a", 0o644);
    inode = statSync(path).ino;
  };
  return {
    write: (text, done) => {
      try {
        reopen();
      } catch {
        return done(true);
      }
      write(fd, text, (error) => done(error !== null && error !== undefined));
    },
    writeNow: (text) => {
      writeSync(fd, text);
    },
  };
}

export function syslogWriter(syslog: Syslog): LineWriter {
  const send = (text: string) => {
    for (const line of text.split("\n")) if (line !== "") syslog.write(severityOf(line), line);
  };
  return {
    write: (text, done) => {
      send(text);
      setImmediate(done, false);
    },
    writeNow: send,
  };
}

function severityOf(line: string): "error" | "warning" | "info" | "debug" {
  if (line.includes("[ERROR]") || line.includes("[FATAL]")) return "error";
  if (line.includes("[WARNING]")) return "warning";
  return line.includes("[DEBUG]") ? "debug" : "info";
}
