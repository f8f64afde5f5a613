// Usage lines and help texts, rendered from the command table.
import { GLOBAL_FLAGS } from "./arguments.ts";
import type { Command, Flag, Group } from "./command.ts";

export function usageLines(program: string, path: readonly string[], command: Command): string {
  const start = `  ${[program, ...path].join(" ")}`;
  const forms = command.usage.length === 0 ? [""] : command.usage;
  return `Usage:\n${forms.map((form) => `${start}${form === "" ? "" : ` ${form}`}`).join("\n")}\n`;
}

export function commandHelp(program: string, path: readonly string[], command: Command): string {
  const details = command.details === undefined ? "" : `\n${command.details.trimEnd()}\n`;
  const own = command.flags.filter((flag) => flag.hidden !== true);
  return [
    `${command.about}\n\n`,
    usageLines(program, path, command),
    details,
    own.length === 0 ? "" : `\nOptions:\n${flagTable(own)}`,
    `\nGlobal options:\n${flagTable(GLOBAL_FLAGS)}`,
  ].join("");
}

export const groupUsage = (program: string, path: readonly string[]): string =>
  `Usage:\n  ${[program, ...path].join(" ")} [options] <command> [<args>...]\n`;

export function groupHelp(program: string, path: readonly string[], group: Group): string {
  const full = [program, ...path].join(" ");
  const width = Math.max(...group.commands.map((entry) => entry.name.length), 0);
  const list = group.commands.map((entry) => `  ${entry.name.padEnd(width)}   ${entry.about}\n`).join("");
  return [
    `${group.about}\n\n`,
    groupUsage(program, path),
    list === "" ? "" : `\nCommands:\n${list}`,
    `\nGlobal options:\n${flagTable(GLOBAL_FLAGS)}`,
    list === "" ? "" : `\n\`${full} <command> --help\` says more about a command.\n`,
  ].join("");
}

function flagTable(flags: readonly Flag[]): string {
  const left = flags.map((flag) => {
    const short = flag.short === undefined ? "    " : `-${flag.short}, `;
    return `  ${short}--${flag.name}${flag.value === undefined ? "" : `=<${flag.value}>`}`;
  });
  const width = Math.max(...left.map((text) => text.length));
  return flags
    .map((flag, i) => {
      const lines = wrap(flag.about, Math.max(40, 100 - width));
      const first = `${(left[i] ?? "").padEnd(width)}   ${lines[0] ?? ""}\n`;
      return (
        first +
        lines
          .slice(1)
          .map((line) => `${" ".repeat(width)}   ${line}\n`)
          .join("")
      );
    })
    .join("");
}

function wrap(text: string, width: number): string[] {
  const lines: string[] = [];
  let line = "";
  for (const word of text.split(" ")) {
    if (line !== "" && line.length + 1 + word.length > width) {
      lines.push(line);
      line = word;
    } else line = line === "" ? word : `${line} ${word}`;
  }
  return [...lines, line];
}
