// Defines how readers handle fields that they cannot read. Another version or program may have stored the resource, so
// the caller decides per field: report and ignore the field, or reject the whole resource.
import { WrongShape, WrongValue } from "../../lib/encoding/json-reader.ts";

/**
 * Called for each field that cannot be read. If it returns, the field counts as unset, unless the reader states another
 * fallback; if it throws, the resource is rejected.
 */
export type OnUnreadable = (error: WrongShape) => void;

export const ignoreUnreadable: OnUnreadable = () => {};

export const rejectUnreadable: OnUnreadable = (error) => {
  throw error;
};

/** Rejects a resource in which one of these fields cannot be read because of a wrong JSON type. */
export const rejectWrongTypes =
  (...fields: readonly string[]): OnUnreadable =>
  (error) => {
    if (isWrongType(error) && affects(error, fields)) throw error;
  };

export const isWrongType = (error: WrongShape): boolean => !(error instanceof WrongValue);

/** True if one of these fields is unreadable because of the error: the field itself, or an object around or inside it. */
export const affects = ({ path }: WrongShape, fields: readonly string[]): boolean =>
  fields.some((field) => contains(field, path) || contains(path, field));

/** `spec.ports` contains `spec.ports[0].name`. */
const contains = (outer: string, inner: string): boolean =>
  inner.startsWith(outer) && (inner.length === outer.length || [".", "["].includes(inner.charAt(outer.length)));

/** Reads one field. If it is unreadable, calls `onUnreadable` and returns the fallback. */
export type ReadField = <T, F>(read: () => T, fallback: F) => T | F;

export const fieldReader =
  (onUnreadable: OnUnreadable): ReadField =>
  (read, fallback) => {
    try {
      return read();
    } catch (error) {
      if (!(error instanceof WrongShape)) throw error;
      onUnreadable(error);
      return fallback;
    }
  };
