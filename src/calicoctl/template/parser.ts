// Parses the tokens of a Go template to the tree that `execute.ts` evaluates.
import { faultAt, type TemplateFault, type Token, tokenize } from "./lexer.ts";

export type Node =
  | { readonly type: "text"; readonly text: string }
  | { readonly type: "action"; readonly pipe: Pipe }
  | { readonly type: "if" | "with"; readonly pipe: Pipe; readonly body: Body; readonly otherwise: Body }
  | { readonly type: "range"; readonly pipe: Pipe; readonly body: Body; readonly otherwise: Body }
  | { readonly type: "template"; readonly name: string; readonly pipe: Pipe | undefined; readonly offset: number }
  | { readonly type: "break" | "continue" };
export type Body = readonly Node[];

export interface Pipe {
  readonly variables: readonly string[];
  /** True for `:=`, which declares a variable; false for `=`, which changes an existing one. */
  readonly declares: boolean;
  readonly commands: readonly Command[];
  readonly offset: number;
}
export interface Command {
  readonly args: readonly Arg[];
  readonly offset: number;
}
export type Arg =
  | { readonly type: "dot" | "nil"; readonly offset: number }
  | { readonly type: "field"; readonly names: readonly string[]; readonly offset: number }
  | { readonly type: "variable"; readonly name: string; readonly names: readonly string[]; readonly offset: number }
  | { readonly type: "function"; readonly name: string; readonly offset: number }
  | { readonly type: "constant"; readonly value: string | number | boolean; readonly offset: number }
  | { readonly type: "pipe"; readonly pipe: Pipe; readonly names: readonly string[]; readonly offset: number };

export interface Template {
  readonly name: string;
  readonly source: string;
  readonly body: Body;
  /** The templates of `define` and `block`. */
  readonly named: ReadonlyMap<string, Body>;
}

export function parseTemplate(name: string, source: string): Template {
  const parser = new Parser(name, source, tokenize(name, source));
  return parser.template();
}

/** The keyword that ended a list of nodes. */
type Ending = "end" | "else" | "eof";

const MAX_DEPTH = 200;

class Parser {
  readonly #name: string;
  readonly #source: string;
  readonly #tokens: readonly Token[];
  readonly #named = new Map<string, Body>();
  #next = 0;
  #loops = 0;
  #depth = 0;

  constructor(name: string, source: string, tokens: readonly Token[]) {
    this.#name = name;
    this.#source = source;
    this.#tokens = tokens;
  }

  template(): Template {
    const { body, ending, offset } = this.#list();
    if (ending !== "eof") throw this.#fault(offset, `unexpected {{${ending}}}`);
    return { name: this.#name, source: this.#source, body, named: this.#named };
  }

  #list(): { body: Node[]; ending: Ending; offset: number } {
    const body: Node[] = [];
    for (;;) {
      const token = this.#take();
      if (token.kind === "end") return { body, ending: "eof", offset: token.offset };
      if (token.kind === "text") {
        body.push({ type: "text", text: token.text });
        continue;
      }
      this.#skipSpace();
      const word = this.#peek();
      if (word.kind === "word" && (word.text === "end" || word.text === "else")) {
        this.#take();
        this.#skipSpace();
        return { body, ending: word.text, offset: word.offset };
      }
      const node = this.#action();
      if (node !== undefined) body.push(node);
    }
  }

  #action(): Node | undefined {
    const word = this.#peek();
    switch (word.kind === "word" ? word.text : "") {
      case "if":
      case "with":
      case "range":
        this.#take();
        return this.#branch(word.text as "if" | "with" | "range");
      case "define":
      case "block":
        this.#take();
        return this.#definition(word);
      case "template": {
        this.#take();
        const name = this.#quotedName();
        const pipe = this.#peek().kind === "close" ? undefined : this.#pipe();
        this.#close();
        return { type: "template", name, pipe, offset: word.offset };
      }
      case "break":
      case "continue":
        this.#take();
        this.#skipSpace();
        if (this.#loops === 0) throw this.#fault(word.offset, `{{${word.text}}} outside {{range}}`);
        this.#close();
        return { type: word.text as "break" | "continue" };
      default: {
        const pipe = this.#pipe();
        this.#close();
        return { type: "action", pipe };
      }
    }
  }

  #branch(type: "if" | "with" | "range"): Node {
    const start = this.#peek().offset;
    const pipe = this.#pipe();
    this.#close();
    if (type === "range") this.#loops++;
    const then = this.#nested(start, () => this.#list());
    if (type === "range") this.#loops--;
    if (then.ending === "eof") throw this.#fault(start, "unexpected EOF");
    if (then.ending === "end") {
      this.#close();
      return { type, pipe, body: then.body, otherwise: [] };
    }
    const chained = this.#peek();
    if (chained.kind === "word" && (chained.text === "if" || chained.text === "with")) {
      this.#take(); // {{else if …}} has no {{end}} of its own
      const { text } = chained;
      return { type, pipe, body: then.body, otherwise: [this.#nested(start, () => this.#branch(text))] };
    }
    this.#close();
    const otherwise = this.#nested(start, () => this.#list());
    if (otherwise.ending !== "end") throw this.#fault(start, `expected end; found ${otherwise.ending}`);
    this.#close();
    return { type, pipe, body: then.body, otherwise: otherwise.body };
  }

  #definition(word: Token): Node | undefined {
    const name = this.#quotedName();
    const pipe = word.text === "block" ? this.#pipe() : undefined;
    this.#close();
    const { body, ending } = this.#nested(word.offset, () => this.#list());
    if (ending !== "end") throw this.#fault(word.offset, `unexpected ${ending} in ${word.text} clause`);
    this.#close();
    this.#named.set(name, body);
    return word.text === "block" ? { type: "template", name, pipe, offset: word.offset } : undefined;
  }

