// The words of `calico lab …`: which options each command has and how many words it takes. What a command has no use for
// is refused, never passed over: `down other` would remove the wrong lab.
import { type ParseArgsOptionsConfig, parseArgs } from "node:util";
import { nearest } from "../model/index.ts";
import { UsageError } from "./options.ts";

export interface Arguments {
  readonly options: Given;
  readonly words: readonly string[];
  /** What stands behind `--`. */
  readonly inner: readonly string[];
  readonly wantsHelp: boolean;
}

type StringOption = Exclude<keyof typeof OPTIONS, "kubernetes" | "ipv6" | "typha" | "help">;
type Given = { readonly [option in StringOption]?: string } & {
  readonly kubernetes?: boolean;
  readonly ipv6?: boolean;
  readonly typha?: boolean;
};

const OPTIONS = {
  name: { type: "string" },
  help: { type: "boolean", short: "h" },
  nodes: { type: "string" },
  pods: { type: "string" },
  topology: { type: "string" },
  backend: { type: "string" },
  dataplane: { type: "string" },
  datastore: { type: "string" },
  kubernetes: { type: "boolean" },
  ipv6: { type: "boolean" },
  typha: { type: "boolean" },
  output: { type: "string", short: "o" },
  filename: { type: "string", short: "f" },
  node: { type: "string" },
  labels: { type: "string" },
  protocol: { type: "string" },
  port: { type: "string" },
  version: { type: "string" },
  namespace: { type: "string", short: "n" },
} as const;

interface Grammar {
  readonly options?: readonly (keyof typeof OPTIONS)[];
  /** How many it takes at most; none unless said. */
  readonly words?: number;
  readonly hasInner?: boolean;
  /** Its words may begin with a dash: they name what runs on a host. */
  readonly isRaw?: boolean;
}

const GRAMMARS: Readonly<Record<string, Grammar>> = {
  up: { options: ["nodes", "pods", "topology", "backend", "dataplane", "datastore", "kubernetes", "ipv6", "typha"] },
  demo: {},
  down: {},
  status: { options: ["output"] },
  matrix: { options: ["protocol", "port", "version", "namespace", "output"] },
  exec: { words: 1, hasInner: true },
  capture: { words: 1, hasInner: true },
  pod: { options: ["node", "labels", "output"], words: 2 },
  apply: { options: ["filename"] },
  set: { words: Number.POSITIVE_INFINITY },
  break: { words: 3, isRaw: true },
  heal: {},
  help: { words: Number.POSITIVE_INFINITY },
};

export function parseArguments(command: string, args: readonly string[]): Arguments {
  const grammar = GRAMMARS[command];
  if (grammar === undefined) throw new UsageError(unknownCommand(command));
  const split = args.indexOf("--");
  const [own, inner] = split < 0 ? [args, []] : [args.slice(0, split), args.slice(split + 1)];
  const { options, words } = grammar.isRaw === true ? parseRaw(own, inner) : parseOwn(command, grammar, own);
  const extra = words[grammar.words ?? 0];
  if (extra !== undefined) throw new UsageError(tooMany(command, extra));
  if (inner.length > 0 && grammar.hasInner !== true && grammar.isRaw !== true)
    throw new UsageError(`${command}: nothing may stand behind --; calico lab help`);
  const { help, ...given } = options;
  return { options: given, words, inner, wantsHelp: help === true };
}

type Parsed = { readonly options: Given & { readonly help?: boolean }; readonly words: readonly string[] };

function parseOwn(command: string, grammar: Grammar, args: readonly string[]): Parsed {
  const names = ["name", "help", ...(grammar.options ?? [])] as const;
  const options: ParseArgsOptionsConfig = Object.fromEntries(names.map((name) => [name, OPTIONS[name]]));
  try {
    const { values, positionals } = parseArgs({ args: [...args], allowPositionals: true, options });
    return { options: values as Parsed["options"], words: positionals };
  } catch (error) {
    const [said = ""] = (error instanceof Error ? error.message : String(error)).split(/\.\s/);
    const unknown = /^Unknown option '(.*)'$/.exec(said)?.[1];
    const has = names.map((name) => `--${name}`).join(", ");
    throw new UsageError(
      unknown === undefined ? `${command}: ${said}` : `${command} has no option ${unknown}; it has ${has}`,
    );
  }
}

/** Everything but the lab's name is a word. */
function parseRaw(args: readonly string[], inner: readonly string[]): Parsed {
  const words: string[] = [];
  let name: string | undefined;
  for (let i = 0; i < args.length; i++) {
    const word = args[i] ?? "";
    if (["-h", "--help"].includes(word)) return { options: { help: true }, words: [] };
    if (word === "--name") name = args[++i] ?? "";
    else if (word.startsWith("--name=")) name = word.slice("--name=".length);
    else words.push(word);
  }
  return { options: name === undefined ? {} : { name }, words: [...words, ...inner] };
}

function tooMany(command: string, word: string): string {
  if (["exec", "capture"].includes(command))
    return `${command}: put -- before ${word}, so that it is not taken for ours`;
  if (["down", "up", "demo", "status", "heal", "matrix"].includes(command))
    return `${command}: ${word} says nothing here; a lab is named with --name ${word}`;
  return `${command}: one word too many, ${word}; calico lab help`;
}

function unknownCommand(command: string): string {
  const all = [...Object.keys(GRAMMARS), "kubectl"];
  const near = nearest(command, all);
  return `no command ${command}; ${near === undefined ? `there are ${all.join(", ")}` : `did you mean ${near}? calico lab help lists all`}`;
}
