// Renders usage lines and help texts from the tables of command.ts, wrapped to the width of the terminal.
import { wrap } from "../terminal/wrap.ts";
import {
  type Argument,
  type Command,
  dashes,
  type ExitCodes,
  type Flag,
  type FlagStyle,
  type FlagTable,
} from "./command.ts";
import { alternatives, HELP } from "./parse.ts";

/** A command in the place where the user found it. */
export interface ShownCommand {
  readonly command: Command;
  /** The program and the command as the user types them. */
  readonly commandName: string;
  readonly globalFlags: FlagTable;
  readonly style: FlagStyle;
}

const [MIN_WIDTH, DEFAULT_WIDTH, MAX_WIDTH] = [60, 80, 200];

/** The width of help texts on a terminal of so many columns, or without a terminal. */
export const helpWidth = (columns: number | undefined): number =>
  Math.min(MAX_WIDTH, Math.max(MIN_WIDTH, columns ?? DEFAULT_WIDTH));

export function helpText(shown: ShownCommand, width: number): string {
  const { command, commandName, globalFlags, style } = shown;
  const { commands = [], examples = [] } = command;
  const visible = (command.arguments ?? []).map((argument): Row => [argument.name, argument.about]);
  const rest: readonly Row[] = command.rest === undefined ? [] : [[command.rest.name, command.rest.about]];
  const hasGlobal = Object.keys(globalFlags).length > 0;
  return [
    paragraphs(command.about, width),
    usageLines(shown, width),
    command.details === undefined ? "" : paragraphs(command.details, width),
    command.exitCodes === undefined ? "" : paragraphs(exitCodeLine(command.exitCodes), width),
    section("Arguments", [...visible, ...rest], width),
    ...bySection(commands, "Commands").map(([title, list]) =>
      section(
        title,
        list.map(({ name, about }): Row => [name, about]),
        width,
      ),
    ),
    ...flagSections({ ...command.flags, ...(hasGlobal ? {} : HELP) }, "Options", style, width),
    ...flagSections(hasGlobal ? { ...HELP, ...globalFlags } : {}, "Global options", style, width),
    examples.length === 0 ? "" : `Examples:\n${examples.map((each) => example(commandName, each, width)).join("\n")}`,
    commands.length === 0 ? "" : paragraphs(`Run "${commandName} <command> --help" for more about a command.`, width),
  ]
    .filter((part) => part !== "")
    .join("\n");
}

/** Adds code 2, which every program uses for wrong usage. */
export const withUsageCode = (codes: ExitCodes): ExitCodes => ({ 2: "wrong usage", ...codes });

function exitCodeLine(codes: ExitCodes): string {
  const meanings = Object.entries(withUsageCode(codes)).map(([code, meaning]) => `${code} ${meaning}`);
  return `Exit code: ${meanings.join(", ")}.`;
}

/** The forms of the command, each beginning on a line of its own. */
export function usageLines({ command, commandName, style }: ShownCommand, width: number): string {
  const forms = command.usage ?? [derivedUsage(command, style)];
  const lines = forms.flatMap((form) => hanging(`${commandName} ${form}`.trimEnd(), width, "  ", "      "));
  return `Usage:\n${lines.join("\n")}\n`;
}

function derivedUsage(command: Command, style: FlagStyle): string {
  const { flags = {}, arguments: declared = [], rest, commands } = command;
  const required = Object.entries(flags).filter(([, flag]) => flag.type !== "switch" && flag.isRequired === true);
  const hasOptions = Object.values(flags).some((flag) => flag.isHidden !== true) || commands !== undefined;
  const optional = (text: string, isOptional: boolean) => (isOptional ? `[${text}]` : text);
  const argument = ({ name, isRepeatable, isOptional }: Argument) =>
    optional(isRepeatable === true ? `${name}...` : name, isOptional === true);
  return [
    ...required.map(([name, flag]) => flagName(name, flag, style)),
    ...(hasOptions ? ["[options]"] : []),
    ...declared.map(argument),
    ...(commands === undefined ? [] : ["<command> [<args>...]"]),
    ...(rest === undefined
      ? []
      : [optional(`${rest.begins === "after --" ? "-- " : ""}${rest.name}...`, rest.isOptional === true)]),
  ].join(" ");
}

/** The left column may have this width even on narrow terminals: most flags with a value fit. */
const MAX_LEFT = 28;

type Row = readonly [left: string, right: string];

