// Stores the last protocol error of each BGP session from BIRD's log in a file, for `calicoctl node status`. BIRD itself
// reports only its last error of any type, which after a rejected session is only "connection closed".
import { readFileSync } from "node:fs";
import { replaceFile } from "../../lib/files/replace-file.ts";
import { RUN_FOLDER } from "../supervisor/children.ts";

const SESSION_ERRORS_FILE = `${RUN_FOLDER}/bgp-errors.json`;
const WRITE_DELAY_MS = 500;
/** Older errors are not related to the current state. */
const MAX_AGE_MS = 15 * 60_000;

export interface SessionError {
  readonly at: string;
  readonly error: string;
}

/**
 * Parses `2026-01-01 10:00:00.000 <RMT> Global_10_0_0_1: Error: Bad peer AS: 65100`. An error that the peer sent keeps
 * the prefix `Received: `, because its AS number is then that of this node.
 */
export function parseErrorLine(line: string): { readonly session: string; readonly error: string } | undefined {
  const [, session, direction, error] =
    /<\w+> ((?:Global|Node|Mesh|Local_Workload)_\w+): (Error|Received): (.+)$/.exec(line.trimEnd()) ?? [];
  if (session === undefined || error === undefined) return undefined;
  return { session, error: direction === "Received" ? `Received: ${error}` : error };
}

export class SessionErrors {
  readonly #errors = new Map<string, SessionError>();
  #timer: ReturnType<typeof setTimeout> | undefined;

  constructor(readonly file = SESSION_ERRORS_FILE) {}

  onLine(child: string, line: string): void {
    if (child !== "bird" && child !== "bird6") return;
    const found = parseErrorLine(line);
    if (found === undefined) return;
    this.#errors.set(found.session, { at: new Date().toISOString(), error: found.error });
    if (this.#timer === undefined) this.#timer = setTimeout(() => this.#write(), WRITE_DELAY_MS);
  }

  #write(): void {
    this.#timer = undefined;
    const since = Date.now() - MAX_AGE_MS;
    for (const [session, { at }] of this.#errors) if (Date.parse(at) < since) this.#errors.delete(session);
    try {
      replaceFile(this.file, `${JSON.stringify(Object.fromEntries(this.#errors), undefined, 2)}\n`);
    } catch {
      // node status then shows only BIRD's own error
    }
  }
}

export function readSessionErrors(file = SESSION_ERRORS_FILE, now = Date.now()): ReadonlyMap<string, SessionError> {
  try {
    const errors = JSON.parse(readFileSync(file, "utf8")) as Readonly<Record<string, SessionError>>;
    return new Map(Object.entries(errors).filter(([, { at }]) => Date.parse(at) > now - MAX_AGE_MS));
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
  // a time of day in the future is that of yesterday
  const changedMs = changedAt > now.getTime() + STATE_CHANGE_MS ? changedAt - 86_400_000 : changedAt;
  return Date.parse(at) < changedMs - STATE_CHANGE_MS;
}

const pad = (number: number): string => String(number).padStart(2, "0");
