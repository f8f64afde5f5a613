// Defines types of settings: words, numbers, durations, patterns.
import { durationMs, parseDuration } from "../validation/duration.ts";
import type { Json } from "../../lib/encoding/lossless-json.ts";
import { fieldText, omitEmpty, valueType, withSchema } from "./value-type.ts";

const TRUE = new Set(["true", "1", "yes", "y", "t"]);
const FALSE = new Set(["false", "0", "no", "n", "f"]);
const readFlag = (text: string): boolean | undefined =>
  TRUE.has(text.toLowerCase()) ? true : FALSE.has(text.toLowerCase()) ? false : undefined;

export const flag = valueType({
  name: "boolean",
  zero: false,
  wanted: "true or false",
  read: readFlag,
  item: (f) => f.flag(),
});
export const optionalFlag = valueType<boolean | "auto", ReturnType<typeof flag.item>>({
  name: "boolean or unset",
  zero: "auto",
  wanted: "true or false",
  read: readFlag,
  item: flag.item,
});

export const text = omitEmpty(
  valueType({ name: "text", zero: "", wanted: "text", read: (given): string => given, item: (f) => f.text() }),
);
export const path = { ...text, name: "path" };
export const existingFile = omitEmpty(
  valueType({
    name: "file",
    zero: "",
    wanted: "a file that exists",
    read: (given, host) => (host.exists(given) ? given : undefined),
    item: (f) => f.text(),
  }),
);
export const executable = omitEmpty(
  valueType({
    name: "program",
    zero: "",
    wanted: "a program next to Felix's executable or in PATH",
    read: (given, host) => host.findExecutable(given),
    item: (f) => f.text(),
  }),
);

/** Without `min`, any integer that a double holds exactly. */
export function integer(min?: number, max?: number) {
  const bounds = min === undefined ? "" : max === undefined ? ` ≥ ${min}` : ` ${min}–${max}`;
  return valueType({
    name: `integer${bounds}`,
    zero: 0,
    wanted: `a whole number${bounds}`,
    read: (given) => {
      const value = readInteger(given);
      return value !== undefined && value >= (min ?? value) && value <= (max ?? value) ? value : undefined;
    },
    item: (f) => (min === undefined ? f.int64() : f.integer(min, max)),
  });
}

/** Integers as in Go: also `0x10`, `0b10`, `0o10` and `010`, and `_` between digits. */
export function readInteger(given: string): number | undefined {
  const [, sign, text = ""] =
    /^([+-]?)(0x(?:_?[\da-f])+|0b(?:_?[01])+|0o?(?:_?[0-7])+|0|[1-9](?:_?\d)*)$/i.exec(given) ?? [];
  if (text === "") return undefined;
  const digits = text.replaceAll("_", "").toLowerCase();
  const value = Number(/^0\d/.test(digits) ? `0o${digits.slice(1)}` : digits);
  return Number.isSafeInteger(value) ? (sign === "-" && value !== 0 ? -value : value) : undefined;
}

/** The text is a number of units; the field of the resource is a duration such as `90s`. */
const timeSpan = (unit: "seconds" | "milliseconds", unitNs: number) =>
  valueType({
    name: unit,
    zero: 0,
    wanted: `a number of ${unit}`,
    read: (given) => (/^[+-]?(\d+(\.\d*)?|\.\d+)(e[+-]?\d+)?$/i.test(given) ? Number(given) : undefined),
    item: (f) => f.duration(),
    toText: (value: Json) => {
      const ns = typeof value === "string" ? parseDuration(value) : undefined;
      return ns === undefined ? fieldText(value) : String(ns / unitNs);
    },
  });
export const seconds = timeSpan("seconds", 1e9);
export const milliseconds = timeSpan("milliseconds", 1e6);

const choiceOf = <const V extends readonly string[]>(values: V) => {
  const byText = new Map<string, V[number]>(values.map((value) => [value.toLowerCase(), value]));
  return {
    name: values.join(", "),
    zero: (byText.get("none") ?? "") as V[number] | "",
    wanted: `one of ${values.join(", ")}`,
    read: (given: string): V[number] | "" | undefined => byText.get(given.toLowerCase()),
  };
};
/** One of these words. The text may have any letter case, the field of the resource may not. */
export const choice = <const V extends readonly string[]>(...values: V) =>
  valueType({ ...choiceOf(values), item: (f) => f.choice(...values) });
/** One of these words in any letter case, also in the resource. */
export const anyCase = <const V extends readonly string[]>(...values: V) =>
  omitEmpty(valueType({ ...choiceOf(values), item: (f) => f.anyCase(...values) }));
export const onOff = choice("Enabled", "Disabled");
export const logLevel = anyCase("Trace", "Debug", "Info", "Warning", "Error", "Fatal");

export const regexp = omitEmpty(
  valueType<RegExp | undefined, ReturnType<typeof text.item>>({
    name: "regular expression",
    zero: undefined,
    wanted: "a regular expression",
    read: (given) => {
      try {
        return new RegExp(given);
      } catch {
        return undefined;
      }
    },
    item: (f) => f.regex(),
  }),
);

/** Parses `key=value,…`. Blanks of a value are kept; empty items are skipped. */
function readPairs<T>(given: string, read: (value: string) => T | undefined): ReadonlyMap<string, T> | undefined {
  const pairs = new Map<string, T>();
  for (const item of given.split(",")) {
    if (item.trim() === "") continue;
    const match = /^\s*(\w+)=(.*)$/s.exec(item);
    const value = match?.[2] === undefined ? undefined : read(match[2]);
    if (match?.[1] === undefined || value === undefined) return undefined;
    pairs.set(match[1], value);
  }
  return pairs;
}
export const keyValues = omitEmpty(
  valueType({
    name: "key=value list",
    zero: new Map<string, string>() as ReadonlyMap<string, string>,
    wanted: "a list such as a=b,c=d",
    read: (given) => readPairs(given, (value) => value),
    item: (f) =>
      f.matching(
        (value) => value.trim() === "" || value.split(",").every((item) => item === "" || /^\s*\w+=.*$/.test(item)),
        "want name=value pairs, joined by commas",
      ),
  }),
);
const positiveMs = (value: string): number | undefined => {
  const ms = durationMs(value);
  return ms === undefined || ms < 0 ? undefined : ms;
};
/** Milliseconds by name. */
export const durationMap = omitEmpty(
  valueType({
    name: "name=duration list",
    zero: new Map<string, number>() as ReadonlyMap<string, number>,
    wanted: "a list such as CalculationGraph=30s",
    read: (given) => readPairs(given, (value) => positiveMs(value.trim())),
    item: (f) =>
      f.list(
        f.object({
          name: f.matching((value) => /^[a-zA-Z0-9_ -]+$/.test(value), "want letters, digits, blanks, _ and -"),
          timeout: f.always(f.duration(), "0s"),
        }),
      ),
  }),
);

const RATE = /^([1-9]\d{0,3})\/(second|minute|hour|day)$/;
interface Rate {
  readonly count: number;
  readonly unit: string;
}
export const rate = valueType<Rate | undefined, ReturnType<typeof text.item>>({
  name: "rate",
  zero: undefined,
  wanted: "a rate such as 10/second, 1 to 9999",
  read: (given) => {
    const [, count, unit] = RATE.exec(given) ?? [];
    return unit === undefined ? undefined : { count: Number(count), unit };
  },
  item: (f) => f.matching((value) => RATE.test(value), "want a rate such as 10/minute"),
});

/** Text that is stored even if it is empty. */
export const pointerText = withSchema(text, (f) => f.pointer(f.text()));
