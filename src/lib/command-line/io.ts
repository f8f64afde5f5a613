// The process as a command sees it. Tests pass their own.
import { readFileSync, readSync } from "node:fs";
import { writeAll } from "../files/write-all.ts";
import { escapeForTerminal, hasControlCharacters } from "../terminal/escape-control-characters.ts";

export interface CommandIo {
  readonly env: Readonly<Record<string, string | undefined>>;
  out(text: string): void;
  err(text: string): void;
  readStdin(): Uint8Array;
  /** Reads one line that a user types; if absent, the first line of standard input is used. */
  readLine?(): string;
  isTerminal(stream: "out" | "err"): boolean;
  /** Width of the terminal in characters; undefined without a terminal. */
  columns?(): number | undefined;
  /** How long a datastore may take to answer, if not as long as the command allows by default. */
  readonly timeoutMs?: number;
}

/** process.stdin and process.stdout are not used: their setup takes longer than most commands. */
export function processIo(): CommandIo {
  const isTerminal = (stream: "out" | "err"): boolean => tty().isatty(stream === "out" ? 1 : 2);
  // Stored text reaches a pipe unchanged; on a terminal its control characters are made visible.
  const safe = (stream: "out" | "err", text: string) =>
    hasControlCharacters(text) && isTerminal(stream) ? escapeForTerminal(text) : text;
  return {
    env: process.env,
    out: (text) => writeAll(1, safe("out", text)),
    err: (text) => writeAll(2, safe("err", text)),
    readStdin: () => readFileSync(0),
    readLine,
    isTerminal,
    columns: () => (isTerminal("out") ? new (tty().WriteStream)(1).columns || undefined : undefined),
  };
}

const tty = () => require("node:tty") as typeof import("node:tty");

function readLine(): string {
  const byte = Buffer.alloc(1);
  const bytes: number[] = [];
  while (readSync(0, byte) === 1 && byte[0] !== 10) bytes.push(byte[0] ?? 0);
  return Buffer.from(bytes).toString();
}
