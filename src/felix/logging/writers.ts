// Writers for log destinations: standard output, a file (which may be rotated), the local syslog.
import { closeSync, mkdirSync, openSync, statSync, write, writeSync } from "node:fs";
import { dirname } from "node:path";
import type { Syslog } from "../../kernel/index.ts";
import type { LineWriter } from "./destination.ts";

/** @param fd 1, or 2 if standard output has another purpose (`--dump`) */
export const screenWriter = (fd: 1 | 2): LineWriter => ({
  write: (text, done) => write(fd, text, (error) => done(error !== null && error !== undefined)),
  writeSync: (text) => {
    writeSync(fd, text);
  },
});

/** @throws if the file cannot be opened */
export function fileWriter(path: string): LineWriter {
  mkdirSync(dirname(path), { recursive: true, mode: 0o755 });
  let fd = openSync(path, "a", 0o644);
  let inode = statSync(path).ino;
  // After a rotation, the open file has another name, and a new file must be created under the old name.
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
    writeSync: (text) => {
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
    writeSync: send,
  };
}

function severityOf(line: string): "error" | "warning" | "info" | "debug" {
  if (line.includes("[ERROR]") || line.includes("[FATAL]")) return "error";
  if (line.includes("[WARNING]")) return "warning";
  return line.includes("[DEBUG]") ? "debug" : "info";
}
