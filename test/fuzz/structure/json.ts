// Mutates JSON values: other types, limits, missing and unknown fields, deep nesting. The input may contain lines of other text;
// then one line is changed.
import type { Random } from "../random.ts";
import { MOST_INPUT_BYTES, type MutationContext, type Structure } from "./structure.ts";
import { NUMBERS, text } from "./text.ts";

/** Changes one value of a JSON document. One change in six is a mutation of text. */
export const json: Structure = (input, context) => {
  if (context.random.oneIn(6)) return text(input, context);
  const source = Buffer.from(input).toString("utf8");
  const mutated = mutateJson(source, context) ?? mutateLine(source, context);
  return mutated === undefined ? text(input, context) : new TextEncoder().encode(mutated);
};

function mutateLine(source: string, context: MutationContext): string | undefined {
  const lines = source.split("\n");
  for (let attempt = 0; attempt < 4; attempt++) {
    const at = context.random.below(lines.length);
    const mutated = mutateJson(lines[at] ?? "", context);
    if (mutated !== undefined) return lines.with(at, mutated).join("\n");
  }
  // A path or a name on the first line, followed by a document of several lines.
  const [first, ...rest] = lines;
  const mutated = mutateJson(rest.join("\n"), context);
  return mutated === undefined ? undefined : `${first}\n${mutated}`;
}

function mutateJson(source: string, context: MutationContext): string | undefined {
  const root = parsed(source);
  if (typeof root !== "object" || root === null) return undefined;
  const holder = { root };
  const { random } = context;
  const place = pickPlace(holder, random);
  // More copies would be truncated, and for a deep value that would take minutes.
  mutatePlace(place, context, Math.ceil(MOST_INPUT_BYTES / source.length));
  return JSON.stringify(holder.root);
}

interface Place {
  readonly holder: Record<string, unknown> | unknown[];
  readonly key: string | number;
}

function pickPlace(root: Record<string, unknown>, random: Random): Place {
  const places: Place[] = [];
  const collect = (value: unknown): void => {
    if (typeof value !== "object" || value === null || places.length > 2000) return;
    for (const key of Object.keys(value)) {
      places.push({ holder: value as Place["holder"], key: Array.isArray(value) ? Number(key) : key });
      collect((value as Record<string, unknown>)[key]);
    }
  };
  collect(root);
  return random.pick(places) ?? { holder: root, key: "root" };
}

const KEYS: readonly [string, ...string[]] = [
  "__proto__",
  "constructor",
  "toString",
  "",
  "a",
  "length",
  "A".repeat(300),
];

function mutatePlace({ holder, key }: Place, context: MutationContext, mostCopies: number): void {
  const { random } = context;
  const value = (holder as Record<string, unknown>)[key];
  switch (random.below(8)) {
    case 0:
      if (Array.isArray(holder)) holder.splice(Number(key), 1);
      else delete holder[key];
      return;
    case 1: // another name for the same value
      if (!Array.isArray(holder)) return define(holder, newKey(context), value);
      holder.splice(Number(key), 0, ...Array.from({ length: Math.min(copyCount(random), mostCopies) }, () => value));
      return;
    case 2: // a value of another input
      return define(holder, String(key), foreignValue(context));
    case 3:
      return define(holder, String(key), changedText(value, context));
    case 4: {
      let nested: unknown = value;
      const depth = random.oneIn(6) ? 5000 : 1 + random.below(4);
      for (let i = 0; i < depth; i++) nested = random.oneIn(2) ? [nested] : { a: nested };
      return define(holder, String(key), nested);
    }
    default:
      define(holder, String(key), otherValue(random));
  }
}

const copyCount = (random: Random): number => random.below(random.oneIn(8) ? 2000 : 5);

function otherValue(random: Random): unknown {
  const raw = random.pick(NUMBERS);
  switch (random.below(8)) {
    case 0:
      return null;
    case 1:
      return random.oneIn(2);
    case 2:
      return {};
    case 3:
      return [];
    case 4:
      return "";
    case 5:
      return raw;
    case 6:
      return [null, {}, [], 0, "x"];
    default:
      return /^-?(0|[1-9]\d*)(\.\d+)?(e\d+)?$/.test(raw) ? rawJson(raw) : random.below(1000) - 500;
  }
}

/** Strings are changed as text; strings that contain JSON are changed as JSON. */
function changedText(value: unknown, context: MutationContext): unknown {
  if (typeof value !== "string") return typeof value === "number" ? value + context.random.below(5) - 2 : value;
  if (/^[[{]/.test(value) && !context.random.oneIn(3)) return mutateJson(value, context) ?? value;
  return new TextDecoder().decode(text(new TextEncoder().encode(value), context));
}

function foreignValue({ other, random }: MutationContext): unknown {
  const source = new TextDecoder().decode(other());
  const root = parsed(source) ?? parsed(random.pick(source.split("\n")) ?? "");
  if (typeof root !== "object" || root === null) return null;
  const { holder, key } = pickPlace({ root }, random);
  return (holder as Record<string, unknown>)[key];
}

function newKey({ random, dictionary }: MutationContext): string {
  return random.oneIn(2) ? (random.pick(dictionary) ?? "a") : random.pick(KEYS);
}

function define(holder: object, key: string, value: unknown): void {
  Object.defineProperty(holder, key === "length" && Array.isArray(holder) ? "0" : key, {
    value,
    enumerable: true,
    writable: true,
    configurable: true,
  });
}

function parsed(source: string): unknown {
  try {
    return JSON.parse(source);
  } catch {
    return undefined;
  }
}

const rawJson = (digits: string): unknown => (JSON as unknown as { rawJSON(text: string): unknown }).rawJSON(digits);
