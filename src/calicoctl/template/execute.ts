// Evaluates the tree of a Go template on data and returns the text.
import { builtins, type TemplateFunction } from "./functions.ts";
import { faultAt, lineOf, TemplateFault } from "./lexer.ts";
import { type Arg, type Body, type Command, type Node, parseTemplate, type Pipe, type Template } from "./parser.ts";
import { Float, fieldOf, isList, isTrue, print, type Value } from "./value.ts";

export interface CompiledTemplate {
  execute(data: Value): string;
}

/** @throws TemplateFault if the text is not a valid template */
export function compileTemplate(
  name: string,
  source: string,
  functions: Readonly<Record<string, TemplateFunction>> = {},
): CompiledTemplate {
  const template = parseTemplate(name, source);
  return { execute: (data) => new Execution(template, { ...builtins, ...functions }).run(data) };
}

/** Leaves the body of a `range`. */
class LoopControl extends Error {
  constructor(readonly action: "break" | "continue") {
    super(action);
  }
}

const MAX_NESTED_TEMPLATES = 100;

class Execution {
  readonly #template: Template;
  readonly #functions: Readonly<Record<string, TemplateFunction>>;
  #out = "";
  #variables: { name: string; value: Value }[] = [];
  #depth = 0;

  constructor(template: Template, functions: Readonly<Record<string, TemplateFunction>>) {
    this.#template = template;
    this.#functions = functions;
  }

  run(data: Value): string {
    this.#variables = [{ name: "$", value: data }];
    this.#body(this.#template.body, data);
    return this.#out;
  }

