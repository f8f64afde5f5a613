// Encodes and decodes the frames of Typha's wire protocol (docs/typha-protocol.md): a preface, then frames of
//   length (4 bytes; of type and payload) · type (1 byte; top bit = compressed payload) · payload
import { zstdDecompressSync } from "node:zlib";
import type { SyncerName, SyncStatus } from "../datastore/index.ts";

/** The first bytes that a client sends. Clients of another protocol are rejected by them. */
export const PREFACE = Buffer.from("calico-typha/1\n");
export const PROTOCOL_VERSION = 1;

export const FRAME = {
  clientHello: 1,
  serverHello: 2,
  /** Starts a group of updates, up to `end`. */
  begin: 3,
  updates: 4,
  /** A group of its own, unless between `begin` and `end`. */
  crumb: 5,
  end: 6,
  ping: 7,
  pong: 8,
  goodbye: 9,
} as const;
export type FrameType = (typeof FRAME)[keyof typeof FRAME];
const COMPRESSED = 0x80;
const HEADER = 5;

/** Limit for frames from clients. */
export const MAX_CLIENT_FRAME = 1 << 20;
/** Limit for frames from servers, both compressed and decompressed. */
export const MAX_SERVER_FRAME = 64 << 20;

/** Smaller payloads are not compressed. */
const MIN_COMPRESSED_SIZE = 1024;

/** Optional capabilities. `zstd`: the peer reads compressed frames; `policy-kinds`: it supports policies by kind. */
export type Feature = "zstd" | "policy-kinds";
export const FEATURES: readonly Feature[] = ["zstd", "policy-kinds"];

export interface ClientHello {
  readonly version: number;
  readonly hostname: string;
  /** Description of the client, for logs. */
  readonly info: string;
  readonly clientVersion: string;
  readonly syncer: SyncerName;
  readonly features: readonly string[];
}

export const SYNCER_NAMES: readonly SyncerName[] = ["felix", "bgp", "tunnel-ip-allocation", "node-status"];
export const isSyncerName = (text: unknown): text is SyncerName => SYNCER_NAMES.some((name) => name === text);

const STATUSES: readonly SyncStatus[] = ["wait-for-ready", "resync", "in-sync"];
export const statusNumber = (status: SyncStatus): number => STATUSES.indexOf(status);
export function statusOf(number: number): SyncStatus {
  const status = STATUSES[number];
  if (status === undefined) throw new ProtocolError(`unknown sync status ${number}`);
  return status;
}

/** The peer violated the protocol. */
export class ProtocolError extends Error {
  override readonly name = "ProtocolError";
}

export interface Frame {
  readonly type: number;
  readonly payload: Buffer;
}

export function frameBytes(type: FrameType, payload: Uint8Array, compress = false): Buffer {
  const packed = compress && payload.length >= MIN_COMPRESSED_SIZE ? Bun.zstdCompressSync(payload) : undefined;
  const isSmaller = packed !== undefined && packed.length < payload.length;
  const body = isSmaller ? packed : payload;
  const frame = Buffer.allocUnsafe(HEADER + body.length);
  frame.writeUInt32BE(1 + body.length, 0);
  frame[4] = type | (isSmaller ? COMPRESSED : 0);
  frame.set(body, HEADER);
  return frame;
}

export const jsonFrame = (type: FrameType, message: unknown): Buffer =>
  frameBytes(type, Buffer.from(JSON.stringify(message)));

/** Splits a stream of bytes into frames. */
export class FrameReader {
  readonly #maxFrame: number;
  readonly #allowCompressed: boolean;
  #chunks: Buffer[] = [];
  #size = 0;

  constructor(options: { readonly maxFrame: number; readonly allowCompressed: boolean }) {
    this.#maxFrame = options.maxFrame;
    this.#allowCompressed = options.allowCompressed;
  }

  push(chunk: Buffer): void {
    this.#chunks.push(chunk);
    this.#size += chunk.length;
  }

