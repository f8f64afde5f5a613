// Helpers of all lab commands: the name of the lab, the check for root, and the output format.
import { DEFAULT_OPTIONS, InvalidRequest, labName } from "../options.ts";
import type { Terminal } from "../terminal.ts";

/** Returns the name of the requested lab. @throws InvalidRequest if the caller is not root, which namespaces require */
export function requestedLab(flags: { readonly name: string | undefined }): string {
  if (process.getuid?.() !== 0) throw new InvalidRequest("a lab creates network namespaces: run it as root");
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
