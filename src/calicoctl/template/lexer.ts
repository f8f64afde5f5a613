// Splits a Go template (https://pkg.go.dev/text/template) into tokens: the text between actions, and inside `{{ }}` names,
// fields, variables, constants and operators. Spaces inside an action separate arguments, so they are tokens too.

export type TokenKind =
  | "text"
  | "open"
  | "close"
  | "space"
  | "word"
  | "field" // .Name
  | "dot"
  | "variable" // $name or $
  | "string"
  | "number"
  | "char"
  | "sign" // := = | ( ) ,
  | "end";

export interface Token {
  readonly kind: TokenKind;
  readonly text: string;
  readonly offset: number;
}

export class TemplateFault extends Error {
  override readonly name = "TemplateFault";
}

export function lineOf(source: string, offset: number): number {
  return source.slice(0, offset).split("\n").length;
}

export function faultAt(name: string, source: string, offset: number, reason: string): TemplateFault {
  return new TemplateFault(`template: ${name}:${lineOf(source, offset)}: ${reason}`);
}

const SPACE = /[ \t\r\n]+/y;
const WORD = /[\p{L}_][\p{L}\p{Nd}_]*/uy;
const FIELD = /\.[\p{L}_][\p{L}\p{Nd}_]*/uy;
const VARIABLE = /\$[\p{L}\p{Nd}_]*/uy;
const NUMBER = /[+-]?(0[xX][0-9a-fA-F_]+|0[bB][01_]+|0[oO][0-7_]+|(\d[\d_]*)?\.?\d[\d_]*\.?([eE][+-]?\d+)?)/y;
const STRING = /"(?:[^"\\\n]|\\.)*"|`[^`]*`/y;
const CHAR = /'(?:[^'\\\n]|\\.[^']*)'/y;
const SIGN = /:=|[=|(),]/y;

export function tokenize(name: string, source: string): Token[] {
  const tokens: Token[] = [];
  let at = 0;
  let trimNext = false;
  while (at < source.length) {
    const open = source.indexOf("{{", at);
    let text = source.slice(at, open < 0 ? source.length : open);
    const trimThis = open >= 0 && /^\{\{-[ \t\r\n]/.test(source.slice(open, open + 4));
    if (trimNext) text = text.trimStart();
    if (trimThis) text = text.trimEnd();
    if (text !== "") tokens.push({ kind: "text", text, offset: at });
    if (open < 0) break;
    const inside = open + (trimThis ? 3 : 2);
    const comment = /\/\*[\s\S]*?\*\//y;
    const start = inside + (/^[ \t\r\n]*/.exec(source.slice(inside))?.[0].length ?? 0);
    comment.lastIndex = start;
    if (source.startsWith("/*", start)) {
      const found = comment.exec(source);
      const after = found === null ? null : /^([ \t\r\n]+-)?\}\}/.exec(source.slice(comment.lastIndex));
      if (after === null) throw faultAt(name, source, open, "unclosed comment");
      trimNext = after[1] !== undefined;
      at = comment.lastIndex + after[0].length;
      continue;
    }
    tokens.push({ kind: "open", text: "{{", offset: open });
    const end = tokenizeAction(name, source, inside, tokens);
    trimNext = end.trim;
    at = end.at;
  }
  tokens.push({ kind: "end", text: "", offset: source.length });
  return tokens;
}

function tokenizeAction(name: string, source: string, from: number, tokens: Token[]): { at: number; trim: boolean } {
  let at = from;
  while (at < source.length) {
    if (source.startsWith("}}", at)) {
      tokens.push({ kind: "close", text: "}}", offset: at });
      return { at: at + 2, trim: false };
    }
    const trimmed = /^[ \t\r\n]+-\}\}/.exec(source.slice(at, at + 64));
    if (trimmed !== null) {
      tokens.push({ kind: "close", text: "}}", offset: at });
      return { at: at + trimmed[0].length, trim: true };
    }
    const token = nextToken(source, at);
    if (token === undefined) {
      const char = source[at] ?? "";
      if (char === '"') throw faultAt(name, source, at, "unterminated quoted string");
      if (char === "`") throw faultAt(name, source, at, "unterminated raw quoted string");
      throw faultAt(name, source, at, `unexpected ${JSON.stringify(char)} in command`);
    }
    tokens.push(token);
    at += token.text.length;
  }
  throw faultAt(name, source, from, "unclosed action");
}

function nextToken(source: string, at: number): Token | undefined {
  const match = (pattern: RegExp) => {
    pattern.lastIndex = at;
    return pattern.exec(source)?.[0];
  };
  const kinds: [TokenKind, RegExp][] = [
    ["space", SPACE],
    ["field", FIELD],
    ["number", NUMBER],
    ["word", WORD],
    ["variable", VARIABLE],
    ["string", STRING],
    ["char", CHAR],
    ["sign", SIGN],
  ];
  for (const [kind, pattern] of kinds) {
    const text = match(pattern);
    if (text !== undefined && text !== "") return { kind, text, offset: at };
  }
  return source[at] === "." ? { kind: "dot", text: ".", offset: at } : undefined;
}
