// Reads and writes iptables tables with the programs iptables-save(8) and iptables-restore(8), in the variants legacy and
// nft. Rules are passed on standard input; no shell is used.
import { spawn } from "node:child_process";
import { accessSync, constants } from "node:fs";
import { join } from "node:path";
import type { IpVersion } from "../../lib/ip/ip.ts";

export type IptablesVariant = "legacy" | "nft";
export type IptablesTable = "raw" | "mangle" | "nat" | "filter";

export class IptablesError extends Error {
  override readonly name = "IptablesError";
  constructor(
    /** The name of the program: "iptables-legacy-restore". */
    readonly command: string,
    readonly exitCode: number | undefined,
    readonly stderr: string,
    /** The rejected line of the input, if the tool reported it. */
    readonly rejectedLine?: string,
  ) {
    const reason = stderr.trim().split("\n").slice(-3).join("; ") || `exit code ${exitCode ?? "none (killed)"}`;
    super(`${command}: ${reason}${rejectedLine === undefined ? "" : ` (rejected: ${rejectedLine})`}`);
  }

  /** True if the error does not depend on the input: the tool was killed, or a resource was short. Retrying helps. */
  get isTransient(): boolean {
    return this.exitCode === undefined || TRANSIENT.test(this.stderr);
  }
}

/** Messages of the tools and of libc. Exit code 4 is not sufficient: the nft variant also uses it for rejected rules. */
const TRANSIENT = new RegExp(
  [
    "xtables lock|can't lock|can't open lock",
    "resource temporarily unavailable|device or resource busy|interrupted system call|connection timed out",
    "cannot allocate memory|out of memory|memory allocation problem|no buffer space available",
    "too many open files|input/output error|operation not permitted|permission denied",
  ].join("|"),
  "i",
);

/** The iptables tables of one IP family: read as text, written as input of iptables-restore. */
export interface IptablesStore {
  readonly family: IpVersion;
  readonly variant: IptablesVariant;
  /** The lines of `iptables-save -t table`. */
  save(table: IptablesTable, signal?: AbortSignal): Promise<string>;
  /** Runs `iptables-restore --noflush` with this input. Each table of the text is one transaction. */
  restore(text: string, signal?: AbortSignal): Promise<void>;
}

export interface IptablesOptions {
  readonly family: IpVersion;
  readonly variant: IptablesVariant;
  /** How long to wait for the xtables lock, and how often to try. Only for tools with `--wait`. */
  readonly lock?: { readonly timeoutSeconds: number; readonly probeMs: number };
  readonly timeoutMs?: number;
}

/** Returns the path of `ip6tables-nft-save` or else `ip6tables-save`; undefined if neither is installed. */
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
    // The nft variant reports this error on standard output, and exits with 0.
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
      // not in this folder
    }
  }
  return undefined;
}

/**
 * Runs a program and returns its standard output.
 * @throws IptablesError unless it exits with 0
 */
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
      signal,
    });
    const output: Buffer[] = [];
    let errors = "";
    child.stdout.on("data", (chunk: Buffer) => output.push(chunk));
    child.stderr.on("data", (chunk: Buffer) => (errors = (errors + chunk.toString()).slice(-10_000)));
    child.on("error", (cause) => reject(new IptablesError(name, undefined, cause.message)));
    child.on("close", (code) => {
      if (code === 0) return resolve(Buffer.concat(output).toString());
      reject(new IptablesError(name, code ?? undefined, errors, rejectedLine(errors, input)));
    });
    child.stdin.on("error", () => {}); // if the tool does not read its input, its exit code shows the error
    child.stdin.end(input);
  });
}

/** Finds the line in messages such as `iptables-restore: line 7 failed` or `Error occurred at line: 7`. */
function rejectedLine(errors: string, input: string): string | undefined {
  const line = /\bline:? (\d+)/.exec(errors)?.[1];
  return line === undefined ? undefined : input.split("\n")[Number(line) - 1];
}

/** A file with the names of the legacy tables that exist. Reading it loads no kernel module, unlike the tools. */
export function legacyTableNamesPath(family: IpVersion): string {
  return family === 4 ? "/proc/net/ip_tables_names" : "/proc/net/ip6_tables_names";
}
