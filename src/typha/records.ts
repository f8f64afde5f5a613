// Updates as they travel: a byte that says what happened, then key, revision and value, each with its length before it.
// Values of stored keys are the JSON of the datastore; derived ones are the JSON of what they are in memory.
import type { SyncerUpdate, SyncStatus } from "../datastore/index.ts";
import {
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
import { ProtocolError, statusNumber, statusOf } from "./protocol.ts";

/** An update with key and value as text: serialised once, however many clients there are. */
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

function valueText(key: Key, value: ValueOf<Key>): string | undefined {
  try {
    return isStoredKey(key) ? encodeValue(key, value as ValueOf<StoredKey>) : JSON.stringify(value);
  } catch {
    return undefined;
  }
}

/** @returns nothing for a key this program does not know; a value it cannot read counts as gone */
export function syncerUpdate({ path, value, revision, change }: TextUpdate): SyncerUpdate | undefined {
  const key = parseKeyPath(path);
  if (key === undefined) return undefined;
  const gone = { key, value: undefined, change: "deleted" } as SyncerUpdate;
  if (value === undefined) return gone;
  try {
    const decoded: unknown = isStoredKey(key) ? decodeValue(key, value) : JSON.parse(value);
    return { key, value: decoded, change, ...(revision !== "" && { revision }) } as SyncerUpdate;
  } catch (error) {
    if (error instanceof UnreadableValue || error instanceof SyntaxError) return gone;
    throw error;
  }
}

/** Where a client stands when it has read so far. */
export interface CrumbHead {
  readonly sequence: number;
  readonly status: SyncStatus;
  /** When it happened, by the server's clock, in milliseconds. */
  readonly time: number;
}

/** One growing buffer, used again for frame after frame. */
export class RecordWriter {
  #buffer = Buffer.allocUnsafe(64 << 10);
  #at = 0;

  reset(): this {
    this.#at = 0;
    return this;
  }

  head({ sequence, status, time }: CrumbHead): this {
    this.#reserve(17);
    this.#at = this.#buffer.writeDoubleBE(sequence, this.#at);
    this.#at = this.#buffer.writeUInt8(statusNumber(status), this.#at);
    this.#at = this.#buffer.writeDoubleBE(time, this.#at);
    return this;
  }

  record(update: TextUpdate, change = update.change): this {
    this.#reserve(1);
    this.#buffer[this.#at++] = CHANGES.indexOf(change);
    this.#text(update.path);
    this.#text(update.revision);
    if (change !== "deleted") this.#text(update.value ?? "");
    return this;
  }

  /** What was written, valid until the next reset. */
  view(): Uint8Array {
    return this.#buffer.subarray(0, this.#at);
  }

  #text(text: string): void {
    // At most three bytes for each UTF-16 unit; the length is written once it is known.
    this.#reserve(4 + text.length * 3);
    const size = this.#buffer.write(text, this.#at + 4);
    this.#buffer.writeUInt32BE(size, this.#at);
    this.#at += 4 + size;
  }

  #reserve(size: number): void {
    if (this.#at + size <= this.#buffer.length) return;
    const larger = Buffer.allocUnsafe(Math.max(this.#buffer.length * 2, this.#at + size));
    this.#buffer.copy(larger, 0, 0, this.#at);
    this.#buffer = larger;
  }
}

export class RecordReader {
  readonly #buffer: Buffer;
  #at = 0;

  constructor(buffer: Buffer) {
    this.#buffer = buffer;
  }

  head(): CrumbHead {
    this.#need(17);
    const sequence = this.#buffer.readDoubleBE(this.#at);
    const status = statusOf(this.#buffer[this.#at + 8] ?? 255);
    const time = this.#buffer.readDoubleBE(this.#at + 9);
    this.#at += 17;
    return { sequence, status, time };
  }

  *records(): Generator<TextUpdate> {
    while (this.#at < this.#buffer.length) {
      const change = CHANGES[this.#buffer[this.#at++] ?? 255];
      if (change === undefined) throw new ProtocolError("unknown kind of change");
      const path = this.#text();
      const revision = this.#text();
      const value = change === "deleted" ? undefined : this.#text();
      yield { path, revision, value, change };
    }
  }

  #text(): string {
    this.#need(4);
    const size = this.#buffer.readUInt32BE(this.#at);
    this.#at += 4;
    this.#need(size);
    const text = this.#buffer.toString("utf8", this.#at, this.#at + size);
    this.#at += size;
    return text;
  }

  #need(size: number): void {
    if (this.#at + size > this.#buffer.length) throw new ProtocolError("a record runs past its frame");
  }
}
