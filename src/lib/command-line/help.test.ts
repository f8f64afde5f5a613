import { expect, test } from "bun:test";
import { helpText, helpWidth } from "./help.ts";
import { parse } from "./parse.ts";
import { SAMPLE, styled } from "./testing/sample-table.ts";

function help(path: readonly string[], width: number, root = SAMPLE): string {
  const parsed = parse(root, [...path, "--help"]);
  return helpText({ ...parsed, commandName: ["sample", ...path].join(" ") }, width);
}

test("help of a command: usage, arguments, flags with values and defaults, examples", () =>
  expect(help(["copy"], 80)).toBe(`Copy a file.

Usage:
  sample copy [options] SOURCE [TARGET]

A longer text of two lines.
  a list
  of words

Arguments:
  SOURCE   file to copy
  TARGET   where the copy goes

Options:
  -R, --recursive         copy folders
  -k, --keep              keep times
  -o, --format=<FORMAT>   format of the copy: tar or zip
      --retries=<N>       number of retries, 0 to 10 (default: 3)
      --skip=<NAME>       file to leave out
      --skip-links        leave out symbolic links

Global options:
  -h, --help            show this help text
  -l, --level=<LEVEL>   log level (default: info)

Examples:
  # Retry five times.
  sample copy a b --retries 5
`));

test("help of a group lists its commands", () =>
  expect(help([], 80)).toBe(`Copy files and run programs.

Usage:
  sample [options] <command> [<args>...]

Commands:
  copy      Copy a file.
  exec      Run a program.
  pass      Pass everything on.
  host      Show this host.
  process   Manage processes.

Global options:
  -h, --help            show this help text
  -l, --level=<LEVEL>   log level (default: info)

Run "sample <command> --help" for more about a command.
`));

const usages: readonly (readonly [string, string])[] = [
  ["exec", "sample exec HOST -- COMMAND..."],
  ["pass", "sample pass [options] [ARGUMENT...]"],
  ["host", "sample host"],
  ["process kill", "sample process kill NAME..."],
];
for (const [path, usage] of usages)
  test(`usage of ${path}`, () => expect(help(path.split(" "), 80)).toContain(`Usage:\n  ${usage}\n`));

test("flags of a go program are shown with one dash", () => {
  const text = help([], 80, styled("go"));
  expect(text).toContain("  -o, -format=<FORMAT>");
  expect(text).toContain("  -retries=<N>");
  expect(text).toContain("  -h, -help");
});

test("long examples continue on the next line as a shell wants it, long flags have their text below", () => {
  const root = {
    ...styled("docopt"),
    flags: { ["a-flag-with-a-name-of-its-own"]: { type: "text", value: "SOMETHING", about: "a text" } },
    examples: [{ line: "some words that are so many that they need a second line", about: "Long." }],
  } as const;
  const text = help([], 60, root);
  expect(text).toContain("  sample some words that are so many that they need a \\\n      second line\n");
  expect(text).toContain(`--a-flag-with-a-name-of-its-own=<SOMETHING>\n${" ".repeat(28)}a text\n`);
});

test("the width is that of the terminal, within limits", () =>
  expect([undefined, 20, 100, 500].map(helpWidth)).toEqual([80, 60, 100, 200]));
