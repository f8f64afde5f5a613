import { expect, test } from "bun:test";
import type { Call, Command } from "./command.ts";
import { parse } from "./parse.ts";
import { type copyGrammar, type execGrammar, type GLOBAL_FLAGS, SAMPLE, styled } from "./testing/sample-table.ts";
import { UnknownWordError } from "./usage-error.ts";

const words = (line: string): string[] => line.split(" ").filter((word) => word !== "");

function called(root: Command, line: string) {
  const parsed = parse(root, words(line));
  if (parsed.type === "error") throw parsed.error;
  if (parsed.type === "help") throw new Error("help");
  return parsed;
}

const COPY_DEFAULTS = {
  level: "info",
  recursive: false,
  keep: false,
  format: undefined,
  retries: 3,
  skip: [],
  "skip-links": false,
  old: false,
};

const flagCases: readonly (readonly [string, Readonly<Record<string, unknown>>])[] = [
  ["copy a", {}],
  ["copy a --format zip", { format: "zip" }],
  ["copy a --format=zip", { format: "zip" }],
  ["copy --format zip a", { format: "zip" }],
  ["copy a -o zip", { format: "zip" }],
  ["copy a -ozip", { format: "zip" }],
  ["copy a -o=zip", { format: "zip" }],
  ["copy a -Rozip", { recursive: true, format: "zip" }],
  ["copy a -Rk", { recursive: true, keep: true }],
  ["copy a -K", { keep: true }],
  ["copy a --recursive=false", { recursive: false }],
  ["copy a --recursive=true", { recursive: true }],
  ["copy a --retries 10", { retries: 10 }],
  ["copy a --skip x --skip=y", { skip: ["x", "y"] }],
  ["copy a --skip=", { skip: [""] }],
  ["copy a --old", { old: true }],
  ["-l debug copy a", { level: "debug" }],
  ["--level=debug copy a", { level: "debug" }],
  ["copy a --level debug", { level: "debug" }],
];
for (const [line, want] of flagCases)
  test(`flags: ${line}`, () => {
    const { path, values } = called(SAMPLE, line);
    expect(path).toEqual(["copy"]);
    expect(values.flags).toEqual({ ...COPY_DEFAULTS, ...want });
    expect(values.args).toEqual({ SOURCE: "a", TARGET: undefined });
  });

const argumentCases: readonly (readonly [string, object, (readonly string[])?])[] = [
  ["copy a b", { SOURCE: "a", TARGET: "b" }],
  ["copy -- -a --b", { SOURCE: "-a", TARGET: "--b" }],
  ["copy -", { SOURCE: "-", TARGET: undefined }],
  ["exec n1 -- ls -l --help", { HOST: "n1" }, ["ls", "-l", "--help"]],
  ["pass get -q --help", {}, ["get", "-q", "--help"]],
  ["pass -q get -n x", {}, ["get", "-n", "x"]],
  ["pass -n x", {}, ["-n", "x"]],
  ["pass -q -- --help", {}, ["--help"]],
  ["process kill a -b", { NAME: ["a", "-b"] }],
];
for (const [line, args, rest = []] of argumentCases)
  test(`arguments: ${line}`, () => {
    const { values } = called(SAMPLE, line);
    expect(values.args).toEqual(args as typeof values.args);
    expect(values.rest).toEqual(rest);
  });

const errors: readonly (readonly [line: string, message: string, hint?: string])[] = [
  ["cpoy a", 'unknown command "cpoy"', "Did you mean copy?"],
  ["proc", 'unknown command "proc"', "Did you mean process?"],
  ["kill", 'unknown command "kill"', "Did you mean process kill?"],
  ["nothing", 'unknown command "nothing"', "Commands: copy, exec, pass, host, process"],
  ["help nothing", 'unknown command "nothing"', "Commands: copy, exec, pass, host, process"],
  ["--lvel=x", "unknown flag --lvel", "Did you mean --level?"],
  ["copy a --recursiv", "unknown flag --recursiv", "Did you mean --recursive?"],
  ["copy a --xyz=1", "unknown flag --xyz"],
  ["copy a -x", "unknown flag -x"],
  ["copy a --format", "--format needs a value"],
  ["copy a -o", "-o needs a value"],
  ["copy a --format -R", "--format needs a value", "A value that begins with a dash is written --format=-R"],
  ["-l", "-l needs a value"],
  ["copy a -o rar", "-o rar: want tar or zip"],
  ["copy a --retries 11", "--retries 11: want a number from 0 to 10"],
  ["copy a --retries=-1", "--retries -1: want a number from 0 to 10"],
  ["copy a --retries=x", "--retries x: want a number from 0 to 10"],
  ["copy a --retries 1 --retries 2", "--retries is given 2 times"],
  ["copy a --recursive=maybe", "--recursive=maybe: --recursive has no value"],
  ["copy", "SOURCE is missing"],
  ["copy a b c", 'unexpected argument "c"'],
  ["host h1", 'unexpected argument "h1"', "A host is named with --host h1"],
  ["exec", "HOST is missing"],
  ["exec n1", "COMMAND is missing"],
  ["exec n1 ls", 'unexpected argument "ls"', "Write -- before ls, so that it is not parsed here."],
  ["process kill", "NAME is missing"],
  ["-- copy", 'unexpected argument "copy"'],
];
for (const [line, message, hint] of errors)
  test(`errors: ${line}`, () => {
    const parsed = parse(SAMPLE, words(line));
    if (parsed.type !== "error") throw new Error(`parsed as ${parsed.type}`);
    expect({ message: parsed.error.message, hint: parsed.error.hint }).toEqual({ message, hint });
    expect(parsed.error instanceof UnknownWordError).toBe(message.startsWith("unknown"));
  });

