// Remembers the last protocol error of each BGP session from what BIRD logs: BIRD's own answer keeps only the last error
// of any sort, and after a refusal that is merely "connection closed". Kept in a file for `calicoctl node status`.
import { readFileSync } from "node:fs";
import { replaceFile } from "../../lib/files/replace-file.ts";
import { RUN_FOLDER } from "../supervisor/children.ts";

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
    /<\w+> ((?:Global|Node|Mesh|Local_Workload)_\w+): (Error|Received): (.+)$/.exec(line.trimEnd()) ?? [];
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

export function readSessionErrors(file = SESSION_ERRORS_FILE, now = Date.now()): ReadonlyMap<string, SessionError> {
  try {
    const errors = JSON.parse(readFileSync(file, "utf8")) as Readonly<Record<string, SessionError>>;
    return new Map(Object.entries(errors).filter(([, { at }]) => Date.parse(at) > now - FORGET_AFTER_MS));
  } catch {
    return new Map();
  }
}

/** BIRD logs an error before it changes the state of the session. */
const STATE_CHANGE_MS = 5_000;

/**
 * True if the session changed its state after the error, so that the error is not the cause of the state.
 * @param since when the state last changed, as BIRD prints it: `10:00:00.123` of today, or with a date before it
 */
export function isOlderThanState({ at }: SessionError, since: string, now = new Date()): boolean {
  const [, date, time] = /^(?:(\d{4}-\d{2}-\d{2})\s*)?(\d{2}:\d{2}:\d{2}(?:\.\d+)?)?$/.exec(since.trim()) ?? [];
  if (date === undefined && time === undefined) return false;
  const today = `${now.getFullYear()}-${pad(now.getMonth() + 1)}-${pad(now.getDate())}`;
  const changedAt = Date.parse(`${date ?? today}T${time ?? "00:00:00"}`); // both are local time
  // A time of day that is still to come was yesterday's.
  const changedMs = changedAt > now.getTime() + STATE_CHANGE_MS ? changedAt - 86_400_000 : changedAt;
  return Date.parse(at) < changedMs - STATE_CHANGE_MS;
}

const pad = (number: number): string => String(number).padStart(2, "0");
