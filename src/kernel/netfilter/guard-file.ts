// Reads and writes the file `guard` next to the nodename file. It shows the CNI plugin that this host's agent manages the
// guard table (guard-table.ts). Only then may the plugin block workload traffic after boot, because the agent will allow it
// again.
//
// Agents without a guard table (Calico, older versions of calico-ts) do not write this file, but they write the nodename
// file at every start. A guard file that is older than the nodename file is therefore stale.
import { rmSync, statSync, utimesSync } from "node:fs";
import { dirname, join } from "node:path";
import { readFileIfExists, replaceFile } from "../../lib/files/replace-file.ts";

export const DEFAULT_NODENAME_FILE = "/var/lib/calico/nodename";
const DEFAULT_PREFIXES = ["cali"];
const BOOT_ID = "/proc/sys/kernel/random/boot_id";
/** Limit for the time between `writeGuardFileAtStart` and the write of the nodename file. */
const WRITE_NODENAME_WITHIN_MS = 5000;

export type GuardFile =
  | { readonly kind: "absent" }
  | { readonly kind: "stale" }
  | {
      readonly kind: "valid";
      readonly interfacePrefixes: readonly string[];
      /** Since boot, an agent without a guard table has written rules that are still in the kernel. */
      readonly hasRulesOfOtherAgent: boolean;
    };

interface Content {
  readonly interfacePrefixes: readonly string[];
  /** ID of the boot since which the kernel has rules of an agent without a guard table. */
  readonly otherAgentInBoot?: string;
}

const guardFile = (nodenameFile: string): string => join(dirname(nodenameFile), "guard");
const bootId = (): string => readFileIfExists(BOOT_ID)?.trim() ?? "";

export function readGuardFile(nodenameFile: string): GuardFile {
  const path = guardFile(nodenameFile);
  const written = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
  if (written === undefined) return { kind: "absent" };
  const nodename = statSync(nodenameFile, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const content = parseContent(readFileIfExists(path));
  if (content === undefined || written < nodename) return { kind: "stale" };
  const { interfacePrefixes, otherAgentInBoot } = content;
  return { kind: "valid", interfacePrefixes, hasRulesOfOtherAgent: otherAgentInBoot === bootId() };
}

/** Called before an agent that manages the guard table writes the nodename file. */
export function writeGuardFileAtStart(
  nodenameFile: string,
  { hasRulesOfOtherAgent }: { hasRulesOfOtherAgent: boolean },
): void {
  const path = guardFile(nodenameFile);
  const interfacePrefixes = parseContent(readFileIfExists(path))?.interfacePrefixes ?? DEFAULT_PREFIXES;
  writeContent(path, { interfacePrefixes, ...(hasRulesOfOtherAgent ? { otherAgentInBoot: bootId() } : {}) });
  // The time is in the future. The nodename file is written next; with the current time, this file would be older and count
  // as stale until `writeGuardFileAfterRules`.
  setTime(path, Date.now() + WRITE_NODENAME_WITHIN_MS);
}

/** Called after Felix has written all of its rules. */
export function writeGuardFileAfterRules(nodenameFile: string, interfacePrefixes: readonly string[]): void {
  const path = guardFile(nodenameFile);
  writeContent(path, { interfacePrefixes });
  // At least the time of the nodename file, because the clock may have been set back since the agent started.
  setTime(path, Math.max(Date.now(), statSync(nodenameFile, { throwIfNoEntry: false })?.mtimeMs ?? 0));
}

/** Called by an agent that does not manage the guard table. */
export function withdrawGuard(nodenameFile: string): void {
  rmSync(guardFile(nodenameFile), { force: true });
}

const writeContent = (path: string, content: Content): void => replaceFile(path, `${JSON.stringify(content)}\n`);

function setTime(path: string, timeMs: number): void {
  const seconds = Math.ceil(timeMs) / 1000;
  utimesSync(path, seconds, seconds);
}

function parseContent(text: string | undefined): Content | undefined {
  if (text === undefined) return undefined;
  try {
    const { interfacePrefixes, otherAgentInBoot } = JSON.parse(text) as Record<string, unknown>;
    if (!Array.isArray(interfacePrefixes)) return undefined;
    const prefixes = interfacePrefixes.filter((prefix) => typeof prefix === "string" && prefix !== "");
    if (prefixes.length === 0) return undefined;
    return {
      interfacePrefixes: prefixes,
      ...(typeof otherAgentInBoot === "string" ? { otherAgentInBoot } : {}),
    };
  } catch {
    return undefined;
  }
}
