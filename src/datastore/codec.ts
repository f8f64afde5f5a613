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
    throw new ValidationFailed([{ field: "metadata.name", value: nameIn(key), reason: error.message }], {
      cause: error,
    });
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

const nameIn = (key: StoredKey): string => ("name" in key ? key.name : "host" in key ? key.host : "");
