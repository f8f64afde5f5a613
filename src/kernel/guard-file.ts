// The file `guard` beside the nodename file. It shows the CNI plugin that this host's agent manages the guard table
// (guard-table.ts), so that the plugin may close the host after boot: the agent will open it again.
//
// Agents without a guard table (Calico, older versions of calico-ts) know nothing of the file, but they write the nodename
// file whenever they start. A guard file that is older than the nodename file is therefore stale.
import { rmSync, statSync, utimesSync } from "node:fs";
import { dirname, join } from "node:path";
import { readIfThere, replaceFile } from "../lib/whole-file.ts";

export const DEFAULT_NODENAME_FILE = "/var/lib/calico/nodename";
const DEFAULT_PREFIXES = ["cali"];
const BOOT_ID = "/proc/sys/kernel/random/boot_id";
/** Between the date of the guard file and the moment at which the nodename file is written. */
const WRITE_NODENAME_WITHIN_MS = 5000;

export type GuardFile =
  | { readonly kind: "absent" }
  | { readonly kind: "stale" }
  | {
      readonly kind: "valid";
      readonly interfacePrefixes: readonly string[];
      /** An agent without a guard table has written its rules since boot, and they are still in the kernel. */
      readonly hasRulesOfOtherAgent: boolean;
    };

interface Content {
  readonly interfacePrefixes: readonly string[];
  /** The boot in which the kernel has rules of an agent without a guard table. */
  readonly otherAgentInBoot?: string;
}

const guardFile = (nodenameFile: string): string => join(dirname(nodenameFile), "guard");
const bootId = (): string => readIfThere(BOOT_ID)?.trim() ?? "";

export function readGuardFile(nodenameFile: string): GuardFile {
  const path = guardFile(nodenameFile);
  const written = statSync(path, { throwIfNoEntry: false })?.mtimeMs;
  if (written === undefined) return { kind: "absent" };
  const nodename = statSync(nodenameFile, { throwIfNoEntry: false })?.mtimeMs ?? 0;
  const content = parseContent(readIfThere(path));
  if (content === undefined || written < nodename) return { kind: "stale" };
  const { interfacePrefixes, otherAgentInBoot } = content;
  return { kind: "valid", interfacePrefixes, hasRulesOfOtherAgent: otherAgentInBoot === bootId() };
}

/** Before an agent that manages the guard table writes the nodename file. */
export function announceGuard(nodenameFile: string, { hasRulesOfOtherAgent }: { hasRulesOfOtherAgent: boolean }): void {
  const path = guardFile(nodenameFile);
  const interfacePrefixes = parseContent(readIfThere(path))?.interfacePrefixes ?? DEFAULT_PREFIXES;
  writeContent(path, { interfacePrefixes, ...(hasRulesOfOtherAgent ? { otherAgentInBoot: bootId() } : {}) });
  // The nodename file gets a later date than this one. Without the lead the guard file would be stale for a moment.
  setTime(path, Date.now() + WRITE_NODENAME_WITHIN_MS);
}

/** After Felix has written all of its rules. */
export function recordGuard(nodenameFile: string, interfacePrefixes: readonly string[]): void {
  const path = guardFile(nodenameFile);
  writeContent(path, { interfacePrefixes });
  // Not the clock alone: it may have been set back since the agent started.
  setTime(path, Math.max(Date.now(), statSync(nodenameFile, { throwIfNoEntry: false })?.mtimeMs ?? 0));
}

/** For an agent that does not manage the guard table. */
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
