// Remembers the last protocol error of each BGP session from what BIRD logs: BIRD's own answer keeps only the last error
// of any sort, and after a refusal that is merely "connection closed". Kept in a file for `calicoctl node status`.
import { readFileSync } from "node:fs";
import { replaceFile } from "../lib/whole-file.ts";
import { RUN_FOLDER } from "./children.ts";

const SESSION_ERRORS_FILE = `${RUN_FOLDER}/bgp-errors.json`;
const WRITE_EVERY_MS = 500;
/** An error older than this says nothing about now. */
const FORGET_AFTER_MS = 15 * 60_000;

export interface SessionError {
  readonly at: string;
  readonly error: string;
}

/**
 * `2026-01-01 10:00:00.000 <RMT> Global_10_0_0_1: Error: Bad peer AS: 65100`; what the other side says of us keeps its
 * `Received: `, for the number in it is then ours.
 */
export function parseErrorLine(line: string): { readonly session: string; readonly error: string } | undefined {
  const [, session, way, error] =
    /<\w+> ((?:Global|Node|Mesh|Local_Workload)_\w+): (Error|Received): (.+?)\s*$/.exec(line) ?? [];
  if (session === undefined || error === undefined) return undefined;
  return { session, error: way === "Received" ? `Received: ${error}` : error };
}

export class SessionErrors {
  readonly #errors = new Map<string, SessionError>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly file = SESSION_ERRORS_FILE) {}

  onLine(part: string, line: string): void {
    if (part !== "bird" && part !== "bird6") return;
    const found = parseErrorLine(line);
    if (found === undefined) return;
    this.#errors.set(found.session, { at: new Date().toISOString(), error: found.error });
    if (this.#timer === undefined) this.#timer = setTimeout(() => this.#write(), WRITE_EVERY_MS);
  }

  #write(): void {
    this.#timer = undefined;
    const since = Date.now() - FORGET_AFTER_MS;
    for (const [session, { at }] of this.#errors) if (Date.parse(at) < since) this.#errors.delete(session);
    try {
      replaceFile(this.file, `${JSON.stringify(Object.fromEntries(this.#errors), undefined, 2)}\n`);
    } catch {
      // status is then as good as BIRD's own answer
    }
  }
}

export function readSessionErrors(file = SESSION_ERRORS_FILE, now = Date.now()): ReadonlyMap<string, string> {
  try {
    const errors = JSON.parse(readFileSync(file, "utf8")) as Readonly<Record<string, SessionError>>;
    return new Map(
      Object.entries(errors)
        .filter(([, { at }]) => Date.parse(at) > now - FORGET_AFTER_MS)
        .map(([session, { error }]) => [session, error]),
    );
  } catch {
    return new Map();
  }
}
