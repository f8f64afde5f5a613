// Updates as they travel: one flat JSON array per frame, four items each: change, key, revision, value. One call parses
// a thousand of them; parsing each by itself costs a client twice the time.
import type { SyncerUpdate, SyncStatus } from "../datastore/index.ts";
import {
  decodeResource,
  decodeValue,
  encodeValue,
  isStoredKey,
  isValueError,
  type Key,
  keyPath,
  parseKeyPath,
  type StoredKey,
  UnreadableValue,
  type ValueOf,
} from "../model/index.ts";
import type { JsonObject } from "../lib/encoding/lossless-json.ts";
import { decodePolicy, decodeProfileRules } from "./policy-values.ts";
import { ProtocolError, statusNumber, statusOf } from "./protocol.ts";

/** An update with key and value as text, the value as it will travel: written once, however many clients there are. */
export interface TextUpdate {
  readonly path: string;
  /** Undefined: it is gone. */
  readonly value: string | undefined;
  readonly revision: string;
  readonly change: SyncerUpdate["change"];
}

const CHANGES: readonly SyncerUpdate["change"][] = ["new", "updated", "deleted"];

/** A value that cannot be written counts as gone. */
export function textUpdate(update: SyncerUpdate): TextUpdate {
  const { key, value, change, revision = "" } = update;
  const text = value === undefined ? undefined : valueText(key, value);
  return { path: keyPath(key), value: text, revision, change: text === undefined ? "deleted" : change };
}

/**
 * Derived values are the JSON of what they are in memory, resources that of the datastore. What else is stored, and
 * resources with numbers that JSON readers would round, travel as the stored text, quoted.
 */
function valueText(key: Key, value: ValueOf<Key>): string | undefined {
  try {
    if (!isStoredKey(key)) return JSON.stringify(value);
    const text = encodeValue(key, value as ValueOf<StoredKey>);
    return key.type === "resource" && !/\d{16}/.test(text) ? text : JSON.stringify(text);
  } catch {
    return undefined;
  }
}

/** Where a client stands when it has read so far. */
export interface CrumbHead {
  readonly sequence: number;
  readonly status: SyncStatus;
  /** When it happened, by the server's clock, in milliseconds. */
  readonly time: number;
}
const HEAD_SIZE = 17;

export function encodeHead({ sequence, status, time }: CrumbHead): Buffer {
  const bytes = Buffer.allocUnsafe(HEAD_SIZE);
  bytes.writeDoubleBE(sequence, 0);
  bytes.writeUInt8(statusNumber(status), 8);
  bytes.writeDoubleBE(time, 9);
  return bytes;
}

export function decodeHead(payload: Buffer): { readonly head: CrumbHead; readonly rest: Buffer } {
  if (payload.length < HEAD_SIZE) throw new ProtocolError("a head is cut short");
  const head = {
    sequence: payload.readDoubleBE(0),
    status: statusOf(payload[8] ?? 255),
    time: payload.readDoubleBE(9),
  };
  return { head, rest: payload.subarray(HEAD_SIZE) };
}

export function encodeRecords(updates: readonly TextUpdate[]): Buffer {
  let text = "[";
  for (const { path, value, revision, change } of updates) {
    if (text.length > 1) text += ",";
    const number = change === "new" ? 0 : change === "updated" ? 1 : 2;
    text += `${number},${JSON.stringify(path)},${JSON.stringify(revision)},${value ?? "null"}`;
  }
  return Buffer.from(`${text}]`);
}

export interface Decoded {
  readonly updates: SyncerUpdate[];
  /** The paths of their keys, in the same order. */
  readonly paths: string[];
}

export interface DecodeOptions {
  /** Keys that the consumer does not need are skipped. */
  readonly wants?: ((key: Key) => boolean) | undefined;
  /** Called for a key that this program does not know; its record is skipped. */
  readonly onUnknown?: (path: string) => void;
  /** Called for a value that cannot be decoded; it counts as gone. */
  readonly onUnreadable?: (path: string, reason: string) => void;
}

export function decodeRecords(payload: Buffer, options: DecodeOptions = {}): Decoded {
  const items = parseItems(payload);
  const updates: SyncerUpdate[] = [];
  const paths: string[] = [];
  for (let i = 0; i < items.length; i += 4) {
    const path = items[i + 1];
    const revision = items[i + 2];
    const change = CHANGES[items[i] as number];
    if (change === undefined || typeof path !== "string" || typeof revision !== "string")
      throw new ProtocolError("a record is not change, key, revision, value");
    const key = parseKeyPath(path);
    if (key === undefined) options.onUnknown?.(path);
    else if (options.wants?.(key) ?? true) {
      const onUnreadable = (reason: string) => options.onUnreadable?.(path, reason);
      const value = change === "deleted" ? undefined : readValue(key, items[i + 3], onUnreadable);
      updates.push(makeUpdate(key, value, revision, change));
      paths.push(path);
    }
  }
  return { updates, paths };
}

function parseItems(payload: Buffer): readonly unknown[] {
  try {
    const items: unknown = payload.length === 0 ? [] : JSON.parse(payload.toString());
    if (Array.isArray(items) && items.length % 4 === 0) return items;
  } catch {
    // told below
  }
  throw new ProtocolError("records are no JSON array of fours");
}

/** Objects of one shape: a client makes one for every key of the cluster. */
function makeUpdate(key: Key, value: unknown, revision: string, change: SyncerUpdate["change"]): SyncerUpdate {
  if (value === undefined) return { key, value, change: "deleted" } as SyncerUpdate;
  if (revision === "") return { key, value, change } as SyncerUpdate;
  return { key, value, change, revision } as SyncerUpdate;
}

function readValue(key: Key, json: unknown, onUnreadable: (reason: string) => void): unknown {
  if (json === null) return undefined;
  try {
    return isStoredKey(key) ? readStored(key, json) : readDerived(key, json);
  } catch (error) {
    if (!(error instanceof UnreadableValue || isValueError(error))) throw error;
    onUnreadable(error.message);
    return undefined;
  }
}

function readStored(key: StoredKey, json: unknown): unknown {
  if (typeof json === "string") return decodeValue(key, json);
  if (key.type === "resource" && typeof json === "object") return decodeResource(key, json as JsonObject);
  throw new UnreadableValue(`a value of type ${typeof json} where the stored text is wanted`);
}

function readDerived(key: Key, json: unknown): unknown {
  if (key.type === "policy") return decodePolicy(json);
  return key.type === "profileRules" ? decodeProfileRules(json) : json;
}
