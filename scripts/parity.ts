// Writes docs/parity.md: every row of the parity checklists with its state. A row is done if the name of a test contains its
// ID. test/parity-notes.txt contains states that tests cannot show.
import { existsSync, mkdirSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { type Call, commandsWith, type Grammar } from "../src/lib/command-line/command.ts";
import { programMain } from "../src/lib/command-line/run.ts";

const STATES = ["done", "partly", "not yet", "later", "won't"] as const;
export type State = (typeof STATES)[number];

export interface Row {
  readonly id: string;
  readonly era: string;
  readonly title: string;
}
export interface Note {
  readonly state: State;
  readonly why: string;
}
export interface Difference {
  readonly suite: string;
  readonly check: string;
  readonly why: string;
}

const AREAS: readonly { readonly prefix: string; readonly title: string }[] = [
  { prefix: "DM-", title: "Data model and datastores" },
  { prefix: "FC-", title: "Felix: configuration and calculation" },
  { prefix: "FD-", title: "Felix: dataplane" },
  { prefix: "CI-", title: "CNI plugin and address management" },
  { prefix: "NB-", title: "Node and BGP" },
  { prefix: "TC-T", title: "Typha" },
  { prefix: "TC-K", title: "kube-controllers" },
  { prefix: "TC-C", title: "calicoctl" },
  { prefix: "TC-O", title: "Other components" },
  { prefix: "TC-I", title: "Installation" },
];

/** `DM-001`, `TC-C21`, and the families `FC-P-<Name>`, `FC-M-<name>`, which count for the row in FAMILIES. */
const ID = /\b(?:(?:DM|FC|FD|CI|NB)-\d{3}|TC-[TKCOI]\d{2}|FC-[PM]-\w+)\b/g;
const FAMILIES: Readonly<Record<string, string>> = { "FC-P-": "FC-037", "FC-M-": "FC-099" };

const grammar = {
  flags: { check: { type: "switch", about: "write nothing; exit with 1 if the file is not up to date" } },
} as const satisfies Grammar;

function run({ flags }: Call<typeof grammar>): number {
  const root = join(import.meta.dir, "..");
  const file = join(root, "docs/parity.md");
  const text = render(
    parseRows(readFileSync(join(root, "test/parity-rows.txt"), "utf8")),
    parseNotes(readFileSync(join(root, "test/parity-notes.txt"), "utf8")),
    findTests(root),
    parseDifferences(readFileSync(join(root, "test/golden-exceptions.txt"), "utf8")),
  );
  if (!flags.check) {
    mkdirSync(join(root, "docs"), { recursive: true });
    writeFileSync(file, text);
    console.log("parity: wrote docs/parity.md");
    return 0;
  }
  const isCurrent = existsSync(file) && readFileSync(file, "utf8") === text;
  if (isCurrent) console.log("parity: docs/parity.md is up to date");
  else console.error("parity: docs/parity.md is out of date; run `make parity`");
  return isCurrent ? 0 : 1;
}

if (import.meta.main) {
  const command = commandsWith({})({
    name: "bun scripts/parity.ts",
    about: "Write docs/parity.md.",
    ...grammar,
    load: async () => ({ run }),
  });
  process.exitCode = await programMain(command)(process.argv.slice(2));
}

export function parseRows(text: string): Row[] {
  return meaningful(text).map((line) => {
    const [id = "", era = "", ...title] = line.split("|").map((part) => part.trim());
    return { id, era, title: title.join("|") };
  });
}

export function parseNotes(text: string): Map<string, Note> {
  return new Map(
    meaningful(text).map((line) => {
      const found = /^(\S+): ([^#]+?) # (.+)$/.exec(line);
      const state = STATES.find((s) => s === found?.[2]);
      if (found === null || state === undefined)
        throw new Error(`parity-notes.txt: want "ID: state # why", got ${line}`);
      return [found[1] ?? "", { state, why: found[3] ?? "" }];
    }),
  );
}

/** Parses intended differences from the recordings: `suite: beginning of the check's name # reason`. */
export function parseDifferences(text: string): Difference[] {
  return meaningful(text).map((line) => {
    const [, suite = "", check = "", why = ""] = /^([\w -]+): (.+?) # (.+)$/.exec(line) ?? [];
    if (why === "") throw new Error(`golden-exceptions.txt: want "suite: check # why", got ${line}`);
    return { suite, check, why };
  });
}

function meaningful(text: string): string[] {
  return text.split("\n").filter((line) => line.trim() !== "" && !line.startsWith("#"));
}

/** Returns the test files by the IDs in the names of their tests. Skipped tests do not count. */
function findTests(root: string): Map<string, Set<string>> {
  const found = new Map<string, Set<string>>();
  for (const folder of ["src", "scripts", "test"]) {
    if (!existsSync(join(root, folder))) continue;
    for (const name of readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).sort()) {
      // A suite that several drivers run is in a file next to those that run it.
      if (!(folder === "test" ? name.endsWith(".ts") : name.endsWith(".test.ts"))) continue;
      if (name === "parity.test.ts") continue; // its IDs are examples
      for (const id of idsOf(readFileSync(join(root, folder, name), "utf8")))
        found.set(id, (found.get(id) ?? new Set()).add(`${folder}/${name}`));
    }
  }
  return found;
}

/** Returns the IDs in string literals. Comments, skipped tests and planned tests do not count. */
export function idsOf(source: string): Set<string> {
  const ids = new Set<string>();
  for (const line of source.split("\n")) {
    if (/^\s*(\/\/|\*|\/\*)/.test(line) || /\b(test|it|describe)\.(skip|todo)\(/.test(line)) continue;
    for (const constant of line.match(/"(?:[^"\\]|\\.)*"|'(?:[^'\\]|\\.)*'|`(?:[^`\\]|\\.)*`/g) ?? [])
      for (const id of constant.match(ID) ?? []) ids.add(FAMILIES[id.slice(0, 5)] ?? id);
  }
  return ids;
}

export function render(
  rows: readonly Row[],
  notes: ReadonlyMap<string, Note>,
  tests: ReadonlyMap<string, ReadonlySet<string>>,
  differences: readonly Difference[] = [],
): string {
  const judged = rows.map((row) => {
    const files = [...(tests.get(row.id) ?? [])];
    const note = notes.get(row.id);
    const state: State = note?.state ?? (files.length > 0 ? "done" : "not yet");
    const proof = files.slice(0, 2).map((file) => `[${file.split("/").at(-1)}](../${file})`);
    return { ...row, state, remark: [...(note === undefined ? [] : [note.why]), ...proof].join("; ") };
  });
  const count = (prefix: string, state: State) =>
    judged.filter((row) => row.id.startsWith(prefix) && row.state === state).length;
  const areas = AREAS.filter((area) => rows.some((row) => row.id.startsWith(area.prefix)));
  const summary = areas.map((a) => `| ${a.title} | ${STATES.map((state) => count(a.prefix, state)).join(" | ")} |`);
  const tables = areas.map((area) => {
    const lines = judged
      .filter((row) => row.id.startsWith(area.prefix))
      .map((row) => `| ${row.id} | ${row.era} | ${row.title.replaceAll("|", "\\|")} | ${row.state} | ${row.remark} |`);
    return `## ${area.title}\n\n| ID | era | what | state | proof or reason |\n|---|---|---|---|---|\n${lines.join("\n")}\n`;
  });
  return [
    "# Parity\n",
    "The features of Calico, and their state in calico-ts. Generated by `make parity` from the IDs in the names of tests",
    "and from `test/parity-notes.txt`; do not edit.\n",
    `| | ${STATES.join(" | ")} |`,
    `|---|${STATES.map(() => "---").join("|")}|`,
    ...summary,
    `| **all** | ${STATES.map((state) => count("", state)).join(" | ")} |\n`,
    ...tables,
    ...(differences.length > 0 ? [differenceTable(differences)] : []),
  ].join("\n");
}

function differenceTable(differences: readonly Difference[]): string {
  const cell = (text: string) => text.replaceAll("|", "\\|");
  const lines = differences.map(({ suite, check, why }) => `| ${suite} | ${cell(check)} | ${cell(why)} |`);
  return `## Intended differences from the recordings\n\nFrom \`test/golden-exceptions.txt\`; any other difference fails \`make golden\`.\n\n| suite | checks that begin with | reason |\n|---|---|---|\n${lines.join("\n")}\n`;
}
