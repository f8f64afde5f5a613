// Splits the text of a selector into tokens. Blanks are spaces and tabs; strings have no escapes. Word operators (`in`,
// `contains`, …) are recognised only directly after a label, so a label may have the name of an operator.

export class SelectorError extends Error {
  override readonly name = "SelectorError";
  /** @param position index in the text, from 0 */
  constructor(
    readonly text: string,
    readonly position: number,
    readonly reason: string,
  ) {
    super(`selector ${quote(text, position)}: ${reason} at character ${position + 1}`);
  }
}

export type Operator = "==" | "!=" | "contains" | "starts with" | "ends with" | "in" | "not in";
export type Token =
  | { readonly kind: "(" | ")" | "{" | "}" | "," | "!" | "&&" | "||" | "all" | "global" | "end"; readonly at: number }
  | { readonly kind: "has" | "label" | "string"; readonly text: string; readonly at: number }
  | { readonly kind: "operator"; readonly operator: Operator; readonly at: number };

const MAX_LABEL = 512;

/** @throws SelectorError if the label is too long for the selector language */
export function checkLabelLength(label: string): void {
  if (label.length > MAX_LABEL) throw new SelectorError(label, 0, tooLong(label.length));
}
const tooLong = (length: number): string => `label too long (${length} characters, at most ${MAX_LABEL})`;

/** The patterns require a word boundary at the end, so that an operator is not the beginning of a longer word. */
const WORD_OPERATORS: readonly (readonly [RegExp, Operator])[] = [
  [/contains\b/y, "contains"],
  [/starts[ \t]*with\b/y, "starts with"],
  [/ends[ \t]*with\b/y, "ends with"],
  [/not[ \t]*in\b/y, "not in"],
  [/in\b/y, "in"],
];
const FUNCTIONS = ["has(", "all(", "global("] as const;

export class SelectorLexer {
  readonly #text: string;
  #at = 0;
  #afterLabel = false;

  constructor(text: string) {
    this.#text = text;
  }

  next(): Token {
    this.#skipBlanks();
    const at = this.#at;
    if (this.#afterLabel) {
      this.#afterLabel = false;
      return this.#operator(at);
    }
    switch (this.#text[at]) {
      case undefined:
        return { kind: "end", at };
      case "(":
      case ")":
      case "{":
      case "}":
      case ",":
      case "!":
        return this.#punctuation(this.#text[at] as "(" | ")" | "{" | "}" | "," | "!", at);
      case "&":
        return this.#punctuation("&&", at);
      case "|":
        return this.#punctuation("||", at);
      case '"':
      case "'":
        return this.#string(at);
      default:
        return this.#word(at);
    }
  }

  /**
   * Reads one string of a set literal and the following comma. It creates no tokens, because a set may have 200,000 values.
   * @returns false if something else follows; it is not consumed then
   */
  readListed(values: string[]): boolean {
    this.#skipBlanks();
    const quote = this.#text[this.#at];
    if (quote !== "'" && quote !== '"') return false;
    const start = this.#at + 1;
    const end = this.#text.indexOf(quote, start);
    if (end < 0) return false;
    let next = end + 1;
    while (this.#text[next] === " " || this.#text[next] === "\t") next++;
    if (this.#text[next] !== ",") return false;
    values.push(this.#text.slice(start, end));
    this.#at = next + 1;
    return true;
  }

  fail(position: number, reason: string): never {
    throw new SelectorError(this.#text, position, reason);
  }

  #punctuation(kind: "(" | ")" | "{" | "}" | "," | "!" | "&&" | "||", at: number): Token {
    if (!this.#text.startsWith(kind, at)) this.fail(at, `expected ${kind}`);
    this.#at += kind.length;
    return { kind, at };
  }

  #string(at: number): Token {
    const end = this.#text.indexOf(this.#text[at] ?? "", at + 1);
    if (end < 0) this.fail(at, "unterminated string");
    this.#at = end + 1;
    return { kind: "string", text: this.#text.slice(at + 1, end), at };
  }

  #word(at: number): Token {
    for (const name of FUNCTIONS) {
      if (!this.#text.startsWith(name, at)) continue;
      this.#at += name.length;
      this.#skipBlanks();
      const label = name === "has(" ? this.#label() : "";
      this.#skipBlanks();
      if (this.#text[this.#at] !== ")") this.fail(this.#at, `no closing ')' after ${name}`);
      this.#at++;
      if (name === "has(") return { kind: "has", text: label, at };
      return { kind: name === "all(" ? "all" : "global", at };
    }
    const text = this.#label();
    this.#afterLabel = true;
    return { kind: "label", text, at };
  }

  #label(): string {
    const at = this.#at;
    let end = at;
    while (isLabelCode(this.#text.charCodeAt(end))) end++;
    if (end === at) this.fail(at, at === this.#text.length ? "expected identifier" : `unexpected ${this.#shown(at)}`);
    if (end - at > MAX_LABEL) this.fail(at, tooLong(end - at));
    this.#at = end;
    return this.#text.slice(at, end);
  }

  #operator(at: number): Token {
    for (const symbol of ["==", "!="] as const) {
      if (!this.#text.startsWith(symbol, at)) continue;
      this.#at += 2;
      return { kind: "operator", operator: symbol, at };
    }
    for (const [pattern, operator] of WORD_OPERATORS) {
      pattern.lastIndex = at;
      if (!pattern.test(this.#text)) continue;
      this.#at = pattern.lastIndex;
      return { kind: "operator", operator, at };
    }
    if (this.#text[at] === "=") this.fail(at, "expected ==");
    this.fail(at, "expected operator after label (==, !=, in, not in, contains, starts with, ends with)");
  }

  #skipBlanks(): void {
    while (this.#text[this.#at] === " " || this.#text[this.#at] === "\t") this.#at++;
  }

  #shown(at: number): string {
    return JSON.stringify(String.fromCodePoint(this.#text.codePointAt(at) ?? 0));
  }
}

function isLabelCode(code: number): boolean {
  return (
    (code >= 97 && code <= 122) || // a-z
    (code >= 65 && code <= 90) || // A-Z
    (code >= 45 && code <= 57) || // - . / 0-9
    code === 95 // _
  );
}

/** Quotes the text; of a long text only the part around the position. */
function quote(text: string, position: number): string {
  if (text.length <= 120) return JSON.stringify(text);
  const from = Math.max(0, position - 50);
  const to = Math.min(text.length, position + 50);
  return `${from > 0 ? "…" : ""}${JSON.stringify(text.slice(from, to))}${to < text.length ? "…" : ""}`;
}
