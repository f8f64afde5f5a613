// Encodes keys and values in the layout that `sqlite` and `etcdv3` share, and converts the model's errors to the
// datastore's.
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

/** @throws ValidationFailed for a name that a path cannot contain */
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

/** @throws UnreadableEntry if the value does not have the type that belongs to the key */
export function decodeValue<K extends StoredKey>(key: K, path: string, text: string): ValueOf<K> {
  try {
    return decode(key, text);
  } catch (error) {
    if (!(error instanceof UnreadableValue)) throw error;
    throw new UnreadableEntry(path, error.message, key, { cause: error });
  }
}
