// Parses the revisions of sqlite and etcdv3: one counter for the whole store, in decimal.
import type { Revision } from "./datastore.ts";
import { ValidationFailed } from "./errors.ts";

/** Returns 0 for "the newest revision". */
export function parseRevision(revision: Revision | undefined): number {
  if (revision === undefined || revision === "") return 0;
  const number = /^\d{1,15}$/.test(revision) ? Number(revision) : Number.NaN;
  if (Number.isNaN(number)) throw invalidRevision(revision, "want the decimal revision of an earlier read");
  return number;
}

/** Parses the revision that an update compares with, which is mandatory. */
export function requireRevision(revision: Revision | undefined): number {
  const number = parseRevision(revision);
  if (number === 0) throw invalidRevision(revision ?? "", "an update needs the revision that was read");
  return number;
}

export const futureRevision = (revision: number, newest: number): ValidationFailed =>
  invalidRevision(String(revision), `is newer than the newest revision, ${newest}`);

const invalidRevision = (value: string, reason: string): ValidationFailed =>
  new ValidationFailed([{ field: "ResourceVersion", value, reason }]);
