// Parses and formats durations as in Go: parses `90s`, formats it as `1m30s`. In memory they are numbers of nanoseconds,
// which are exact for whole milliseconds up to thousands of years.

const UNIT_NS: Readonly<Record<string, number>> = {
  ns: 1,
  us: 1e3,
  µs: 1e3,
  μs: 1e3,
  ms: 1e6,
  s: 1e9,
  m: 60e9,
  h: 3600e9,
};
const PART = /(\d+(?:\.\d*)?|\.\d+)(ns|us|µs|μs|ms|s|m|h)/gy;

/** Returns nanoseconds, or undefined if the text is not a duration. */
export function parseDuration(text: string): number | undefined {
  const sign = text.startsWith("-") ? -1 : 1;
  const body = /^[-+]/.test(text) ? text.slice(1) : text;
  if (body === "0") return 0;
  let total = 0;
  let end = 0;
  for (const match of body.matchAll(PART)) {
    total += Number(match[1]) * (UNIT_NS[match[2] ?? ""] ?? 0);
    end = match.index + match[0].length;
  }
  return end === 0 || end !== body.length || total > 2 ** 63 ? undefined : sign * Math.round(total);
}

export const durationMs = (text: string): number | undefined => {
  const ns = parseDuration(text);
  return ns === undefined ? undefined : ns / 1e6;
};

/** Formats nanoseconds as in Go: `1h0m0s`, `1.5s`, `100ms`, `0s`. */
export function formatDuration(ns: number): string {
  if (ns === 0) return "0s";
  const sign = ns < 0 ? "-" : "";
  const abs = Math.abs(ns);
  if (abs < 1e3) return `${sign}${abs}ns`;
  if (abs < 1e6) return `${sign}${abs / 1e3}µs`;
  if (abs < 1e9) return `${sign}${abs / 1e6}ms`;
  const hours = Math.floor(abs / 3600e9);
  const minutes = Math.floor((abs % 3600e9) / 60e9);
  const seconds = `${(abs % 60e9) / 1e9}s`;
  if (hours > 0) return `${sign}${hours}h${minutes}m${seconds}`;
  return minutes > 0 ? `${sign}${minutes}m${seconds}` : `${sign}${seconds}`;
}
