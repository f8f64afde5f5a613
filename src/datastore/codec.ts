// The layout that `sqlite` and `etcdv3` share, with the faults told the datastore's way.
import {
  decodeValue as decode,
  InvalidKey,
  keyPath,
  type StoredKey,
  UnreadableValue,
  type ValueOf,
} from "../model/index.ts";
import { UnreadableEntry, ValidationFailed } from "./errors.ts";

export { encodeValue, type PathRange, parseStoredPath as parsePath, queryRange as rangeOf } from "../model/index.ts";

/** A name no path can hold was never valid. */
export function pathOf(key: StoredKey): string {
  try {
    return keyPath(key);
  } catch (error) {
    if (!(error instanceof InvalidKey)) throw error;
    const isNamespace = key.type === "resource" && key.namespace === error.part && key.name !== error.part;
    const field = isNamespace ? "metadata.namespace" : "metadata.name";
    throw new ValidationFailed([{ field, value: error.part, reason: error.reason }], { cause: error });
  }
}

/** The value that stands at a path; `UnreadableEntry` when it is not what the key promises. */
export function decodeValue<K extends StoredKey>(key: K, path: string, text: string): ValueOf<K> {
  try {
    return decode(key, text);
  } catch (error) {
    if (!(error instanceof UnreadableValue)) throw error;
    throw new UnreadableEntry(path, error.message, key, { cause: error });
  }
}
