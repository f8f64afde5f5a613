// Updates as they travel: one flat JSON array per frame, four items each: change, key, revision, value. One call parses
// a thousand of them; parsing each by itself costs a client twice the time.
import type { SyncerUpdate, SyncStatus } from "../datastore/index.ts";
import {
  decodeResource,
  decodeValue,
  encodeValue,
  isStoredKey,
  type Key,
  keyPath,
  parseKeyPath,
  type StoredKey,
  UnreadableValue,
  type ValueOf,
} from "../model/index.ts";
import type { JsonObject } from "../lib/lossless-json.ts";
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

/** A key this program does not know is told to `onUnknown` and passed over; a value it cannot read counts as gone. */
export function decodeRecords(
  payload: Buffer,
  wants: (key: Key) => boolean = () => true,
  onUnknown: (path: string) => void = () => {},
): Decoded {
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
    if (key === undefined) onUnknown(path);
    else if (wants(key)) {
      updates.push(makeUpdate(key, change === "deleted" ? undefined : readValue(key, items[i + 3]), revision, change));
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

function readValue(key: Key, json: unknown): unknown {
  if (json === null) return undefined;
  if (!isStoredKey(key)) return json;
  try {
    if (typeof json === "string") return decodeValue(key, json);
    return key.type === "resource" && typeof json === "object" ? decodeResource(key, json as JsonObject) : undefined;
  } catch (error) {
    if (error instanceof UnreadableValue) return undefined;
    throw error;
  }
}
