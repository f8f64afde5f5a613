import { expect, test } from "bun:test";
import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { outdatedPages, referencePages } from "./reference.ts";
import { documentedVariables } from "./reference/environment.ts";
import { documentedMetrics } from "./reference/metrics.ts";

const src = join(import.meta.dir, "../src");
const sources = readdirSync(src, { recursive: true, encoding: "utf8" })
  .filter((path) => path.endsWith(".ts") && !path.endsWith(".test.ts") && !path.includes("testing/"))
  .map((path) => ({ path, text: readFileSync(join(src, path), "utf8") }));

test("docs/reference is up to date; otherwise run `make reference`", async () => {
  expect(await outdatedPages()).toEqual([]);
});

/** How the source reads a variable: env["X"], { X } = process.env, and the readers of single modules. */
const READS = [
  /\benv(?:ironment)?\[["`]([A-Z][A-Z0-9_]+)["`]\]/g,
  /\bflagOf\([\w.]+, "([A-Z][A-Z0-9_]+)"/g,
  /\bworkers\("([A-Z_]+)"\)/g,
];
/** In these files, a function or a table reads the variables. */
const READERS: Readonly<Record<string, RegExp>> = {
  "node/settings.ts": /\btext\("([A-Z][A-Z0-9_]*)"\)/g,
  "controllers/environment.ts": /\bread\(\s*"([A-Z][A-Z0-9_]*)"/g,
  "typha/settings.ts": /\bread\("([A-Z][A-Z0-9_]*)"\)/g,
  "datastore/api-config.ts": /\b(?:text\(|variable: )"([A-Z][A-Z0-9_]*)"/g,
  "cni/install/install-config.ts": /^ {2}([A-Z][A-Z0-9_]*): \(/gm,
  "cni/step-times.ts": /VARIABLE = "([A-Z_]+)"/g,
  "node/supervisor/children.ts": /^ {2}FELIX_\w+: "([A-Z_]+)"/gm,
};

test("every environment variable that the source reads is in a table of environment-variables.ts", () => {
  const unknown: string[] = [];
  for (const { path, text } of sources) {
    const reader = READERS[path];
    const found = [...READS, ...(reader === undefined ? [] : [reader])].flatMap((read) => [...text.matchAll(read)]);
    if (reader !== undefined) expect([path, text.search(reader)]).not.toEqual([path, -1]);
    for (const [, name = ""] of found)
      if (!documentedVariables.has(name) && !documentedVariables.has(`CALICO_${name}`))
        unknown.push(`${path}: ${name}`);
    for (const [, names = ""] of text.matchAll(/\{([^{}]*)\} = process\.env\b/g))
      for (const [name] of names.matchAll(/\b[A-Z][A-Z0-9_]+\b/g))
        if (!documentedVariables.has(name)) unknown.push(`${path}: ${name}`);
  }
  expect(unknown).toEqual([]);
});

test("every documented environment variable occurs in the source", () => {
  const text = sources
    .filter(({ path }) => !path.endsWith("environment-variables.ts"))
    .map((source) => source.text)
    .join("\n");
  // The source composes the names of pool variables, and compares names of Felix without regard to case.
  const occurs = (name: string) =>
    text.includes(name.replace(/^CALICO_IPV[46]POOL_/, "")) ||
    text.includes(name.toLowerCase()) ||
    text.includes(name.replace(/^CALICO_/, ""));
  expect([...documentedVariables].filter((name) => !occurs(name))).toEqual([]);
});

test("every metric that the source registers is on the page of metrics", () => {
  const registered = sources
    .filter(({ path }) => /metric|status\/|daemon/.test(path))
    .flatMap(({ text }) => [...text.matchAll(/"((?:felix|typha|ipam|bgp|bird|wireguard|process)_[a-z0-9_]+)"/g)])
    .map(([, name = ""]) => name);
  expect(registered.length).toBeGreaterThan(100);
  const documented = documentedMetrics();
  expect([...new Set(registered)].filter((name) => !documented.has(name))).toEqual([]);
});

test("every field of every resource, and every metric, has a meaning", async () => {
  const rows = [...(await referencePages())]
    .filter(([path]) => path.startsWith("resources/") || path === "metrics.md")
    .flatMap(([path, page]) =>
      page
        .split("\n")
        .filter((line) => line.startsWith("| `"))
        .map((line) => ({ path, line })),
    );
  expect(rows.length).toBeGreaterThan(1000);
  expect(rows.filter(({ line }) => /\| (\.)? ?\|$/.test(line))).toEqual([]);
});

test("every program declares its exit codes", async () => {
  const page = (await referencePages()).get("exit-codes.md") ?? "";
  for (const program of ["calico", "calicoctl", "calico-node", "calico-felix", "calico-typha", "calico lab"])
    expect(page).toMatch(new RegExp(`\\| \`${program}\` \\| [01] \\|`));
});
