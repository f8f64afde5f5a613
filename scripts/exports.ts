// Finds exports that no other file imports. Imports by tests do not count, unless the exporting file uses the name too. Types
// may be exported if the file uses them in other exports. A re-export of an index.ts must be imported too. The files are
// searched with regular expressions, without a parser, so that the check is fast.
import { existsSync, readdirSync, readFileSync } from "node:fs";
import { dirname, join, relative, resolve } from "node:path";

const FOLDERS = ["src", "test", "bench", "scripts"];

const DECLARED =
  /^export\s+(?:async\s+)?(?:abstract\s+)?(function\*?|const|let|class|interface|type|enum)\s+([\w$]+)/gm;
const LISTED = /^export\s+(?:type\s+)?\{([^}]*)\}(?:\s*from\s*["']([^"']+)["'])?/gm;
const STAR = /^export\s+(?:type\s+)?\*\s+(?:as\s+([\w$]+)\s+)?from\s*["']([^"']+)["']/gm;
const IMPORTED = /^import\s+(?:type\s+)?([^;"'`]*?)\s*from\s*["']([^"']+)["']/gm;
/** A dynamic import may use all names of the file. */
const DYNAMIC = /\bimport\s*\(\s*["']([^"']+)["']\s*\)/g;

interface Source {
  readonly path: string;
  readonly text: string;
  /** Exported names that are declared in the file. */
  readonly own: ReadonlyMap<string, { readonly isType: boolean }>;
  /** Re-exported names, with the name and path in the original file. */
  readonly reExports: ReadonlyMap<string, { readonly name: string; readonly from: string }>;
  readonly stars: readonly string[];
  /** Files that are re-exported as a namespace (`export * as x`), by name. */
  readonly namespaces: ReadonlyMap<string, string>;
}

/** Returns one line for each export that no other file imports. */
export function findUnusedExports(root: string): string[] {
  const sources = readSources(root);
  const users = new Map<string, Set<string>>();
  for (const source of sources.values())
    for (const { from, names } of importsOf(source, sources))
      for (const name of names) markUsed({ sources, users, by: source.path }, from, name);
  const faults: string[] = [];
  for (const { path, text, own, reExports } of sources.values()) {
    const usersOf = (name: string): string[] => [...(users.get(`${path} ${name}`) ?? [])];
    for (const [name, { isType }] of own) {
      if (usersOf(name).some((user) => !isTest(user) || isTestSupport(path))) continue;
      const isUsedHere = [...text.matchAll(new RegExp(`(?<![\\w$])${RegExp.escape(name)}(?![\\w$])`, "g"))].length > 1;
      if (!isUsedHere) faults.push(`${path}: ${name} is not used`);
      else if (!isType && usersOf(name).length === 0)
        faults.push(`${path}: ${name} is only used in this file; do not export it`);
    }
    for (const name of reExports.keys())
      if (usersOf(name).length === 0) faults.push(`${path}: no file imports ${name} from here`);
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
  const reExports = new Map<string, { readonly name: string; readonly from: string }>();
  for (const [, list = "", from] of text.matchAll(LISTED))
    for (const { name, as } of namesIn(list))
      if (from === undefined) own.set(as, { isType: false });
      else reExports.set(as, { name, from: target(from) });
  const stars: string[] = [];
  const namespaces = new Map<string, string>();
  for (const [, as, from = ""] of text.matchAll(STAR))
    if (as === undefined) stars.push(target(from));
    else namespaces.set(as, target(from));
  return { path, text, own, reExports, stars, namespaces };
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
      const namespace = findNamespace(name, from, sources);
      if (namespace !== undefined) yield { from: namespace, names: mentioned(namespace) };
    }
  }
  for (const [, specifier = ""] of text.matchAll(DYNAMIC)) {
    if (!specifier.startsWith(".")) continue;
    const from = target(specifier);
    const named = from.endsWith("/index.ts") ? mentioned(from) : [];
    yield { from, names: named.length > 0 ? named : allNames(from, sources) };
  }
}

/** Parses `a, type b as c`. */
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

function findNamespace(name: string, path: string, sources: ReadonlyMap<string, Source>): string | undefined {
  const source = sources.get(path);
  if (source === undefined) return undefined;
  return (
    source.namespaces.get(name) ?? source.stars.map((star) => findNamespace(name, star, sources)).find((found) => found)
  );
}

function* allNames(path: string, sources: ReadonlyMap<string, Source>): Generator<string> {
  const source = sources.get(path);
  if (source === undefined) return;
  yield* source.own.keys();
  yield* source.reExports.keys();
  for (const star of source.stars) yield* allNames(star, sources);
}

interface UsageContext {
  readonly sources: ReadonlyMap<string, Source>;
  /** The importing files, by path and name of the export. */
  readonly users: Map<string, Set<string>>;
  readonly by: string;
}

/** Marks the name as used in this file and, if it is re-exported, in the original file. */
function markUsed(context: UsageContext, path: string, name: string): boolean {
  const source = context.sources.get(path);
  if (source === undefined) return false;
  const reExport = source.reExports.get(name);
  if (source.own.has(name) || reExport !== undefined) {
    const key = `${path} ${name}`;
    context.users.set(key, (context.users.get(key) ?? new Set()).add(context.by));
    return reExport === undefined || markUsed(context, reExport.from, reExport.name);
  }
  return source.stars.some((star) => markUsed(context, star, name));
}

const isTest = (path: string): boolean => /\.(test|suite)\.ts$/.test(path);
/** Files that only tests need to import: those outside src/, and those in `testing/`. */
const isTestSupport = (path: string): boolean =>
  !path.startsWith("src/") || isTest(path) || /\/testing\/|\/testing\.ts$/.test(path);
