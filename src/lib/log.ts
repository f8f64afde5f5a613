// One line of text per event: a fixed sentence plus fields. The writer is given from outside, so that a program decides
// where its lines go and a test can read them.

export type LogLevel = "debug" | "info" | "warn" | "error";
export type LogFields = Readonly<Record<string, unknown>>;

export interface Logger {
  debug(sentence: string, fields?: LogFields): void;
  info(sentence: string, fields?: LogFields): void;
  warn(sentence: string, fields?: LogFields): void;
  error(sentence: string, fields?: LogFields): void;
  /** A logger whose lines all carry these fields too. */
  with(fields: LogFields): Logger;
  /** Whether lines of this level are written: ask before computing expensive fields. */
  enabled(level: LogLevel): boolean;
}

export interface LogRecord {
  readonly time: Date;
  readonly level: LogLevel;
  readonly sentence: string;
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
  const log = (level: LogLevel) => (sentence: string, fields?: LogFields) => {
    if (RANK[level] < threshold) return;
    options.write({ time: now(), level, sentence, fields: fields === undefined ? base : { ...base, ...fields } });
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

/** A line for people: `2026-01-02 03:04:05.678 [INFO] sentence key=value …`. */
export function formatText(record: LogRecord): string {
  const time = record.time.toISOString().replace("T", " ").replace("Z", "");
  const fields = Object.entries(record.fields)
    .sort(([a], [b]) => (a < b ? -1 : 1))
    .map(([key, value]) => ` ${key}=${formatValue(value)}`)
    .join("");
  return `${time} [${record.level.toUpperCase()}] ${record.sentence}${fields}`;
}

function formatValue(value: unknown): string {
  if (value instanceof Error) return JSON.stringify(describeError(value));
  if (typeof value === "bigint") return value.toString();
  return JSON.stringify(value) ?? "undefined";
}

/** An error and what caused it, outermost first, on one line; a cause that was told with its effect is not told again. */
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
