// The command lines of all programs: every command of every table answers wrong usage and requests for help alike.
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { dirname, relative, resolve } from "node:path";
import { type Command, dashes, type FlagStyle, type FlagTable } from "./lib/command-line/command.ts";
import { parse } from "./lib/command-line/parse.ts";
import { runCaptured } from "./lib/command-line/testing/run-captured.ts";
import { PROGRAMS } from "./programs.ts";

interface Entry {
  readonly root: Command;
  readonly program: string;
  readonly path: readonly string[];
  readonly command: Command;
  readonly flags: FlagTable;
  readonly style: FlagStyle;
}

/** All commands of a table, except those that another table parses. */
function* entriesOf(root: Command, program: string, path: readonly string[] = [], command = root): Generator<Entry> {
  const { globalFlags, style } = parse(root, [...path, "--help"]);
  yield { root, program, path, command, flags: { ...globalFlags, ...command.flags }, style };
  for (const child of command.commands ?? [])
    if (child.program === undefined) yield* entriesOf(root, program, [...path, child.name], child);
}

const tables = new Map<string, Command>();
for (const [program, { table }] of Object.entries(PROGRAMS)) tables.set(program, await table());
for (const { name, program } of tables.get("calico")?.commands ?? [])
  if (program !== undefined && ["lab", "ctl"].includes(name)) tables.set(`calico ${name}`, await program());
const entries = [...tables].flatMap(([program, root]) => [...entriesOf(root, program)]);
const groups = entries.filter(({ command }) => command.commands !== undefined);

const titleOf = ({ program, path }: Entry): string => [program, ...path].join(" ");
const run = ({ root, program }: Entry, argv: readonly string[], columns?: number) =>
  runCaptured(root, argv, { columns: () => columns }, program);

/** Swaps the two letters in the middle. */
function misspell(name: string): string {
  const middle = Math.floor(name.length / 2);
  return `${name.slice(0, middle - 1)}${name[middle]}${name[middle - 1]}${name.slice(middle + 1)}`;
}

/** Misspelt, the name is still similar to itself alone; `bird-6live` could be `bird-live` as well. */
const canBeMisspelt = (name: string): boolean => /^[^\d]{5,}$/.test(name) && misspell(name) !== name;

test("all programs and their commands are covered", () => {
  const titles = entries.map(titleOf);
  for (const title of ["calico ctl ipam show", "calico lab break link", "calico component node health", "calico-node"])
    expect(titles).toContain(title);
  expect(titles.length).toBeGreaterThan(100);
});

for (const entry of entries) {
  const { path, command, flags, style } = entry;
  const title = titleOf(entry);
  const passesOn = command.rest?.begins === "with the first other word";

  if (!passesOn)
    test(`${title}: an unknown flag gets two lines and exit code 2`, async () =>
      expect(await run(entry, [...path, "--qqqqqqq=1"])).toEqual({
        code: 2,
        out: "",
        err: `${title}: unknown flag --qqqqqqq\nRun "${title} --help" for ${command.commands === undefined ? "its arguments and flags" : "the list of commands"}.\n`,
      }));

  const known = Object.keys(flags).filter((name) => flags[name]?.isHidden !== true && canBeMisspelt(name));
  if (!passesOn && known.length > 0)
    test(`${title}: a misspelt flag gets three lines with the right one`, async () => {
      for (const name of known) {
        const { code, out, err } = await run(entry, [...path, `--${misspell(name)}`]);
        const lines = err.trimEnd().split("\n");
        expect({ code, out, lines: lines.length, hint: lines[1] }).toEqual({
          code: 2,
          out: "",
          lines: 3,
          hint: `Did you mean ${dashes(name, style)}${name}?`,
        });
      }
    });

  const withValue = Object.entries(flags).filter(([, flag]) => flag.type !== "switch");
  if (withValue.length > 0)
    test(`${title}: a flag without its value is named`, async () => {
      for (const [name, { short }] of withValue)
        for (const spelling of [`--${name}`, ...(short === undefined ? [] : [`-${short}`])]) {
          const { code, out, err } = await run(entry, [...path, spelling]);
          expect({ code, out }).toEqual({ code: 2, out: "" });
          expect(err).toStartWith(`${title}: ${spelling} needs a value\n`);
        }
    });

  const required = (command.arguments ?? []).filter(
    (argument) => (argument.isOptional ?? argument.isCheckedByCommand) !== true,
  );
  if (required.length > 0)
    test(`${title}: a missing argument is named, with the usage`, async () => {
      const values = Object.entries(command.flags ?? {}).flatMap(([name, flag]) =>
        flag.type !== "switch" && flag.isRequired === true ? [`--${name}=1`] : [],
      );
      const { code, out, err } = await run(entry, [...path, ...values]);
      expect({ code, out }).toEqual({ code: 2, out: "" });
      expect(err).toStartWith(`${title}: ${required[0]?.name} is missing\nUsage:\n  ${title}`);
      expect(err.trimEnd().split("\n").at(-1)).toBe(`Run "${title} --help" for its arguments and flags.`);
    });

  if (command.commands === undefined && command.arguments?.at(-1)?.isRepeatable !== true && !passesOn)
    test(`${title}: an argument too many is refused with exit code 2`, async () => {
      const { code, out } = await run(entry, [...path, ...(command.arguments ?? []).map(() => "x"), "y"]);
      expect({ code, out }).toEqual({ code: 2, out: "" });
    });

  test(`${title}: help in every position prints the same text`, async () => {
    const { code, out, err } = await run(entry, [...path, "--help"]);
    expect({ code, err }).toEqual({ code: 0, err: "" });
    expect(out).toContain(`Usage:\n  ${title}`);
    const positions = [[...path, "-h"]];
    for (let i = 0; i < path.length; i++) {
      positions.push([...path.slice(0, i), "--help", ...path.slice(i)], [...path.slice(0, i), "-h", ...path.slice(i)]);
      positions.push([...path.slice(0, i), "help", ...path.slice(i)]);
    }
    if (!passesOn) positions.push([...path, "--qqqqqqq", "word", "--help"]);
    for (const argv of positions) expect(await run(entry, argv)).toEqual({ code: 0, out, err: "" });
  });

  test(`${title}: help fits the terminal, except for words that do not`, async () => {
    for (const width of [60, 80, 200]) {
      const { out } = await run(entry, [...path, "--help"], width);
      const wide = out.split("\n").filter((line) => line.length > width);
      for (const line of wide) expect(line.trim().replace(/ \\$/, "")).not.toContain(" ");
    }
  });

  for (const { line } of command.examples ?? [])
    test(`${title}: the example "${line}" is a command line that it accepts`, () => {
      const words = [...line.replace(/>.*/, "").matchAll(/'([^']*)'|(\S+)/g)].map(
        ([, quoted, word]) => quoted ?? word ?? "",
      );
      expect(parse(entry.root, [...path, ...words]).type).toBe("call");
    });
}

