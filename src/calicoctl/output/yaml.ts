// Prints values as the block-style YAML of Kubernetes tools: keys are sorted, lists have the indentation of their key, text is
// quoted only if a YAML 1.1 parser would read it as another type, and long lines are folded.

export type YamlValue = unknown;

export function toYaml(value: YamlValue): string {
  const out: string[] = [];
  writeNode(out, value, 0, "line");
  return out.join("");
}

/** The place of a collection: on its own line, after `key:`, or after `- `. */
type Place = "line" | "key" | "dash";

function writeNode(out: string[], value: YamlValue, indent: number, place: "line" | "dash"): void {
  if (Array.isArray(value)) writeList(out, value, indent, place);
  else if (isMap(value)) writeMap(out, value, indent, place);
  else out.push(scalar(value, place === "line" ? undefined : { column: indent, indent }), "\n");
}

function writeList(out: string[], items: readonly YamlValue[], indent: number, place: Place): void {
  if (items.length === 0) {
    out.push(place === "key" ? " []\n" : "[]\n");
    return;
  }
  if (place === "key") out.push("\n");
  items.forEach((item, i) => {
    out.push(i === 0 && place === "dash" ? "" : " ".repeat(indent), "- ");
    writeNode(out, item, indent + 2, "dash");
  });
}

function writeMap(out: string[], map: Readonly<Record<string, YamlValue>>, indent: number, place: Place): void {
  const keys = Object.keys(map)
    .filter((key) => map[key] !== undefined)
    .sort(naturalOrder);
  if (keys.length === 0) {
    out.push(place === "key" ? " {}\n" : "{}\n");
    return;
  }
  if (place === "key") out.push("\n");
  keys.forEach((key, i) => {
    const name = keyText(key);
    out.push(i === 0 && place === "dash" ? "" : " ".repeat(indent), name, ":");
    const value = map[key];
    // A list has the indentation of its key; a map is indented by two more spaces.
    if (Array.isArray(value)) writeList(out, value, indent, "key");
    else if (isMap(value)) writeMap(out, value, indent + 2, "key");
    else out.push(" ", scalar(value, { column: indent + name.length + 2, indent: indent + 2 }), "\n");
  });
}

function isMap(value: unknown): value is Readonly<Record<string, unknown>> {
  return typeof value === "object" && value !== null && !Array.isArray(value);
}

/** The column of a scalar, and the indentation of its further lines. */
interface Spot {
  readonly column: number;
  readonly indent: number;
}
/** A longer line is folded at its next single space. */
const LINE_WIDTH = 80;

function scalar(value: YamlValue, spot: Spot | undefined): string {
  if (value === null || value === undefined) return "null";
  if (typeof value === "string") return text(value, spot);
  return typeof value === "number" ? numberText(value) : String(value);
}

/** Prints integers in full; other numbers from a million on, and very small ones, have an exponent of at least two digits. */
export function numberText(value: number): string {
  if (Number.isInteger(value) && Math.abs(value) < 1e21) return String(value);
  const [digits = "", exponent = ""] = value.toExponential().split("e");
  const power = Number(exponent);
  if (power >= -4 && power < 6) return String(value);
  return `${digits}e${power < 0 ? "-" : "+"}${String(Math.abs(power)).padStart(2, "0")}`;
}

/** Prints a key on one line, regardless of its length. */
function keyText(key: string): string {
  if (/^[a-z]{2}[A-Za-z]*$/.test(key) && !OTHER_WORDS.has(key)) return key; // the usual case
  return key.includes("\n") ? quoted(key) : text(key);
}

function text(value: string, spot?: Spot): string {
  if (SPECIAL.test(value)) return quoted(value, spot);
  if (value.includes("\n")) return (spot && block(value, spot.indent)) ?? quoted(value, spot);
  if (isOtherType(value)) return quoted(value, spot);
  if (isPlain(value)) return fold(value, spot, "", (char) => char);
  return fold(value, spot, "'", (char) => (char === "'" ? "''" : char));
}

const quoted = (value: string, spot?: Spot) => fold(value, spot, '"', escaped);

/** Breaks a long line at single spaces; parsers read such a line break as a space. */
function fold(value: string, spot: Spot | undefined, quote: "" | "'" | '"', encode: (char: string) => string): string {
  // The usual case: a short line.
  if (quote === "" && (spot?.column ?? 0) + value.length <= LINE_WIDTH) return value;
  const chars = [...value];
  let out = quote;
  let column = (spot?.column ?? 0) + quote.length;
  chars.forEach((char, i) => {
    const inside = i > 0 && i < chars.length - 1;
    const single = char === " " && chars[i - 1] !== " " && chars[i + 1] !== " ";
    if (spot !== undefined && single && inside && column > LINE_WIDTH) {
      out += `\n${" ".repeat(spot.indent)}`;
      column = spot.indent;
      return;
    }
    const written = encode(char);
    out += written;
    column += written.length;
  });
  return out + quote;
}

/** Prints text as a literal block, unless a line ends in a space, which would be invisible. */
function block(value: string, indent: number): string | undefined {
  if (/[ \t]$/.test(value) || / \n/.test(value)) return undefined;
  const chomp = !value.endsWith("\n") ? "-" : value.endsWith("\n\n") || value === "\n" ? "+" : "";
  const hint = /^[ \n]/.test(value) ? "2" : "";
  const body = (value.endsWith("\n") ? value.slice(0, -1) : value)
    .split("\n")
    .map((line) => (line === "" ? "" : `${" ".repeat(indent)}${line}`))
    .join("\n");
  return `|${hint}${chomp}\n${body}`;
}

