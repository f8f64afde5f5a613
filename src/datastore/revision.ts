// Revisions of sqlite and etcdv3 are one counter for the whole store, written in decimal.
import type { Revision } from "./datastore.ts";
import { ValidationFailed } from "./errors.ts";

/** 0 stands for "whatever is newest". */
export function parseRevision(revision: Revision | undefined): number {
  if (revision === undefined || revision === "") return 0;
  const number = /^\d{1,15}$/.test(revision) ? Number(revision) : Number.NaN;
  if (Number.isNaN(number)) throw invalidRevision(revision, "want the decimal revision of an earlier read");
  return number;
}

/** The revision an update compares with, which must be given. */
export function requireRevision(revision: Revision | undefined): number {
  const number = parseRevision(revision);
  if (number === 0) throw invalidRevision(revision ?? "", "an update needs the revision that was read");
  return number;
}

export const futureRevision = (revision: number, newest: number): ValidationFailed =>
  invalidRevision(String(revision), `lies in the future; the newest is ${newest}`);

const invalidRevision = (value: string, reason: string): ValidationFailed =>
  new ValidationFailed([{ field: "ResourceVersion", value, reason }]);
