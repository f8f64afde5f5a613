// Converts errors of the API server to the datastore's typed errors.
import type { StoredKey } from "../../model/index.ts";
import {
  AlreadyExists,
  Compacted,
  Conflict,
  DatastoreError,
  DatastoreFailure,
  type FieldFault,
  NotFound,
  Unauthorized,
  ValidationFailed,
} from "../errors.ts";
import { nameOfKey } from "../key-name.ts";
import { KubeStatusError } from "./status-error.ts";

/** @param key of the request, or the name of the collection */
export function toDatastoreError(error: unknown, key: StoredKey | string): unknown {
  if (!(error instanceof KubeStatusError)) return error;
  const id = typeof key === "string" ? key : nameOfKey(key);
  const cause = { cause: error };
  switch (error.reason) {
    case "AlreadyExists":
      return new AlreadyExists(id, undefined, cause);
    case "NotFound":
      return new NotFound(id, "", cause);
    case "Forbidden":
    case "Unauthorized":
      return new Unauthorized(error.message, cause);
    case "Expired":
    case "Gone":
      return new Compacted("", cause);
    case "Conflict":
      // Another object has the same name: the requested one was deleted.
      return error.message.includes("UID in precondition")
        ? new NotFound(id, "", cause)
        : new Conflict(id, undefined, cause);
    case "Invalid":
      return translateInvalid(error, id);
  }
  if (error.code === 404) return new NotFound(id, "", cause);
  if (error.code === 410) return new Compacted("", cause);
  if (error.code === 401 || error.code === 403) return new Unauthorized(error.message, cause);
  return new DatastoreFailure(error.message, cause);
}

function translateInvalid(error: KubeStatusError, id: string): DatastoreError {
  const fields = error.causes.map(({ field }) => field);
  if (fields.includes("metadata.resourceVersion")) return new Conflict(id, undefined, { cause: error });
  if (fields.includes("metadata.uid")) return new NotFound(id, "", { cause: error });
  const faults: FieldFault[] = error.causes.map((cause) => ({
    field: cause.field ?? id,
    reason: cause.message ?? "invalid",
  }));
  return new ValidationFailed(faults.length === 0 ? [{ field: id, reason: error.message }] : faults, { cause: error });
}
