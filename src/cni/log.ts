// Writes the plugin's log to standard error and, if configured, to a file that is rotated by size. Lines are collected and
// written once at the end, because a plugin process runs for milliseconds.
import { appendFileSync, mkdirSync, readdirSync, renameSync, rmSync, statSync, writeSync } from "node:fs";
import { basename, dirname, extname, join } from "node:path";
import { createLogger, formatText, type LogLevel, type Logger } from "../lib/log/log.ts";
import type { LogSettings } from "./request/net-conf.ts";

const LEVELS: Readonly<Record<string, LogLevel>> = { debug: "debug", info: "info", warning: "warn", error: "error" };
const DAY_MS = 86_400_000;

export interface PluginLog extends Disposable {
  readonly logger: Logger;
}

const levelOf = (settings: LogSettings): LogLevel => LEVELS[settings.level.toLowerCase()] ?? "info";

export function openLog(settings: LogSettings, now: () => Date): PluginLog {
  const lines: string[] = [];
  const logger = createLogger({
    level: levelOf(settings),
    now,
    write: (record) => lines.push(`${formatText(record)}\n`),
  });
  return {
    logger,
    [Symbol.dispose]: () => {
      if (lines.length === 0) return;
      const text = lines.splice(0).join("");
      try {
        writeSync(2, text);
      } catch {
        // standard error is closed
      }
      if (settings.filePath !== "") appendToFile(settings, text, now());
    },
  };
}

/** Errors are not fatal: a full disk must not prevent a pod from starting. */
function appendToFile(settings: LogSettings, text: string, now: Date): void {
  const { filePath } = settings;
  try {
    mkdirSync(dirname(filePath), { recursive: true });
    const size = sizeOf(filePath);
    if (size > 0 && size + Buffer.byteLength(text) > settings.fileMaxSizeMb * 1024 * 1024) rotate(settings, now);
    appendFileSync(filePath, text, { mode: 0o600 });
  } catch (error) {
    writeSync(2, `cannot write log file ${filePath}: ${error instanceof Error ? error.message : error}\n`);
  }
}

/** Renames `cni.log` to `cni-2026-01-02T03-04-05.678.log`, and deletes files that are too old or too many. */
function rotate(settings: LogSettings, now: Date): void {
  const { filePath } = settings;
  const extension = extname(filePath);
  const stem = basename(filePath, extension);
  const folder = dirname(filePath);
  const stamp = now.toISOString().replaceAll(":", "-").replace("Z", "");
  renameSync(filePath, join(folder, `${stem}-${stamp}${extension}`));
  const old = readdirSync(folder)
    .filter((name) => name.startsWith(`${stem}-`) && name.endsWith(extension))
    .sort()
    .reverse();
  for (const [i, name] of old.entries()) {
    const isTooOld = now.getTime() - statSync(join(folder, name)).mtimeMs > settings.fileMaxAgeDays * DAY_MS;
    if (i >= settings.fileMaxCount || isTooOld) rmSync(join(folder, name), { force: true });
  }
}

function sizeOf(file: string): number {
  try {
    return statSync(file).size;
  } catch {
    return 0;
  }
}