for (const entry of groups) {
  const { path, command } = entry;
  const title = titleOf(entry);
  test(`${title}: an unknown word gets at most three lines and exit code 2`, async () => {
    const { code, out, err } = await run(entry, [...path, "qqqqqqq"]);
    expect({ code, out }).toEqual({ code: 2, out: "" });
    const lines = err.trimEnd().split("\n");
    expect(lines[0]).toBe(`${title}: unknown command "qqqqqqq"`);
    expect(lines.at(-1)).toBe(`Run "${title} --help" for the list of commands.`);
    expect(lines.length).toBeLessThan(4);
    expect(err).not.toContain("Did you mean");
  });

  test(`${title}: a misspelt command gets three lines with the right one`, async () => {
    for (const { name } of (command.commands ?? []).filter((child) => canBeMisspelt(child.name))) {
      const { code, out, err } = await run(entry, [...path, misspell(name)]);
      expect({ code, out }).toEqual({ code: 2, out: "" });
      expect(err.split("\n").slice(1)).toEqual([
        `Did you mean ${name}?`,
        `Run "${title} --help" for the list of commands.`,
        "",
      ]);
    }
  });
}

test("commands of calicoctl have short forms in calico", () => {
  const calico = tables.get("calico");
  if (calico === undefined) throw new Error("there is no program calico");
  for (const words of [["doctor"], ["explain", "a", "b"], ["get", "nodes", "-o", "wide"], ["node", "status"]]) {
    const parsed = parse(calico, words);
    expect(parsed).toMatchObject({ type: "call", path: [words[0]], values: { rest: words.slice(1) } });
  }
  expect(parse(calico, ["version"])).toMatchObject({ command: { about: "Print the version." } });
  expect(parse(calico, ["status"])).toMatchObject({ type: "error", error: { hint: "Did you mean node status?" } });
});

test("tables are loaded without the code of commands", () => {
  const src = import.meta.dir;
  const files = [
    "calico.ts",
    ...[...readFileSync(`${src}/programs.ts`, "utf8").matchAll(/"\.\/([^"]+table[^"]*)"/g)].map(
      ([, file]) => file ?? "",
    ),
  ];
  const seen = new Set<string>();
  const visit = (file: string): void => {
    if (seen.has(file)) return;
    seen.add(file);
    const text = readFileSync(`${src}/${file}`, "utf8");
    for (const [, target = ""] of text.matchAll(/^(?:import|export) (?!type)[^;]*? from "(\.[^"]+)";/gms))
      visit(relative(src, resolve(src, dirname(file), target)));
  };
  for (const file of files) visit(file);
  expect(files.length).toBeGreaterThan(6);
  const allowed =
    /^(lib\/|calico\.ts$|(calicoctl\/)?(felix|node|cni|typha|controllers|lab|calicoctl)?\/?(table|index|options)|calicoctl\/(table|command-line)\/)/;
  expect([...seen].filter((file) => !allowed.test(file))).toEqual([]);
});
