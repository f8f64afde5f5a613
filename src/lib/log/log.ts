// The logger of all programs. A record has a fixed message and fields. The caller passes the function that writes records,
// so that a program decides where they go and a test can read them.

export type LogLevel = "debug" | "info" | "warn" | "error";
export type LogFields = Readonly<Record<string, unknown>>;

export interface Logger {
  debug(message: string, fields?: LogFields): void;
  info(message: string, fields?: LogFields): void;
  warn(message: string, fields?: LogFields): void;
  error(message: string, fields?: LogFields): void;
  /** Returns a logger that adds these fields to every record. */
  with(fields: LogFields): Logger;
  /** Returns whether records of this level are written. Check it before computing expensive fields. */
  enabled(level: LogLevel): boolean;
}

export interface LogRecord {
  readonly time: Date;
  readonly level: LogLevel;
  readonly message: string;
  readonly fields: LogFields;
}

const RANK: Readonly<Record<LogLevel, number>> = { debug: 0, info: 1, warn: 2, error: 3 };

export function createLogger(options: {
  readonly level: LogLevel | "none";
  readonly write: (record: LogRecord) => void;
  readonly fields?: LogFields;
  readonly now?: () => Date;
}): Logger {
  const now = options.now ?? (() => new Date());
  const base = options.fields ?? {};
  const threshold = options.level === "none" ? Number.POSITIVE_INFINITY : RANK[options.level];
  const log = (level: LogLevel) => (message: string, fields?: LogFields) => {
    if (RANK[level] < threshold) return;
    options.write({ time: now(), level, message, fields: fields === undefined ? base : { ...base, ...fields } });
  };
  return {
    debug: log("debug"),
    info: log("info"),
    warn: log("warn"),
    error: log("error"),
    with: (fields) => createLogger({ ...options, fields: { ...base, ...fields } }),
    enabled: (level) => RANK[level] >= threshold,
  };
}

/** `2026-01-02 03:04:05.678 [INFO] message key=value …`, with sorted keys. */
export function formatText(record: LogRecord): string {
  const time = record.time.toISOString().replace("T", " ").replace("Z", "");
  const fields = Object.entries(record.fields)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => ` ${key}=${formatValue(value)}`)
    .join("");
  return `${time} [${record.level.toUpperCase()}] ${record.message}${fields}`;
}

/** Of one value in a line. Errors may contain text that somebody else wrote, such as an annotation of 256 kB. */
const MAX_VALUE = 4000;

function formatValue(value: unknown): string {
  if (value instanceof Error) return formatValue(describeError(value));
  if (typeof value === "bigint") return value.toString();
  return limitValue(JSON.stringify(value) ?? "undefined");
}

/** The beginning of a long value and its length. */
export const limitValue = (text: string): string =>
  text.length > MAX_VALUE ? `${text.slice(0, MAX_VALUE)}... (${text.length} characters)` : text;

/** Formats an error and its causes on one line, outermost first. A cause whose text is already included is not repeated. */
export function describeError(error: unknown): string {
  const parts: string[] = [];
  for (let e: unknown = error, depth = 0; e !== undefined && depth < 5; depth++) {
    const text = e instanceof Error ? e.message : String(e);
    if (depth === 0 || !parts.some((part) => part.includes(text))) parts.push(text);
    e = e instanceof Error ? e.cause : undefined;
  }
  return parts.join(": ");
}

export const silentLogger: Logger = createLogger({ level: "none", write: () => {} });