  #body(body: Body, dot: Value): void {
    for (const node of body) this.#node(node, dot);
  }

  #node(node: Node, dot: Value): void {
    switch (node.type) {
      case "text":
        this.#out += node.text;
        break;
      case "action": {
        const value = this.#pipe(node.pipe, dot);
        if (node.pipe.variables.length === 0) this.#out += print(value);
        break;
      }
      case "if":
      case "with":
        this.#scope(() => {
          const value = this.#pipe(node.pipe, dot);
          if (isTrue(value)) this.#body(node.body, node.type === "with" ? value : dot);
          else this.#body(node.otherwise, dot);
        });
        break;
      case "range":
        this.#range(node, dot);
        break;
      case "template": {
        const body = this.#template.named.get(node.name);
        if (body === undefined) throw this.#fault(node.offset, `template ${JSON.stringify(node.name)} not defined`);
        if (++this.#depth > MAX_NESTED_TEMPLATES)
          throw this.#fault(node.offset, `templates are nested more than ${MAX_NESTED_TEMPLATES} times`);
        const data = node.pipe === undefined ? undefined : this.#pipe(node.pipe, dot);
        const outer = this.#variables;
        this.#variables = [{ name: "$", value: data }];
        this.#body(body, data);
        this.#variables = outer;
        this.#depth--;
        break;
      }
      default:
        throw new LoopControl(node.type);
    }
  }

  #range(node: Extract<Node, { type: "range" }>, dot: Value): void {
    this.#scope(() => {
      const { variables, ...pipe } = node.pipe;
      const value = this.#pipe({ ...pipe, variables: [] }, dot);
      const items = this.#items(value, node.pipe.offset);
      if (items.length === 0) return this.#body(node.otherwise, dot);
      for (const [key, item] of items) {
        try {
          this.#scope(() => {
            // One variable is set to the item, two are set to its index or key and the item.
            const [first, second] = variables;
            if (second !== undefined && first !== undefined) {
              this.#set(first, key, node.pipe);
              this.#set(second, item, node.pipe);
            } else if (first !== undefined) this.#set(first, item, node.pipe);
            this.#body(node.body, item);
          });
        } catch (error) {
          if (!(error instanceof LoopControl)) throw error;
          if (error.action === "break") break;
        }
      }
    });
  }

  #items(value: Value, offset: number): [Value, Value][] {
    if (value === undefined) return [];
    if (isList(value)) return value.map((item, i) => [i, item]);
    if (value instanceof Map) return [...(value as ReadonlyMap<string, Value>)].sort(([a], [b]) => (a < b ? -1 : 1));
    if (typeof value === "number" && Number.isSafeInteger(value) && value <= 1e6)
      return Array.from({ length: Math.max(0, value) }, (_, i) => [i, i]);
    throw this.#fault(offset, `range can't iterate over ${print(value)}`);
  }

  #pipe(pipe: Pipe, dot: Value): Value {
    let value: Value;
    pipe.commands.forEach((command, i) => {
      value = this.#command(command, dot, i === 0 ? [] : [value]);
    });
    for (const name of pipe.variables) this.#set(name, value, pipe);
    return value;
  }

  #command(command: Command, dot: Value, piped: readonly Value[]): Value {
    const [head, ...rest] = command.args;
    if (head === undefined) return undefined;
    if (head.type === "function") return this.#call(head.name, rest, dot, piped, head.offset);
    if (rest.length > 0 || piped.length > 0)
      throw this.#fault(head.offset, `can't give argument to non-function ${this.#textOf(head)}`);
    return this.#arg(head, dot);
  }

  #call(name: string, args: readonly Arg[], dot: Value, piped: readonly Value[], offset: number): Value {
    // `and` and `or` evaluate arguments only until the result is known.
    if (name === "and" || name === "or") {
      let value: Value;
      const all = [...args.map((arg) => () => this.#arg(arg, dot)), ...piped.map((p) => () => p)];
      if (all.length === 0) throw this.#fault(offset, `wrong number of args for ${name}: want at least 1 got 0`);
      for (const get of all) {
        value = get();
        if (isTrue(value) === (name === "or")) return value;
      }
      return value;
    }
    const call = Object.hasOwn(this.#functions, name) ? this.#functions[name] : undefined;
    if (call === undefined)
      throw faultAt(this.#template.name, this.#template.source, offset, `function ${JSON.stringify(name)} not defined`);
    const values = [...args.map((arg) => this.#arg(arg, dot)), ...piped];
    return this.#attempt(offset, `<${name}>: error calling ${name}`, () => call(...values));
  }

  #arg(arg: Arg, dot: Value): Value {
    switch (arg.type) {
      case "dot":
        return dot;
      case "nil":
        return undefined;
      case "constant":
        return typeof arg.value === "number" && !Number.isInteger(arg.value) ? new Float(arg.value) : arg.value;
      case "field":
        return this.#fields(dot, arg.names, arg);
      case "variable":
        return this.#fields(this.#get(arg.name, arg.offset), arg.names, arg);
      case "pipe":
        return this.#fields(this.#pipe(arg.pipe, dot), arg.names, arg);
      default:
        return this.#call(arg.name, [], dot, [], arg.offset);
    }
  }

  #fields(value: Value, names: readonly string[], arg: Arg): Value {
    return names.reduce<Value>(
      (v, name) => this.#attempt(arg.offset, `<${this.#textOf(arg)}>`, () => fieldOf(v, name)),
      value,
    );
  }

  #textOf(arg: Arg): string {
    const rest = this.#template.source.slice(arg.offset);
    return /^[$.\w]+/.exec(rest)?.[0] ?? rest[0] ?? "";
  }

  #get(name: string, offset: number): Value {
    const found = this.#variables.findLast((variable) => variable.name === name);
    if (found === undefined)
      throw faultAt(this.#template.name, this.#template.source, offset, `undefined variable ${JSON.stringify(name)}`);
    return found.value;
  }

  #set(name: string, value: Value, pipe: Pipe): void {
    if (pipe.declares) {
      this.#variables.push({ name, value });
      return;
    }
    const found = this.#variables.findLast((variable) => variable.name === name);
    if (found === undefined) throw this.#fault(pipe.offset, `undefined variable ${JSON.stringify(name)}`);
    found.value = value;
  }

  #scope(what: () => void): void {
    const { length } = this.#variables;
    try {
      what();
    } finally {
      this.#variables.length = length;
    }
  }

  #attempt<T>(offset: number, where: string, what: () => T): T {
    try {
      return what();
    } catch (error) {
      if (error instanceof TemplateFault) throw error;
      throw this.#fault(offset, `${where}: ${error instanceof Error ? error.message : String(error)}`, "at ");
    }
  }

  #fault(offset: number, reason: string, at = ""): TemplateFault {
    const { name, source } = this.#template;
    const column = offset - (source.lastIndexOf("\n", offset - 1) + 1);
    return new TemplateFault(
      `template: ${name}:${lineOf(source, offset)}:${column}: executing "${name}" ${at}${reason}`,
    );
  }
}
