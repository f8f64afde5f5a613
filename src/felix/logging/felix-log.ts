// Felix's log: each destination has its own level; all have the same format.
import {
  createLogger,
  describeError,
  limitValue,
  type Logger,
  type LogLevel,
  type LogRecord,
} from "../../lib/log/log.ts";
import type { FelixConfig } from "../../model/index.ts";
import { LogDestination, type LineWriter } from "./destination.ts";

const NAMES: Readonly<Record<LogLevel, string>> = { debug: "DEBUG", info: "INFO", warn: "WARNING", error: "ERROR" };
const RANK: Readonly<Record<LogLevel, number>> = { debug: 0, info: 1, warn: 2, error: 3 };

/** `2026-03-01 10:00:00.123 [INFO][1234] felix/calc: sentence key="value"`, fields sorted. */
export function formatFelixLine(record: LogRecord, pid: number): string {
  const { part, ...fields } = record.fields as { part?: unknown } & Record<string, unknown>;
  const time = record.time.toISOString().replace("T", " ").replace("Z", "");
  const fieldsText = Object.entries(fields)
    .filter(([, value]) => value !== undefined)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => ` ${key}=${fieldText(value)}`)
    .join("");
  return `${time} [${NAMES[record.level]}][${pid}] felix/${String(part ?? "felix")}: ${record.message}${fieldsText}`;
}

function fieldText(value: unknown): string {
  if (value instanceof Error) return fieldText(describeError(value));
  if (typeof value === "number" || typeof value === "boolean" || typeof value === "bigint") return String(value);
  return limitValue(JSON.stringify(typeof value === "string" ? value : JSON.stringify(value)));
}

/** Returns the lowest level that is written, or undefined if nothing is written. */
export function thresholdOf(severity: string): LogLevel | undefined {
  switch (severity.toUpperCase()) {
    case "TRACE":
    case "DEBUG":
      return "debug";
    case "INFO":
      return "info";
    case "WARNING":
    case "WARN":
      return "warn";
    case "ERROR":
      return "error";
    default:
      return undefined; // FATAL, none: no line has such a level
  }
}

export interface FelixLog {
  readonly log: Logger;
  flush(): void;
}

export interface LogTarget {
  readonly threshold: LogLevel | undefined;
  readonly writer: LineWriter;
}

export function createFelixLog(
  targets: readonly LogTarget[],
  options: {
    readonly mayDrop: boolean;
    readonly counts: { dropped(): void; failed(): void };
    /** Debug lines only from parts that match. */
    readonly debugParts?: RegExp;
    readonly pid?: number;
    readonly now?: () => Date;
  },
): FelixLog {
  const open = targets.flatMap(({ threshold, writer }) =>
    threshold === undefined ? [] : [{ rank: RANK[threshold], destination: new LogDestination(writer, options) }],
  );
  const lowest = Math.min(...open.map(({ rank }) => rank));
  const level = (Object.keys(RANK) as LogLevel[]).find((name) => RANK[name] === lowest) ?? "none";
  const { debugParts, pid = process.pid } = options;
  const log = createLogger({
    level,
    now: options.now,
    write: (record) => {
      if (record.level === "debug" && debugParts?.test(String(record.fields["part"] ?? "")) === false) return;
      const line = formatFelixLine(record, pid);
      for (const { rank, destination } of open) if (RANK[record.level] >= rank) destination.line(line);
    },
  });
  return {
    log,
    flush: () => {
      for (const { destination } of open) destination.flush();
    },
  };
}

/** Returns the level for standard output before the settings are loaded. */
export function earlySeverity(env: Readonly<Record<string, string | undefined>>): string {
  const find = (name: string) =>
    Object.entries(env).find(([variable, value]) => variable.toLowerCase() === name && value !== "")?.[1];
  return find("felix_earlylogseverityscreen") ?? find("felix_logseverityscreen") ?? "ERROR";
}

export type LogSettings = Pick<
  FelixConfig,
  | "LogFilePath"
  | "LogSeverityFile"
  | "LogSeverityScreen"
  | "LogSeveritySys"
  | "LogDebugFilenameRegex"
  | "DebugDisableLogDropping"
>;
