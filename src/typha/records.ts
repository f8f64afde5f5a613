// Encodes and decodes updates: one flat JSON array per frame, with four items per update: change, key, revision, value. One
// call parses a thousand updates; parsing each separately takes twice as long.
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

/** An update with key and value as text. The value is encoded once, for any number of clients. */
export interface TextUpdate {
  readonly path: string;
  /** Undefined = deleted. */
  readonly value: string | undefined;
  readonly revision: string;
  readonly change: SyncerUpdate["change"];
}

const CHANGES: readonly SyncerUpdate["change"][] = ["new", "updated", "deleted"];

/** A value that cannot be encoded counts as deleted. */
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

/** The state that a client has after a crumb or group. */
export interface CrumbHead {
  readonly sequence: number;
  readonly status: SyncStatus;
  /** Time of the change on the server's clock, in milliseconds. */
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
  if (payload.length < HEAD_SIZE) throw new ProtocolError("message is shorter than its header");
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
  readonly accepts?: ((key: Key) => boolean) | undefined;
  /** Called for a key that this program does not know; its record is skipped. */
  readonly onUnknown?: (path: string) => void;
  /** Called for a value that cannot be decoded; it counts as deleted. */
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
      throw new ProtocolError("invalid record: want change, key, revision, value");
    const key = parseKeyPath(path);
    if (key === undefined) options.onUnknown?.(path);
    else if (options.accepts?.(key) ?? true) {
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
    // reported below
  }
  throw new ProtocolError("records are not a JSON array with four items per update");
}

/** All objects have the same shape, which saves memory: a client creates one for every key of the cluster. */
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
  throw new UnreadableValue(`value of type ${typeof json}: want the stored text`);
}

function readDerived(key: Key, json: unknown): unknown {
  if (key.type === "policy") return decodePolicy(json);
  return key.type === "profileRules" ? decodeProfileRules(json) : json;
}