  /** Removes and returns the first `size` bytes; undefined if fewer have arrived. */
  take(size: number): Buffer | undefined {
    if (this.#size < size) return undefined;
    const bytes = this.#join();
    this.#chunks = bytes.length > size ? [bytes.subarray(size)] : [];
    this.#size -= size;
    return bytes.subarray(0, size);
  }

  /** Returns the next complete frame. Throws for a frame that is too large, before its payload arrives. */
  next(maxFrame = this.#maxFrame): Frame | undefined {
    if (this.#size < HEADER) return undefined;
    const head = this.#chunks[0];
    const bytes = head !== undefined && head.length >= HEADER ? head : this.#join();
    const length = bytes.readUInt32BE(0);
    if (length < 1 || length > maxFrame) throw new ProtocolError(`frame of ${length} bytes: want 1 to ${maxFrame}`);
    const frame = this.take(4 + length);
    if (frame === undefined) return undefined;
    const type = frame[4] ?? 0;
    const payload = frame.subarray(HEADER);
    if ((type & COMPRESSED) === 0) return { type, payload };
    if (!this.#allowCompressed)
      throw new ProtocolError("compressed frame received, but compression was not negotiated");
    return { type: type & ~COMPRESSED, payload: this.#unpack(payload) };
  }

  #unpack(payload: Buffer): Buffer {
    try {
      // Bun's one-shot call creates no stream object and is twice as fast, but has no size limit, and it decompresses all
      // Zstandard frames in the payload. It is used only for a single frame whose header contains its size.
      const size = zstdContentSize(payload);
      if (size === undefined || !isOneZstdFrame(payload))
        return zstdDecompressSync(payload, { maxOutputLength: this.#maxFrame });
      if (size > this.#maxFrame)
        throw new ProtocolError(`compressed frame of ${size} decompressed bytes: want at most ${this.#maxFrame}`);
      return Bun.zstdDecompressSync(payload);
    } catch (cause) {
      throw new ProtocolError("invalid compressed frame", { cause });
    }
  }

  #join(): Buffer {
    if (this.#chunks.length > 1) this.#chunks = [Buffer.concat(this.#chunks)];
    return this.#chunks[0] ?? Buffer.alloc(0);
  }
}

const ZSTD_MAGIC = 0xfd2fb528;

/** Returns the content size in the header of a Zstandard frame (RFC 8878, 3.1.1.1); undefined if it has none. */
export function zstdContentSize(frame: Buffer): number | undefined {
  if (frame.length < 14 || frame.readUInt32LE(0) !== ZSTD_MAGIC) return undefined;
  const descriptor = frame[4] ?? 0;
  const isSingleSegment = (descriptor & 0x20) !== 0;
  const at = 5 + (isSingleSegment ? 0 : 1) + ([0, 1, 2, 4][descriptor & 3] ?? 0);
  switch (descriptor >> 6) {
    case 0:
      return isSingleSegment ? frame[at] : undefined;
    case 1:
      return at + 2 <= frame.length ? frame.readUInt16LE(at) + 256 : undefined;
    case 2:
      return at + 4 <= frame.length ? frame.readUInt32LE(at) : undefined;
    default:
      return at + 8 <= frame.length ? Number(frame.readBigUInt64LE(at)) : undefined;
  }
}

/** Returns whether the bytes end where the first Zstandard frame ends (RFC 8878, 3.1.1). */
export function isOneZstdFrame(bytes: Buffer): boolean {
  const descriptor = bytes[4] ?? 0;
  const isSingleSegment = (descriptor & 0x20) !== 0;
  const sizeBytes = [isSingleSegment ? 1 : 0, 2, 4, 8][descriptor >> 6] ?? 0;
  let at = 5 + (isSingleSegment ? 0 : 1) + ([0, 1, 2, 4][descriptor & 3] ?? 0) + sizeBytes;
  for (let isLast = false; !isLast; ) {
    if (at + 3 > bytes.length) return false;
    const header = bytes.readUIntLE(at, 3);
    isLast = (header & 1) !== 0;
    const isRepeatedByte = ((header >> 1) & 3) === 1;
    at += 3 + (isRepeatedByte ? 1 : header >> 3);
  }
  const hasChecksum = (descriptor & 4) !== 0;
  return at + (hasChecksum ? 4 : 0) === bytes.length;
}

export function parseJson(payload: Buffer): Readonly<Record<string, unknown>> {
  try {
    const message: unknown = JSON.parse(payload.toString());
    if (typeof message === "object" && message !== null && !Array.isArray(message))
      return message as Record<string, unknown>;
  } catch {
    // reported below
  }
  throw new ProtocolError("message is not a JSON object");
}
