// Defines the errors that a command reports to the runtime as one JSON object on stdout. https://www.cni.dev/docs/spec/#error
import { describeError } from "../lib/log/log.ts";

export const INCOMPATIBLE_VERSION = 1;
export const INVALID_ENVIRONMENT = 4;
export const IO_FAILURE = 5;
export const DECODING_FAILURE = 6;
export const INVALID_CONFIG = 7;
export const INVALID_NETNS = 8;
export const TRY_AGAIN_LATER = 11;
export const NOT_AVAILABLE = 50;
export const TEST_FAILED = 100;
/** All errors for which the specification defines no code. */
export const INTERNAL = 999;

export class CniError extends Error {
  override readonly name = "CniError";
  constructor(
    readonly code: number,
    message: string,
    readonly details?: string,
    options?: ErrorOptions,
  ) {
    super(message, options);
  }
}

/** A requested Kubernetes object does not exist. */
export class MissingObject extends CniError {}

export interface ErrorReply {
  readonly cniVersion?: string;
  readonly code: number;
  readonly msg: string;
  readonly details?: string;
}

/**
 * Converts an error. If the datastore does not respond, the code is TRY_AGAIN_LATER, for other errors INTERNAL. The
 * error is recognised by name, not by class, because loading the datastore module here would delay every start.
 */
export function asCniError(error: unknown): CniError {
  if (error instanceof CniError) return error;
  if (error instanceof Error && error.name === "Unavailable")
    return new CniError(TRY_AGAIN_LATER, error.message, "the runtime may try again later", { cause: error });
  if (error instanceof DOMException && (error.name === "TimeoutError" || error.name === "AbortError"))
    return new CniError(TRY_AGAIN_LATER, "the datastore did not respond in time", "the runtime may try again later", {
      cause: error,
    });
  return new CniError(INTERNAL, describeError(error), undefined, { cause: error });
}

/** Returns the error of a failed STATUS. */
export const notAvailable = (error: unknown): CniError =>
  new CniError(NOT_AVAILABLE, asCniError(error).message, "no pod can be attached now", { cause: error });

export function errorReply(error: CniError, cniVersion?: string): ErrorReply {
  return {
    cniVersion,
    code: error.code,
    msg: error.message,
    details: error.details,
  };
}
