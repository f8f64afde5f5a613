// Checks what pages show without running it: `yaml` blocks with Calico resources are valid, commands of calico-ts have the
// sub-commands, flags and arguments that are shown, and make targets exist.
import { loadAll } from "js-yaml";
import { parse } from "../../src/lib/command-line/parse.ts";
import { LAB } from "../../src/lab/table.ts";
import { hasSchema, validateResource } from "../../src/model/validation/schemas.ts";
import type { Resource } from "../../src/model/resource.ts";
import { PROGRAMS } from "../../src/programs.ts";
import { codeBlocks } from "./markdown.ts";
import { consoleCommands, pageCommands } from "./page-commands.ts";

/** Returns one sentence for each invalid Calico resource in a `yaml` block. */
export async function findInvalidResources(page: string): Promise<readonly string[]> {
  const faults: string[] = [];
  for (const { language, text, line } of codeBlocks(page)) {
    if (language !== "yaml") continue;
    for (const document of parseYaml(text, line, faults)) {
      const resource = document as Resource;
      if (resource?.apiVersion !== "projectcalico.org/v3" || !hasSchema(resource.kind)) continue;
      const result = await validateResource(resource, { mode: "create" });
      if (!result.ok)
        faults.push(...result.faults.map(({ field, reason }) => `line ${line}: ${resource.kind} ${field}: ${reason}`));
    }
  }
  return faults;
}

function parseYaml(text: string, line: number, faults: string[]): readonly unknown[] {
  try {
    return loadAll(text);
  } catch (error) {
    faults.push(`line ${line}: ${error instanceof Error ? error.message : String(error)}`);
    return [];
  }
}

/** Where a shell command of calico-ts may be hidden behind: variables, `sudo`, a folder. */
const PREFIX = /^(?:sudo |(?:[A-Z_]+=\S+ )+)*(?:\.\/)?(?:dist\/)?/;

/** Returns one sentence for each command of calico-ts in `sh` and `console` blocks that the programs would reject. */
export async function findInvalidCommands(page: string, makeTargets: ReadonlySet<string>): Promise<readonly string[]> {
  const faults: string[] = [];
  for (const { line, text } of [...pageCommands(page), ...consoleCommands(page)]) {
    const [command = ""] = text.split("\n");
    // Usage lines and shortened commands are not meant to be typed.
    if (command.includes("…") || command.includes("[-")) continue;
    const fault = await findFault(simpleCommand(command.replace(/\\$/, "")), makeTargets);
    if (fault !== undefined) faults.push(`line ${line}: ${command}: ${fault}`);
  }
  return faults;
}

/** The words of the first simple command of a shell line. */
function simpleCommand(line: string): readonly string[] {
  const words: string[] = [];
  for (const [word] of line.replace(PREFIX, "").matchAll(/(?:"[^"]*"|'[^']*'|[^\s"'])+/g)) {
    if (/^(?:#|[|&;<>]|\d?>)/.test(word)) break;
    words.push(word.replaceAll(/["']/g, "").replace(/;$/, ""));
    if (word.endsWith(";")) break;
  }
  return words;
}

async function findFault(
  [program = "", ...args]: readonly string[],
  makeTargets: ReadonlySet<string>,
): Promise<string | undefined> {
  if (program === "make")
    return args.filter((arg) => !arg.includes("=") && !arg.startsWith("-")).some((arg) => !makeTargets.has(arg))
      ? "there is no such target"
      : undefined;
  if (program === "calico" && args[0] === "lab") return parseFault(LAB, args.slice(1));
  if (program === "calico" && args[0] === "ctl") return findFault(["calicoctl", ...args.slice(1)], makeTargets);
  const table = Object.hasOwn(PROGRAMS, program) && program !== "install" ? PROGRAMS[program]?.table : undefined;
  return table === undefined ? undefined : parseFault(await table(), args);
}

function parseFault(root: Parameters<typeof parse>[0], args: readonly string[]): string | undefined {
  const parsed = parse(root, args);
  return parsed.type === "error" ? parsed.error.message : undefined;
}