/** Characters that must be escaped in double quotes. */
const SPECIAL = /[^\n\x20-\x7e\x85\xa0-\ud7ff\ue000-\ufefe\uff00-\ufffd\u{10000}-\u{10ffff}]/u;

/** Whether the text contains no YAML indicators. */
function isPlain(value: string): boolean {
  if (/^[ \t]|[ \t]$/.test(value)) return false;
  if (/^[#,[\]{}&*!|>'"%@`]/.test(value)) return false;
  if (/^[-?:](\s|$)/.test(value) || value.startsWith("---") || value.startsWith("...")) return false;
  return !/:(\s|$)/.test(value) && !/\s#/.test(value);
}

const OTHER_WORDS = new Set(
  "~ null Null NULL y Y yes Yes YES n N no No NO true True TRUE false False FALSE on On ON off Off OFF << .nan .NaN .NAN .inf .Inf .INF +.inf +.Inf +.INF -.inf -.Inf -.INF".split(
    " ",
  ),
);
const INTEGER = /^[-+]?(0|[1-9][0-9_]*|0[xX][0-9a-fA-F_]+|0[oO]?[0-7_]+|0[bB][01_]+)$/;
const FLOAT = /^[-+]?(\._*[0-9][0-9_]*|[0-9][0-9_]*(\.[0-9_]*)?)([eE][-+]?[0-9]+)?$/;
const SEXAGESIMAL = /^[-+]?[0-9][0-9_]*(?::[0-5]?[0-9])+(?:\.[0-9_]*)?$/;
const TIMESTAMP = /^\d{4}-\d{1,2}-\d{1,2}([Tt ]\d{1,2}:\d{1,2}:\d{1,2}(\.\d+)?([Zz]|[-+]\d{1,2}(:\d{2})?)?)?$/;

/** Whether a YAML 1.1 parser reads the unquoted text as null, a boolean, a number or a time. */
function isOtherType(value: string): boolean {
  if (value === "" || OTHER_WORDS.has(value)) return true;
  if (!/^[-+.0-9]/.test(value)) return false;
  return INTEGER.test(value) || FLOAT.test(value) || SEXAGESIMAL.test(value) || TIMESTAMP.test(value);
}

const ESCAPES: Readonly<Record<string, string>> = {
  "\0": "\\0",
  "\x07": "\\a",
  "\b": "\\b",
  "\t": "\\t",
  "\n": "\\n",
  "\v": "\\v",
  "\f": "\\f",
  "\r": "\\r",
  "\x1b": "\\e",
  '"': '\\"',
  "\\": "\\\\",
  "\x85": "\\N",
  "\xa0": "\\_",
  "\u2028": "\\L",
  "\u2029": "\\P",
};

function escaped(char: string): string {
  const known = ESCAPES[char];
  if (known !== undefined) return known;
  if (!SPECIAL.test(char)) return char;
  const code = char.codePointAt(0) ?? 0;
  if (code <= 0xff) return `\\x${hex(code, 2)}`;
  return code <= 0xffff ? `\\u${hex(code, 4)}` : `\\U${hex(code, 8)}`;
}

const hex = (code: number, digits: number) => code.toString(16).toUpperCase().padStart(digits, "0");

/** Compares keys as Go's YAML library does: digits as numbers (`p2` is before `p10`), letters after all other characters. */
export function naturalOrder(a: string, b: string): number {
  const length = Math.min(a.length, b.length);
  for (let i = 0; i < length; i++) {
    const [x, y] = [a.charCodeAt(i), b.charCodeAt(i)];
    if (x === y) continue;
    const [xIsLetter, yIsLetter] = [isLetter(x), isLetter(y)];
    if (xIsLetter !== yIsLetter) return xIsLetter ? 1 : -1;
    const byNumber = xIsLetter ? 0 : compareNumbers(a, b, i);
    return byNumber !== 0 ? byNumber : x - y;
  }
  return a.length - b.length;
}

/** Compares the numbers at `at`, the first difference, by value and then by the number of digits. */
function compareNumbers(left: string, right: string, at: number): number {
  // A zero inside a number is significant (1 is before 10); leading zeros are not.
  let start = at;
  while (start > 0 && isDigit(left.charCodeAt(start - 1))) start--;
  const inside = /[1-9]/.test(left.slice(start, at));
  const first = inside && (left[at] === "0" || right[at] === "0") ? 1 : 0;
  const [a, b] = [numberAt(left, at, first), numberAt(right, at, first)];
  return a.value !== b.value ? a.value - b.value : a.digits - b.digits;
}

function numberAt(text: string, at: number, first: number): { value: number; digits: number } {
  let value = first;
  let i = at;
  for (; isDigit(text.charCodeAt(i)); i++) value = value * 10 + text.charCodeAt(i) - 48;
  return { value, digits: i - at };
}

const isDigit = (code: number) => code >= 48 && code <= 57;
const isLetter = (code: number) =>
  code < 128 ? (code | 32) >= 97 && (code | 32) <= 122 : /\p{L}/u.test(String.fromCharCode(code));
