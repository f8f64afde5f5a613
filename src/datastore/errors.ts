// What can go wrong between us and a datastore, as types: callers branch on the class, people read the message.
import { describeValue, type FieldFault, escapeControlCharacters, type StoredKey } from "../model/index.ts";

export type { FieldFault } from "../model/index.ts";

export abstract class DatastoreError extends Error {}

export class NotFound extends DatastoreError {
  override readonly name = "NotFound";
  constructor(
    readonly id: string,
    readonly detail = "",
    options?: ErrorOptions,
  ) {
    super(`resource does not exist: ${id}${detail === "" ? "" : ` with error: ${detail}`}`, options);
  }
}

export class AlreadyExists extends DatastoreError {
  override readonly name = "AlreadyExists";
  /** @param existing what stands there, as `KeyValueRevision` of the same key, when the driver got it back */
  constructor(
    readonly id: string,
    readonly existing?: unknown,
    options?: ErrorOptions,
  ) {
    super(`resource already exists: ${id}`, options);
  }
}

/** The compare-and-swap lost: somebody wrote in between. */
export class Conflict extends DatastoreError {
  override readonly name = "Conflict";
  constructor(
    readonly id: string,
    readonly current?: unknown,
    options?: ErrorOptions,
  ) {
    super(`update conflict: ${id}`, options);
  }
}

export class ValidationFailed extends DatastoreError {
  override readonly name = "ValidationFailed";
  constructor(
    readonly faults: readonly FieldFault[],
    options?: ErrorOptions,
  ) {
    super(describeFaults(faults), options);
  }
}

export class Unsupported extends DatastoreError {
  override readonly name = "Unsupported";
  constructor(
    readonly operation: string,
    readonly id: string,
    readonly reason = "",
    options?: ErrorOptions,
  ) {
    super(`operation ${operation} is not supported on ${id}${reason === "" ? "" : `: ${reason}`}`, options);
  }
}

/** Nobody answers, or not in time: says which endpoint, why, and for how long it was tried. */
export class Unavailable extends DatastoreError {
  override readonly name = "Unavailable";
  /** Time since the last sign of life, on a connection that was found dead. */
  readonly silentMs: number;
  /** The server answered that it cannot serve the request now (HTTP status 429 or 5xx). */
  readonly wasAnswered: boolean;
  constructor(
    readonly endpoint: string,
    readonly reason: string,
    options?: ErrorOptions & { readonly silentMs?: number; readonly wasAnswered?: boolean },
  ) {
    super(`datastore ${endpoint} is unavailable: ${reason}`, options);
    this.silentMs = options?.silentMs ?? 0;
    this.wasAnswered = options?.wasAnswered ?? false;
  }
}

/** The datastore refused for a reason of its own, told in its words. */
export class DatastoreFailure extends DatastoreError {
  override readonly name = "DatastoreFailure";
}

export class Unauthorized extends DatastoreError {
  override readonly name = "Unauthorized";
  constructor(reason: string, options?: ErrorOptions) {
    super(`connection is unauthorized: ${reason}`, options);
  }
}

/** The revision asked for is no longer kept: list again. */
export class Compacted extends DatastoreError {
  override readonly name = "Compacted";
  constructor(
    readonly revision: string,
    options?: ErrorOptions,
  ) {
    super(`revision ${revision} is compacted`, options);
  }
}

/** The server answered 404 for a whole kind: probably its API is not installed. */
export class NotServed extends DatastoreError {
  override readonly name = "NotServed";
  /** A kind of others: many clusters do not have it. One of ours is about to be installed. */
  readonly isOptional: boolean;
  /** Resolves when the definition of the kind is installed; undefined if the kind has to be polled. */
  readonly untilServed: ((signal: AbortSignal) => Promise<void>) | undefined;
  /** Returns whether the server's discovery confirms that the kind is not served; a proxy may have sent the 404. */
  readonly isConfirmed: (signal: AbortSignal) => Promise<boolean>;
  constructor(
    readonly kind: string,
    options?: ErrorOptions & {
      readonly isConfirmed?: (signal: AbortSignal) => Promise<boolean>;
      readonly isOptional?: boolean;
      readonly untilServed?: (signal: AbortSignal) => Promise<void>;
    },
  ) {
    super(`the server does not serve ${kind} (HTTP status 404)`, options);
    this.isOptional = options?.isOptional ?? false;
    this.untilServed = options?.untilServed;
    this.isConfirmed = options?.isConfirmed ?? (async () => true);
  }
}

/** What was said about the datastore cannot be meant: nothing was opened. */
export class InvalidConfig extends DatastoreError {
  override readonly name = "InvalidConfig";
}

/** The file was written by a newer program, or is not ours at all: nothing was touched. */
export class IncompatibleSchema extends DatastoreError {
  override readonly name = "IncompatibleSchema";
  constructor(
    readonly file: string,
    readonly found: number,
    readonly known: number,
    reason = `it has schema version ${found}, this program knows up to ${known}; use the newer program`,
  ) {
    super(`datastore ${file} cannot be used: ${reason}`);
  }
}

/** A stored value that does not parse: reported by key and skipped, never fatal. */
export class UnreadableEntry extends DatastoreError {
  override readonly name = "UnreadableEntry";
  constructor(
    readonly path: string,
    reason: string,
    readonly key?: StoredKey,
    options?: ErrorOptions,
  ) {
    super(`failed to parse datastore entry key=${describeValue(path)}: ${escapeControlCharacters(reason)}`, options);
  }
}

function describeFaults(faults: readonly FieldFault[]): string {
  const one = (fault: FieldFault) =>
    `${fault.field}${fault.value === undefined ? "" : ` = '${describeValue(fault.value)}'`} (${fault.reason})`;
  const told = [...new Set(faults.map(one))]; // a schema and a rule may find the same
  if (told.length === 0) return "unknown validation error";
  if (told.length === 1) return `error with field ${told[0]}`;
  return `error with the following fields:\n${told.map((fault) => `-  ${fault}`).join("\n")}`;
}
