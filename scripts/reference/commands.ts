// Generates docs/reference/commands.md and docs/reference/exit-codes.md from the command tables of the programs.
import type { Command, ExitCodes, FlagStyle, FlagTable } from "../../src/lib/command-line/command.ts";
import { helpText, withUsageCode } from "../../src/lib/command-line/help.ts";
import { LAB } from "../../src/lab/table.ts";
import { PROGRAMS } from "../../src/programs.ts";
import { NETWORK_PLUGIN } from "../../src/cni/table.ts";
import { code, table } from "./markdown.ts";

const HELP_WIDTH = 110;

interface Place {
  readonly name: string;
  readonly command: Command;
  readonly exitCodes: ExitCodes;
  readonly globalFlags: FlagTable;
  readonly style: FlagStyle;
}

/** `kubectl-calico` is calicoctl, and `install` is calico-install. */
const OTHER_NAMES = ["kubectl-calico", "install"];

async function programs(): Promise<readonly [string, Command][]> {
  const names = Object.keys(PROGRAMS).filter((name) => !OTHER_NAMES.includes(name));
  const tables = await Promise.all(
    names.map(async (name): Promise<[string, Command]> => [name, (await PROGRAMS[name]?.table()) ?? missing(name)]),
  );
  return [...tables, ["calico lab", LAB]];
}

function missing(name: string): never {
  throw new Error(`no program ${name}`);
}

/** Commands that only call another program are left out: the page shows that program itself. */
function walk(parent: Place): readonly Place[] {
  return [
    parent,
    ...(parent.command.commands ?? [])
      .filter(({ program }) => program === undefined)
      .flatMap((command) =>
        walk({
          name: `${parent.name} ${command.name}`,
          command,
          exitCodes: command.exitCodes ?? parent.exitCodes,
          globalFlags: { ...parent.globalFlags, ...command.globalFlags },
          style: command.style ?? parent.style,
        }),
      ),
  ];
}

async function places(): Promise<readonly (readonly Place[])[]> {
  return (await programs()).map(([name, command]) =>
    walk({
      name,
      command,
      exitCodes: command.exitCodes ?? {},
      globalFlags: command.globalFlags ?? {},
      style: command.style ?? "gnu",
    }),
  );
}

export async function commandsPage(): Promise<string> {
  const sections = (await places()).flatMap((program) =>
    program.map(({ name, command, globalFlags, style }, i) =>
      [
        `${i === 0 ? "##" : "###"} ${name}`,
        "",
        "```text",
        helpText({ command, commandName: name, globalFlags, style }, HELP_WIDTH).trimEnd(),
        "```",
      ].join("\n"),
    ),
  );
  return `# Commands

\`make reference\` generates this page from the command tables. It shows the help text of each program and command, as \`--help\`
prints it. One executable contains all programs; it runs the program whose name it is called by. [Exit codes](exit-codes.md)
are on a page of their own.

${sections.join("\n\n")}
`;
}

export async function exitCodesPage(): Promise<string> {
  const rows = (await places()).flatMap((program) =>
    program.filter((place, i) => i === 0 || place.command.exitCodes !== undefined),
  );
  const lines = [
    ...rows,
    { name: "calico (CNI plugin)", command: NETWORK_PLUGIN, exitCodes: NETWORK_PLUGIN.exitCodes ?? {} },
  ].flatMap(({ name, exitCodes }) =>
    Object.entries(withUsageCode(exitCodes)).map(([exit, meaning], i) => [i === 0 ? code(name) : "", exit, meaning]),
  );
  return `# Exit codes

\`make reference\` generates this page from the command tables. A command that is not listed has the exit codes of its program.
\`calico get\` and other short forms have those of \`calicoctl\`. A program that a signal kills ends with 128 plus the number of
the signal, as in every shell.

${table(["Program or command", "Exit code", "Meaning"], lines)}
`;
}
