// iptables through its own save and restore programs, in both variants (legacy and nft). Rule text goes in by standard
// input only; no shell is involved.
import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import type { IpVersion } from "../lib/ip.ts";

export type IptablesVariant = "legacy" | "nft";
export type IptablesTable = "raw" | "mangle" | "nat" | "filter";

export class IptablesError extends Error {
  override readonly name = "IptablesError";
  constructor(
    /** In words: "iptables-legacy-restore". */
    readonly command: string,
    readonly exitCode: number | undefined,
    readonly stderr: string,
    /** The line of the input that was refused, when the tool named it. */
    readonly refusedLine?: string,
  ) {
    const reason = stderr.trim().split("\n").slice(-3).join("; ") || `exit code ${exitCode ?? "none (killed)"}`;
    super(`${command}: ${reason}${refusedLine === undefined ? "" : ` (refused: ${refusedLine})`}`);
  }

  /** Not about what was asked for: the tool did not come to an end, or the host was short of something. Ask again. */
  get isPassing(): boolean {
    return this.exitCode === undefined || PASSING.test(this.stderr);
  }
}

/** In the words of the tools and of libc; the number alone (4) does not tell, the nft variant has it for refusals too. */
const PASSING = new RegExp(
  [
    "xtables lock|can't lock|can't open lock",
    "resource temporarily unavailable|device or resource busy|interrupted system call|connection timed out",
    "cannot allocate memory|out of memory|memory allocation problem|no buffer space available",
    "too many open files|input/output error|operation not permitted|permission denied",
  ].join("|"),
  "i",
);

/** The tables of one family, as the rooms above need them: read as text, written as restore input. */
export interface IptablesStore {
  readonly family: IpVersion;
  readonly variant: IptablesVariant;
  /** The lines of `iptables-save -t table`. */
  save(table: IptablesTable, signal?: AbortSignal): Promise<string>;
  /** Feeds `iptables-restore --noflush`; each table of the text is one transaction. */
  restore(text: string, signal?: AbortSignal): Promise<void>;
}

export interface IptablesOptions {
  readonly family: IpVersion;
  readonly variant: IptablesVariant;
  /** How long to wait for the xtables lock, and how often to try; only where the tool can. */
  readonly lock?: { readonly timeoutSeconds: number; readonly probeMs: number };
  readonly timeoutMs?: number;
}

/** `ip6tables-nft-save`, else `ip6tables-save`; nothing when neither is installed. */
export function findIptablesProgram(
  family: IpVersion,
  variant: IptablesVariant,
  action: "save" | "restore",
): string | undefined {
  const base = family === 4 ? "iptables" : "ip6tables";
  return findProgram(`${base}-${variant}-${action}`) ?? findProgram(`${base}-${action}`);
}

export class Iptables implements IptablesStore {
  readonly family: IpVersion;
  readonly variant: IptablesVariant;
  readonly #save: string;
  readonly #restore: string;
  readonly #restoreArguments: readonly string[];
  readonly #timeoutMs: number;

  constructor(options: IptablesOptions) {
    this.family = options.family;
    this.variant = options.variant;
    this.#save = required(options, "save");
    this.#restore = required(options, "restore");
    const { lock } = options;
    this.#restoreArguments =
      lock === undefined
        ? ["--noflush", "--verbose"]
        : [
            "--noflush",
            "--verbose",
            "--wait",
            String(lock.timeoutSeconds),
            "--wait-interval",
            String(Math.round(lock.probeMs * 1000)),
          ];
    this.#timeoutMs = options.timeoutMs ?? 60_000;
  }

  async save(table: IptablesTable, signal?: AbortSignal): Promise<string> {
    const text = await runTool(this.#save, ["-t", table], "", this.#timeoutMs, signal);
    // The nft variant says so on standard output and exits with 0.
    const incompatible = /^# Table .* is incompatible, use 'nft' tool\.$/m.exec(text);
    if (incompatible !== null) throw new IptablesError(this.#save, 0, incompatible[0].slice(2));
    return text;
  }

  async restore(text: string, signal?: AbortSignal): Promise<void> {
    await runTool(this.#restore, this.#restoreArguments, text, this.#timeoutMs, signal);
  }
}

function required(options: IptablesOptions, action: "save" | "restore"): string {
  const program = findIptablesProgram(options.family, options.variant, action);
  if (program !== undefined) return program;
  const base = options.family === 4 ? "iptables" : "ip6tables";
  throw new IptablesError(
    `${base}-${options.variant}-${action}`,
    undefined,
    `neither it nor ${base}-${action} is in PATH: install iptables`,
  );
}

function findProgram(name: string): string | undefined {
  for (const folder of (process.env["PATH"] ?? "/usr/sbin:/usr/bin:/sbin:/bin").split(":")) {
    const path = join(folder, name);
    try {
      accessSync(path, constants.X_OK);
      return path;
    } catch {
      // not here
    }
  }
  return undefined;
}

/** Runs a program to its end and gives its standard output; anything but success is an IptablesError. */
export function runTool(
  program: string,
  args: readonly string[],
  input: string,
  timeoutMs: number,
  signal?: AbortSignal,
): Promise<string> {
  return new Promise((resolve, reject) => {
    const name = program.slice(program.lastIndexOf("/") + 1);
    const child = spawn(program, args, {
      stdio: ["pipe", "pipe", "pipe"],
      timeout: timeoutMs,
      killSignal: "SIGKILL",
      ...(signal === undefined ? {} : { signal }),
    });
    const output: Buffer[] = [];
    let errors = "";
    child.stdout.on("data", (chunk: Buffer) => output.push(chunk));
    child.stderr.on("data", (chunk: Buffer) => (errors = (errors + chunk.toString()).slice(-10_000)));
    child.on("error", (cause) => reject(new IptablesError(name, undefined, cause.message)));
    child.on("close", (code) => {
      if (code === 0) return resolve(Buffer.concat(output).toString());
      reject(new IptablesError(name, code ?? undefined, errors, refusedLine(errors, input)));
    });
    child.stdin.on("error", () => {}); // the exit code tells
    child.stdin.end(input);
  });
}

/** `iptables-restore: line 7 failed`, or `Error occurred at line: 7` */
function refusedLine(errors: string, input: string): string | undefined {
  const line = /\bline:? (\d+)/.exec(errors)?.[1];
  return line === undefined ? undefined : input.split("\n")[Number(line) - 1];
}

/** What the kernel has registered: names of legacy tables, without loading modules to ask. */
export function legacyTableNamesPath(family: IpVersion): string {
  return family === 4 ? "/proc/net/ip_tables_names" : "/proc/net/ip6_tables_names";
}
