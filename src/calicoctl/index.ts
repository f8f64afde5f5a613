// calicoctl: which command was asked for, run it, and turn the way it ended into an exit code.
import { readFileSync, readSync } from "node:fs";
import { basename } from "node:path";
import { forTerminal, holdsCommands } from "../lib/visible-text.ts";
import { writeAll } from "../lib/write-all.ts";
import { findCommand, type Parsed, parseFlags } from "./arguments.ts";
import { type Command, type Flag, type Flags, type Group, isGroup, type World } from "./command.ts";
import { Failure, UnknownFlag, UsageFailure } from "./failure.ts";
import { commandHelp, groupHelp, groupUsage, usageLines } from "./help.ts";
import { LOG_LEVELS, parseLogLevel } from "./log-level.ts";
import { CONFIG } from "./table/flags.ts";
import { ROOT } from "./table/index.ts";

/** Exit code for a command line that does not fit the grammar. */
const WRONG_USAGE = 2;

export function main(argv: readonly string[]): Promise<number> {
  return runCommandLine(programName(process.argv0), argv, processWorld());
}

/** kubectl runs a plugin by its file name `kubectl-calico`; any `kubectl-*` name is that plugin. */
export function programName(argv0: string): string {
  return basename(argv0).startsWith("kubectl-") ? "kubectl-calico" : "calicoctl";
}

export async function runCommandLine(program: string, argv: readonly string[], world: World): Promise<number> {
  const found = findCommand(ROOT, argv);
  const { path } = found;
  try {
    if (found.type === "group") return await runGroup(program, argv, found, world);
    const { command } = found;
    const { words, flags } = parseFlags(command, found.rest);
    if (flags.has("help")) {
      world.out(commandHelp(program, path, command));
      return 0;
    }
    checkLogLevel(flags);
    const { run } = await command.load();
    return await run({ program, words, flags, world });
  } catch (error) {
    if (error instanceof UnknownFlag) error.suggest((await import("../model/index.ts")).nearest);
    return report(error, world, () =>
      found.type === "group" ? groupUsage(program, path) : usageLines(program, path, found.command),
    );
  }
}

/** No command was given, or one that does not exist. */
async function runGroup(program: string, argv: readonly string[], found: FoundGroup, world: World): Promise<number> {
  const { path, group, rest, unknown } = found;
  if (unknown !== undefined && !argv.includes("-h") && !argv.includes("--help")) {
    world.err(await unknownCommand(program, path, group, unknown));
    return WRONG_USAGE;
  }
  if (unknown === undefined) {
    const { flags } = parseFlags({ flags: path.length === 0 ? [CONFIG, VERSION] : [CONFIG], words: NO_WORDS }, rest);
    checkLogLevel(flags);
    if (flags.has("version")) {
      world.out(`Run '${program} version' to see version information.\n`);
      return 0;
    }
  }
  world.out(groupHelp(program, path, group));
  return 0;
}

type FoundGroup = Extract<Parsed, { readonly type: "group" }>;
const VERSION: Flag = { name: "version", about: "name the command that prints the version", hidden: true };
const NO_WORDS: Command["words"] = { least: 0, most: 0 };

function checkLogLevel(flags: Flags): void {
  const level = flags.value("log-level") ?? "panic";
  if (parseLogLevel(level) === undefined)
    throw new Failure(`Unknown log level: ${level}, expected one of: \n${LOG_LEVELS.join(", ")}.`, { stream: "out" });
}

/** One line with the unknown word and what may have been meant. */
async function unknownCommand(program: string, path: readonly string[], group: Group, word: string): Promise<string> {
  const { nearest } = await import("../model/index.ts");
  const names = group.commands.map(({ name }) => name);
  const parent = [program, ...path].join(" ");
  const start = `Unknown command: ${JSON.stringify([...path, word].join(" "))}`;
  const below = pathTo(group, word);
  if (below !== undefined) return `${start}, did you mean ${[parent, ...below].join(" ")}?\n`;
  const near = nearest(word, names);
  if (near !== undefined) return `${start}, did you mean ${near}? ${parent} --help lists all commands\n`;
  if (path.length === 0) return `${start}; ${parent} --help lists all commands\n`;
  const list = names.length === 1 ? names.join() : `${names.slice(0, -1).join(", ")} and ${names.at(-1)}`;
  return `${start}; ${parent} has ${list}\n`;
}

/** The words that lead to a command of this name further down, such as `migrate export` below `datastore`. */
function pathTo(group: Group, name: string): readonly string[] | undefined {
  for (const entry of group.commands) {
    if (entry.name === name) return [name];
    const below = isGroup(entry) ? pathTo(entry, name) : undefined;
    if (below !== undefined) return [entry.name, ...below];
  }
  return undefined;
}

function report(error: unknown, world: World, usage: () => string): number {
  if (error instanceof UsageFailure) {
    world.err(`${error.message}\n${usage()}`);
    return WRONG_USAGE;
  }
  if (error instanceof Failure) {
    const text = `${error.message}\n`;
    if (error.stream === "out") world.out(text);
    else world.err(text);
    return error.exitCode;
  }
  world.err(`${error instanceof Error ? error.message : String(error)}\n`);
  return 1;
}

/** The real outside. process.stdin and process.stdout are not touched: setting them up costs more than a command. */
function processWorld(): World {
  const isTerminal = (stream: "out" | "err"): boolean => {
    const { isatty } = require("node:tty") as typeof import("node:tty");
    return isatty(stream === "out" ? 1 : 2);
  };
  // What is stored reaches a pipe as it is, a terminal only as text.
  const safe = (stream: "out" | "err", text: string) =>
    holdsCommands(text) && isTerminal(stream) ? forTerminal(text) : text;
  return {
    env: process.env,
    out: (text) => writeAll(1, safe("out", text)),
    err: (text) => writeAll(2, safe("err", text)),
    readStdin: () => readFileSync(0),
    readLine,
    isTerminal,
  };
}

function readLine(): string {
  const byte = Buffer.alloc(1);
  const bytes: number[] = [];
  while (readSync(0, byte) === 1 && byte[0] !== 10) bytes.push(byte[0] ?? 0);
  return Buffer.from(bytes).toString();
}