const helpRequests: readonly (readonly [string, readonly string[]])[] = [
  ["", []],
  ["-l debug", []],
  ["help", []],
  ["--help", []],
  ["-h", []],
  ["nothing --help", []],
  ["help copy", ["copy"]],
  ["copy --help", ["copy"]],
  ["copy -h", ["copy"]],
  ["--help copy", ["copy"]],
  ["copy a b c --xyz --retries x -h", ["copy"]],
  ["copy -Rh", ["copy"]],
  ["exec --help -- ls", ["exec"]],
  ["process", ["process"]],
  ["process help", ["process"]],
  ["help process kill", ["process", "kill"]],
  ["process help kill", ["process", "kill"]],
  ["-h process kill", ["process", "kill"]],
];
for (const [line, path] of helpRequests)
  test(`help: ${line === "" ? "nothing" : line}`, () =>
    expect(parse(SAMPLE, words(line))).toMatchObject({ type: "help", path }));

test("go: one dash is enough, letters do not share one, and the last value counts", () => {
  const flags = (line: string) => called(styled("go"), line).values.flags;
  expect(flags("a -format zip -recursive -o=tar")).toMatchObject({ format: "tar", recursive: true });
  expect(flags("a --format=zip -R")).toMatchObject({ format: "zip", recursive: true });
  expect(() => flags("a -Rk")).toThrow("unknown flag -Rk");
  expect(() => flags("a -retires 3")).toThrow("unknown flag -retires");
  expect(parse(styled("go"), ["-retires"])).toMatchObject({ error: { hint: "Did you mean -retries?" } });
  expect(parse(styled("go"), ["-help"])).toMatchObject({ type: "help" });
});

test("docopt: a long flag may be shortened as long as it is unambiguous", () => {
  const flags = (line: string) => called(styled("docopt"), line).values.flags;
  expect(flags("a --form=zip --rec")).toMatchObject({ format: "zip", recursive: true });
  expect(flags("a --skip-l")).toMatchObject({ "skip-links": true });
  expect(flags("a --skip=x")).toMatchObject({ skip: ["x"] });
  expect(() => flags("a --re")).toThrow("unknown flag --re");
  expect(() => flags("a --ol")).toThrow("unknown flag --ol");
});

test("a command of another program gets all words, with the request for help", () => {
  const load = () => Promise.resolve({ run: () => 0 });
  const other: Command = { name: "other", about: "Another program.", program: async () => SAMPLE, load };
  const root: Command = { name: "root", about: "Two programs.", commands: [other] };
  const rest = (...argv: string[]) => {
    const parsed = parse(root, argv);
    return parsed.type === "call" ? parsed.values.rest : parsed.type;
  };
  expect(rest("other", "copy", "--help", "--", "-x")).toEqual(["copy", "--help", "--", "-x"]);
  expect(rest("help", "other", "copy")).toEqual(["--help", "copy"]);
  expect(rest("--help", "other")).toEqual(["--help"]);
  expect(rest("other", "--bogus")).toEqual(["--bogus"]);
});

test("the types of a call follow from its grammar", () => {
  const read = ({ flags, args }: Call<typeof copyGrammar, typeof GLOBAL_FLAGS>) => {
    const format: "tar" | "zip" | undefined = flags.format;
    const retries: number = flags.retries;
    const skip: readonly string[] = flags.skip;
    const level: string = flags.level;
    const target: string | undefined = args.TARGET;
    const source: string = args.SOURCE;
    return [format, retries, skip, level, source, target];
  };
  const { values } = called(SAMPLE, "copy a");
  expect(read({ ...values, commandName: "sample copy" } as never)).toEqual([undefined, 3, [], "info", "a", undefined]);
  const host = ({ args }: Call<typeof execGrammar>): string => args.HOST;
  expect(host({ ...called(SAMPLE, "exec n1 -- ls").values } as never)).toBe("n1");
});
