// A name that is exported is for somebody: another file imports it. Tests alone keep nothing alive: what only they import
// of the product must at least be used in its own file. Types may be exported with the functions that speak of them. What
// a front door (index.ts) hands on is for somebody too. Read from the text alone, so that it is quick.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

const FOLDERS = ["src", "test", "bench", "scripts"];

const DECLARED =
  /^export\s+(?:async\s+)?(?:abstract\s+)?(function\*?|const|let|class|interface|type|enum)\s+([\w$]+)/gm;
const LISTED = /^export\s+(?:type\s+)?\{([^}]*)\}(?:\s*from\s*["']([^"']+)["'])?/gm;
const STARRED = /^export\s+(?:type\s+)?\*\s+(?:as\s+([\w$]+)\s+)?from\s*["']([^"']+)["']/gm;
const IMPORTED = /^import\s+(?:type\s+)?([^;"'`]*?)\s*from\s*["']([^"']+)["']/gm;
/** What is imported so may be handed to somebody else as a whole. */
const LOOSELY = /\bimport\s*\(\s*["']([^"']+)["']\s*\)/g;

interface Source {
  readonly path: string;
  readonly text: string;
  /** Names given to others; whether each is only a type. */
  readonly own: ReadonlyMap<string, { readonly isType: boolean }>;
  /** Names handed on: by what name, from where. */
  readonly handedOn: ReadonlyMap<string, { readonly name: string; readonly from: string }>;
  readonly stars: readonly string[];
  /** Files handed on as a whole, by name. */
  readonly wholes: ReadonlyMap<string, string>;
}

/** One sentence per exported name that nobody else imports. */
export function findUnusedExports(root: string): string[] {
  const sources = readSources(root);
  const users = new Map<string, Set<string>>();
  for (const source of sources.values())
    for (const { from, names } of importsOf(source, sources))
      for (const name of names) markUsed({ sources, users, by: source.path }, from, name);
  const faults: string[] = [];
  for (const { path, text, own, handedOn } of sources.values()) {
    const usersOf = (name: string): string[] => [...(users.get(`${path} ${name}`) ?? [])];
    for (const [name, { isType }] of own) {
      if (usersOf(name).some((user) => !isTest(user) || isForTests(path))) continue;
      const isUsedHere = [...text.matchAll(new RegExp(`(?<![\\w$])${RegExp.escape(name)}(?![\\w$])`, "g"))].length > 1;
      if (!isUsedHere) faults.push(`${path}: nobody needs ${name}`);
      else if (!isType && usersOf(name).length === 0) faults.push(`${path}: nobody imports ${name}; keep it to itself`);
    }
    for (const name of handedOn.keys())
      if (usersOf(name).length === 0) faults.push(`${path}: nobody imports ${name} from here`);
  }
  return faults;
}

function readSources(root: string): Map<string, Source> {
  const sources = new Map<string, Source>();
  for (const folder of FOLDERS) {
    if (!existsSync(join(root, folder))) continue;
    for (const file of readdirSync(join(root, folder), { recursive: true, encoding: "utf8" })) {
      if (!file.endsWith(".ts")) continue;
      const path = join(folder, file);
      sources.set(path, readSource(root, path));
    }
  }
  return sources;
}

function readSource(root: string, path: string): Source {
  const text = readFileSync(join(root, path), "utf8");
  const target = (specifier: string) => relative(root, resolve(root, dirname(path), specifier));
  const own = new Map(
    Array.from(text.matchAll(DECLARED), ([, word, name = ""]) => [
      name,
      { isType: word === "interface" || word === "type" },
    ]),
  );
  const handedOn = new Map<string, { readonly name: string; readonly from: string }>();
  for (const [, list = "", from] of text.matchAll(LISTED))
    for (const { name, as } of namesIn(list))
      if (from === undefined) own.set(as, { isType: false });
      else handedOn.set(as, { name, from: target(from) });
  const stars: string[] = [];
  const wholes = new Map<string, string>();
  for (const [, as, from = ""] of text.matchAll(STARRED))
    if (as === undefined) stars.push(target(from));
    else wholes.set(as, target(from));
  return { path, text, own, handedOn, stars, wholes };
}

function* importsOf(
  { path, text }: Source,
  sources: ReadonlyMap<string, Source>,
): Generator<{ readonly from: string; readonly names: Iterable<string> }> {
  const target = (specifier: string) => join(dirname(path), specifier);
  const mentioned = (from: string) => {
    const words = new Set(text.match(/[\w$]+/g));
    return [...allNames(from, sources)].filter((name) => words.has(name));
  };
  for (const [, clause = "", specifier = ""] of text.matchAll(IMPORTED)) {
    if (!specifier.startsWith(".")) continue;
    const from = target(specifier);
    if (clause.includes("*")) yield { from, names: mentioned(from) };
    const names = namesIn(/\{([^}]*)\}/.exec(clause)?.[1] ?? "").map(({ name }) => name);
    yield { from, names };
    for (const name of names) {
      const whole = wholeNamed(name, from, sources);
      if (whole !== undefined) yield { from: whole, names: mentioned(whole) };
    }
  }
  for (const [, specifier = ""] of text.matchAll(LOOSELY)) {
    if (!specifier.startsWith(".")) continue;
    const from = target(specifier);
    const named = from.endsWith("/index.ts") ? mentioned(from) : [];
    yield { from, names: named.length > 0 ? named : allNames(from, sources) };
  }
}

/** `a, type b as c`. */
const namesIn = (list: string): { readonly name: string; readonly as: string }[] =>
  list
    .replaceAll(/\/\/.*$/gm, "")
    .split(",")
    .map((item) => item.trim().replace(/^type\s+/, ""))
    .filter((item) => item !== "")
    .map((item) => {
      const [name = "", as = name] = item.split(/\s+as\s+/);
      return { name, as };
    });

function wholeNamed(name: string, path: string, sources: ReadonlyMap<string, Source>): string | undefined {
  const source = sources.get(path);
  if (source === undefined) return undefined;
  return source.wholes.get(name) ?? source.stars.map((star) => wholeNamed(name, star, sources)).find((found) => found);
}

function* allNames(path: string, sources: ReadonlyMap<string, Source>): Generator<string> {
  const source = sources.get(path);
  if (source === undefined) return;
  yield* source.own.keys();
  yield* source.handedOn.keys();
  for (const star of source.stars) yield* allNames(star, sources);
}

interface Marking {
  readonly sources: ReadonlyMap<string, Source>;
  /** Who imports what. */
  readonly users: Map<string, Set<string>>;
  readonly by: string;
}

/** The name in this file, and where the file has it from. */
function markUsed(marking: Marking, path: string, name: string): boolean {
  const source = marking.sources.get(path);
  if (source === undefined) return false;
  const handed = source.handedOn.get(name);
  if (source.own.has(name) || handed !== undefined) {
    const key = `${path} ${name}`;
    marking.users.set(key, (marking.users.get(key) ?? new Set()).add(marking.by));
    return handed === undefined || markUsed(marking, handed.from, handed.name);
  }
  return source.stars.some((star) => markUsed(marking, star, name));
}

const isTest = (path: string): boolean => /\.(test|suite)\.ts$/.test(path);
/** What tests are the users of: tools of the project, and fakes under `testing/`. */
const isForTests = (path: string): boolean =>
  !path.startsWith("src/") || isTest(path) || /\/testing\/|\/testing\.ts$/.test(path);
