// What the commands of the lab have in common: the lab that is named, the privileges they need, and their output.
import { DEFAULT_OPTIONS, InvalidRequest, labName } from "../options.ts";
import type { Terminal } from "../terminal.ts";

/** The name of the lab that a command is for. Only root can work with its namespaces. */
export function requestedLab(flags: { readonly name: string | undefined }): string {
  if (process.getuid?.() !== 0) throw new InvalidRequest("a lab makes network namespaces: run it as root");
  return labName(flags.name ?? DEFAULT_OPTIONS.name);
}

/** Prints a value as JSON if `-o json` was given, otherwise as text. */
export function printResult(
  terminal: Terminal,
  flags: { readonly output: "json" | undefined },
  value: unknown,
  text: () => string,
): void {
  terminal.line(flags.output === "json" ? JSON.stringify(value, null, 2) : text());
}