/** Entries by their heading, in the order in which the headings first appear. */
function bySection<T extends { readonly section?: string }>(entries: readonly T[], title: string): [string, T[]][] {
  return [...Map.groupBy(entries, (entry) => entry.section ?? title)];
}

function flagSections(flags: FlagTable, title: string, style: FlagStyle, width: number): string[] {
  const visible = Object.entries(flags)
    .map(([name, flag]) => ({ name, flag, section: flag.section ?? title }))
    .filter(({ flag }) => flag.isHidden !== true);
  return bySection(visible, title).map(([heading, list]) =>
    section(
      heading,
      list.map(({ name, flag }): Row => [leftOf(name, flag, style), describeFlag(flag)]),
      width,
    ),
  );
}

function leftOf(name: string, flag: Flag, style: FlagStyle): string {
  const long = flagName(name, flag, style);
  if (flag.short !== undefined) return `-${flag.short}, ${long}`;
  return style === "go" || name.length === 1 ? long : `    ${long}`;
}

const flagName = (name: string, flag: Flag, style: FlagStyle): string =>
  `${dashes(name, style)}${name}${flag.type === "switch" ? "" : `=<${flag.value}>`}`;

/** What the flag does, with its possible values and its default. */
function describeFlag(flag: Flag): string {
  if (flag.type === "switch") return flag.about;
  const preset = flag.defaultText ?? (flag.default === undefined ? undefined : String(flag.default));
  if (flag.type === "text" && flag.values !== undefined) {
    const marked = flag.values.map((value) => (value === preset ? `${value} (default)` : value));
    const text = `${flag.about}: ${alternatives(marked)}`;
    return preset === undefined || flag.values.includes(preset) ? text : `${text} (default: ${preset})`;
  }
  const range = flag.type === "number" && Number.isFinite(flag.max) ? `, ${flag.min} to ${flag.max}` : "";
  return `${flag.about}${range}${preset === undefined || preset === "" ? "" : ` (default: ${preset})`}`;
}

function section(title: string, rows: readonly Row[], width: number): string {
  return rows.length === 0 ? "" : `${title}:\n${columns(rows, width)}`;
}

/** Two columns. Where the left one would take too much of the width, the text begins on the next line. */
function columns(rows: readonly Row[], width: number): string {
  const widest = Math.max(...rows.map(([left]) => left.length));
  const start = Math.min(widest + 5, Math.max(MAX_LEFT, Math.floor(width * 0.4)));
  const blanks = " ".repeat(start);
  return rows
    .map(([left, right]) => {
      const [first = "", ...more] = wrap(right, width - start);
      const isShort = left.length + 4 <= start;
      const head = isShort ? `  ${left.padEnd(start - 2)}${first}` : `  ${left}\n${blanks}${first}`;
      return `${[head, ...more.map((line) => blanks + line)].map((line) => line.trimEnd()).join("\n")}\n`;
    })
    .join("");
}

function example(
  commandName: string,
  { line, about }: { readonly line: string; readonly about: string },
  width: number,
) {
  const comment = hanging(about, width - 2, "  # ", "  # ");
  // A shell joins lines that end with a backslash.
  const words = hanging(`${commandName} ${line}`.trimEnd(), width - 2, "  ", "      ");
  return `${[...comment, words.join(" \\\n")].join("\n")}\n`;
}

/** Joins the lines of a paragraph and wraps it; lines that begin with a blank stay apart and keep their indentation. */
function paragraphs(text: string, width: number): string {
  const blocks: string[] = [];
  for (const line of text.trimEnd().split("\n")) {
    const previous = blocks.at(-1);
    const joins =
      previous !== undefined && previous !== "" && line !== "" && !/^\s/.test(line) && !/^\s/.test(previous);
    if (joins) blocks[blocks.length - 1] = `${previous} ${line}`;
    else blocks.push(line);
  }
  const lines = blocks.flatMap((block) => {
    const [indentation = ""] = /^\s*/.exec(block) ?? [];
    return hanging(block.trimStart(), width, indentation, indentation);
  });
  return `${lines.map((line) => line.trimEnd()).join("\n")}\n`;
}

/** Wraps text; the first line and the others have different indentations. */
function hanging(text: string, width: number, first: string, others: string): string[] {
  const [head = "", ...more] = wrap(text, width - Math.max(first.length, others.length));
  return [first + head, ...more.map((line) => others + line)];
}