  /** Parses one level deeper. The depth is limited because each level uses stack space. */
  #nested<T>(offset: number, parse: () => T): T {
    if (this.#depth === MAX_DEPTH) throw this.#fault(offset, `nested more than ${MAX_DEPTH} times`);
    this.#depth++;
    const parsed = parse();
    this.#depth--;
    return parsed;
  }

  #quotedName(): string {
    this.#skipSpace();
    const token = this.#take();
    if (token.kind !== "string") throw this.#unexpected(token, "the name of a template in quotes");
    this.#skipSpace();
    return unquote(token.text);
  }

  #pipe(): Pipe {
    this.#skipSpace();
    const { offset } = this.#peek();
    const { variables, declares } = this.#declaration();
    const commands: Command[] = [this.#command()];
    while (this.#isSign("|")) {
      this.#take();
      this.#skipSpace();
      commands.push(this.#command());
    }
    return { variables, declares, commands, offset };
  }

  /** Parses `$x :=`, `$i, $x :=` or `$x =`, if one of them is next. */
  #declaration(): { variables: string[]; declares: boolean } {
    const start = this.#next;
    const variables: string[] = [];
    for (;;) {
      const token = this.#peek();
      if (token.kind !== "variable") break;
      variables.push(token.text);
      this.#take();
      this.#skipSpace();
      if (this.#isSign(":=") || this.#isSign("=")) {
        const declares = this.#take().text === ":=";
        this.#skipSpace();
        return { variables, declares };
      }
      if (!this.#isSign(",")) break;
      this.#take();
      this.#skipSpace();
    }
    this.#next = start;
    return { variables: [], declares: false };
  }

  #command(): Command {
    const args: Arg[] = [];
    const { offset } = this.#peek();
    for (;;) {
      this.#skipSpace();
      const token = this.#peek();
      if (token.kind === "close" || (token.kind === "sign" && (token.text === "|" || token.text === ")"))) break;
      if (token.kind === "end" || token.kind === "text") throw this.#fault(token.offset, "unclosed action");
      args.push(this.#arg());
    }
    if (args.length === 0) throw this.#fault(offset, "missing value for command");
    return { args, offset };
  }

  #arg(): Arg {
    const token = this.#take();
    const { offset } = token;
    switch (token.kind) {
      case "dot":
        return { type: "dot", offset };
      case "field":
        return { type: "field", names: [token.text.slice(1), ...this.#fields()], offset };
      case "variable":
        return { type: "variable", name: token.text, names: this.#fields(), offset };
      case "string":
        return { type: "constant", value: unquote(token.text), offset };
      case "char":
        return { type: "constant", value: unquote(`"${token.text.slice(1, -1)}"`).codePointAt(0) ?? 0, offset };
      case "number": {
        const value = Number(token.text.replaceAll("_", ""));
        if (Number.isNaN(value)) throw this.#fault(offset, `bad number syntax: ${JSON.stringify(token.text)}`);
        return { type: "constant", value, offset };
      }
      case "word":
        if (token.text === "true" || token.text === "false")
          return { type: "constant", value: token.text === "true", offset };
        return token.text === "nil" ? { type: "nil", offset } : { type: "function", name: token.text, offset };
      case "sign":
        if (token.text === "(") {
          const pipe = this.#nested(offset, () => this.#pipe());
          if (!this.#isSign(")")) throw this.#fault(offset, "unclosed left paren");
          this.#take();
          return { type: "pipe", pipe, names: this.#fields(), offset };
        }
        break;
      default:
    }
    throw this.#unexpected(token, "an operand");
  }

  #fields(): string[] {
    const names: string[] = [];
    while (this.#peek().kind === "field") names.push(this.#take().text.slice(1));
    return names;
  }

  #close(): void {
    this.#skipSpace();
    const token = this.#take();
    if (token.kind !== "close") throw this.#unexpected(token, "}}");
  }

  #isSign(text: string): boolean {
    this.#skipSpace();
    const token = this.#peek();
    return token.kind === "sign" && token.text === text;
  }

  #skipSpace(): void {
    while (this.#peek().kind === "space") this.#next++;
  }

  #peek(): Token {
    return this.#tokens[Math.min(this.#next, this.#tokens.length - 1)] as Token;
  }

  #take(): Token {
    const token = this.#peek();
    this.#next++;
    return token;
  }

  #unexpected(token: Token, expected: string): TemplateFault {
    return this.#fault(token.offset, `unexpected ${JSON.stringify(token.text)}, want ${expected}`);
  }

  #fault(offset: number, reason: string): TemplateFault {
    return faultAt(this.#name, this.#source, offset, reason);
  }
}

const ESCAPES: Readonly<Record<string, string>> = { a: "\x07", b: "\b", f: "\f", n: "\n", r: "\r", t: "\t", v: "\v" };

/** Returns the value of a Go string constant. */
function unquote(text: string): string {
  if (text.startsWith("`")) return text.slice(1, -1);
  return text
    .slice(1, -1)
    .replace(/\\(x[0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|[0-7]{3}|.)/g, (_, escape: string) => {
      if (/^[xuU]/.test(escape) && escape.length > 1) return String.fromCodePoint(Number.parseInt(escape.slice(1), 16));
      if (/^[0-7]{3}$/.test(escape)) return String.fromCharCode(Number.parseInt(escape, 8));
      return ESCAPES[escape] ?? escape;
    });
}
