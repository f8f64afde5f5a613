// Defines the errors of datastore operations. Callers branch on the class; users see the message.
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
  /** @param existing the stored entry of the same key, if the driver read it */
  constructor(
    readonly id: string,
    readonly existing?: unknown,
    options?: ErrorOptions,
  ) {
    super(`resource already exists: ${id}`, options);
  }
}

/** A compare-and-swap failed because the entry changed after it was read. */
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

/** The datastore did not answer, or not in time. The message contains the endpoint and the reason. */
export class Unavailable extends DatastoreError {
  override readonly name = "Unavailable";
  /** Time since anything was received, on a connection that was found to be dead. */
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

/** The datastore rejected a request for another reason. The message is the datastore's own. */
export class DatastoreFailure extends DatastoreError {
  override readonly name = "DatastoreFailure";
}

export class Unauthorized extends DatastoreError {
  override readonly name = "Unauthorized";
  constructor(reason: string, options?: ErrorOptions) {
    super(`connection is unauthorized: ${reason}`, options);
  }
}

/** The datastore no longer keeps the requested revision: the caller must list again. */
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
  /** The kind does not belong to Calico, and many clusters do not have it. A Calico kind will be installed soon. */
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

/** The datastore's configuration is invalid; nothing was opened. */
export class InvalidConfig extends DatastoreError {
  override readonly name = "InvalidConfig";
}

/** The file was written by a newer version, or is not a Calico datastore. It was not changed. */
export class IncompatibleSchema extends DatastoreError {
  override readonly name = "IncompatibleSchema";
  constructor(
    readonly file: string,
    readonly found: number,
    readonly known: number,
    reason = `it has schema version ${found}, this program supports versions up to ${known}; upgrade the program`,
  ) {
    super(`datastore ${file} cannot be used: ${reason}`);
  }
}

/** A stored value that cannot be parsed. It is reported by key and skipped, never fatal. */
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
  const lines = [...new Set(faults.map(one))]; // a schema and a rule may report the same fault
  if (lines.length === 0) return "unknown validation error";
  if (lines.length === 1) return `error with field ${lines[0]}`;
  return `error with the following fields:\n${lines.map((line) => `-  ${line}`).join("\n")}`;
}
