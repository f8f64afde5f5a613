// Finds the shell commands of a page: in `sh` blocks, which tests run, and in `console` blocks, which show transcripts.
import { spawnSync } from "node:child_process";
import { codeBlocks } from "./markdown.ts";

export interface PageCommand {
  /** Line of the page on which the command begins. */
  readonly line: number;
  readonly text: string;
  readonly exitCode: number;
}

/** Returns the commands of the `sh` blocks. A command may have several lines. */
export function pageCommands(page: string): readonly PageCommand[] {
  return codeBlocks(page)
    .filter(({ language }) => language === "sh")
    .flatMap(({ text, line }) => splitCommands(text, line + 1));
}

/** Returns the commands of the `console` blocks: lines that begin with `# ` or `$ `, with the lines that complete them. Other lines are output. */
export function consoleCommands(page: string): readonly PageCommand[] {
  return codeBlocks(page)
    .filter(({ language }) => language === "console")
    .flatMap(({ text, line }) => {
      const lines = text.split("\n");
      return lines.flatMap((raw, i) => {
        const [, begin] = /^[#$] (.*)$/.exec(raw) ?? [];
        if (begin === undefined) return [];
        let command = begin;
        for (let next = i + 1; next < lines.length && syntaxError(command) !== undefined; next++)
          command += `\n${lines[next]}`;
        return [{ line: line + 1 + i, text: command, exitCode: 0 }];
      });
    });
}

function splitCommands(block: string, firstLine: number): readonly PageCommand[] {
  const commands: PageCommand[] = [];
  let pending: string[] = [];
  for (const [i, line] of block.split("\n").entries()) {
    if (pending.length === 0 && (line.trim() === "" || line.startsWith("#"))) continue;
    pending.push(line);
    const text = pending.join("\n");
    if (syntaxError(text) !== undefined) continue;
    commands.push({ line: firstLine + i + 1 - pending.length, text, exitCode: announcedExitCode(pending[0] ?? "") });
    pending = [];
  }
  if (pending.length > 0) throw new Error(`line ${firstLine}: ${syntaxError(pending.join("\n"))}`);
  return commands;
}

function announcedExitCode(line: string): number {
  if (/\s# denied\b/.test(line)) return 3;
  return Number(/\s# exit code (\d+)/.exec(line)?.[1] ?? 0);
}

/** Returns what bash reports about the text, or undefined. An unfinished here-document is only a warning of bash. */
export function syntaxError(text: string): string | undefined {
  if (text.endsWith("\\")) return "unfinished line";
  const { stderr } = spawnSync("bash", ["-n"], { input: `${text}\n`, encoding: "utf8" });
  return stderr === "" ? undefined : stderr.trim();
}
