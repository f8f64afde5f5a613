// Encodes and decodes the messages of etcd's v3 API in protobuf. Field numbers are those of the public definition:
// https://etcd.io/docs/v3.4/dev-guide/api_reference_v3/
import { AttemptFailed } from "../../lib/http/attempt-failed.ts";
import { ProtoError, ProtoReader, ProtoWriter } from "../../lib/encoding/protobuf.ts";

export interface EtcdRow {
  readonly path: string;
  readonly value: string;
  readonly createRevision: number;
  readonly revision: number;
}
export interface RangeRequest {
  readonly key: string;
  /** End of the range, exclusive; undefined = exactly `key`. */
  readonly end?: string;
  readonly limit?: number;
  /** 0 = the newest revision. */
  readonly revision?: number;
}
export interface RangeResponse {
  readonly rows: readonly EtcdRow[];
  readonly more: boolean;
  readonly revision: number;
}
export interface PutRequest {
  readonly key: string;
  readonly value: string;
  readonly lease?: bigint;
}
export interface DeleteRequest {
  readonly key: string;
  readonly end?: string;
}
export type Operation =
  | { readonly type: "range"; readonly range: RangeRequest }
  | { readonly type: "put"; readonly put: PutRequest }
  | { readonly type: "delete"; readonly delete: DeleteRequest };

/** A condition on one key. A key that does not exist has 0 in both fields. */
export interface Compare {
  readonly key: string;
  readonly field: "version" | "mod";
  readonly equals: number;
}

/** Runs `success` if all conditions hold, else `failure`; all operations have one revision. */
export interface TxnRequest {
  readonly compare: readonly Compare[];
  readonly success: readonly Operation[];
  readonly failure: readonly Operation[];
}
export interface TxnResponse {
  readonly succeeded: boolean;
  readonly revision: number;
  /** The rows that each operation read or deleted, in order. */
  readonly rows: readonly (readonly EtcdRow[])[];
  /** The answer to an earlier attempt was lost: it may have been executed. */
  readonly hadLostAnswer?: boolean;
}
export interface WatchCreate {
  readonly key: string;
  readonly end?: string;
  readonly startRevision: number;
  readonly withPrevious?: boolean;
}
export interface EtcdEvent {
  readonly type: "put" | "delete";
  readonly row: EtcdRow;
  readonly previous?: EtcdRow;
}
export interface WatchResponse {
  readonly revision: number;
  readonly created: boolean;
  readonly canceled: boolean;
  /** If not 0, the start revision has been compacted, and this is the oldest remaining revision. */
  readonly compactRevision: number;
  readonly cancelReason: string;
  readonly events: readonly EtcdEvent[];
}

/** A unary gRPC method: its path, and the encoding of its messages. */
export interface Method<Q, S> {
  readonly path: string;
  readonly encode: (request: Q) => Buffer;
  readonly decode: (bytes: Buffer) => S;
}

export const RANGE: Method<RangeRequest, RangeResponse> = {
  path: "/etcdserverpb.KV/Range",
  encode: (request) => encode((w) => writeRange(w, request)),
  decode: (bytes) => readRange(new ProtoReader(bytes)),
};
export const TXN: Method<TxnRequest, TxnResponse> = {
  path: "/etcdserverpb.KV/Txn",
  encode: (request) => encode((w) => writeTxn(w, request)),
  decode: (bytes) => readTxn(new ProtoReader(bytes)),
};
export const COMPACT: Method<{ readonly revision: number }, void> = {
  path: "/etcdserverpb.KV/Compact",
  encode: (request) => encode((w) => w.int(1, request.revision)),
  decode: () => undefined,
};
export const LEASE_GRANT: Method<{ readonly ttlSeconds: number }, bigint> = {
  path: "/etcdserverpb.Lease/LeaseGrant",
  encode: (request) => encode((w) => w.int(1, request.ttlSeconds)),
  decode: (bytes) => {
    const reader = new ProtoReader(bytes);
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 2) return reader.bigint();
      reader.skip();
    }
    return 0n;
  },
};
export const AUTHENTICATE: Method<{ readonly username: string; readonly password: string }, string> = {
  path: "/etcdserverpb.Auth/Authenticate",
  encode: (request) =>
    encode((w) => {
      w.string(1, request.username);
      w.string(2, request.password);
    }),
  decode: (bytes) => {
    const reader = new ProtoReader(bytes);
    for (let field = reader.next(); field !== 0; field = reader.next()) {
      if (field === 2) return reader.text();
      reader.skip();
    }
    return "";
  },
};

export const WATCH_PATH = "/etcdserverpb.Watch/Watch";
export type WatchRequest = { readonly create: WatchCreate } | { readonly progress: true };

export function encodeWatchRequest(request: WatchRequest): Buffer {
  return encode((w) => {
    if ("progress" in request) return w.message(3, () => {});
    const { key, end, startRevision, withPrevious = true } = request.create;
    w.message(1, () => {
      w.string(1, key);
      w.string(2, end);
      w.int(3, startRevision);
      w.bool(4, true); // progress_notify
      w.bool(6, withPrevious); // prev_kv
    });
  });
}

export function decodeWatchResponse(bytes: Buffer): WatchResponse {
  const reader = new ProtoReader(bytes);
  let [revision, created, canceled, compactRevision, cancelReason] = [0, false, false, 0, ""];
  const events: EtcdEvent[] = [];
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) revision = readHeader(reader.message());
    else if (field === 3) created = reader.boolean();
    else if (field === 4) canceled = reader.boolean();
    else if (field === 5) compactRevision = reader.number();
    else if (field === 6) cancelReason = reader.text();
    else if (field === 11) events.push(readEvent(reader.message()));
    else reader.skip();
  }
  return { revision, created, canceled, compactRevision, cancelReason, events };
}

/** Decodes an answer. An invalid answer is a failed attempt, so that another endpoint is tried. */
export function decodeAnswer<S>(decode: (bytes: Buffer) => S, bytes: Buffer): S {
  try {
    return decode(bytes);
  } catch (error) {
    if (!(error instanceof ProtoError)) throw error;
    throw new AttemptFailed(`the answer cannot be decoded: ${error.message}`, true, { cause: error });
  }
}

function encode(write: (w: ProtoWriter) => void): Buffer {
  const w = new ProtoWriter();
  write(w);
  return Buffer.from(w.finish());
}

function writeRange(w: ProtoWriter, request: RangeRequest): void {
  w.string(1, request.key);
  w.string(2, request.end);
  w.int(3, request.limit);
  w.int(4, request.revision);
}

function writeTxn(w: ProtoWriter, request: TxnRequest): void {
  for (const compare of request.compare)
    w.message(1, () => {
      const { key, field, equals } = compare;
      w.int(2, field === "mod" ? 2 : 0);
      w.string(3, key);
      // An expected 0 must be encoded: a comparison without an operand matches nothing.
      w.intAlways(field === "mod" ? 6 : 4, equals);
    });
  w.messages(2, request.success, (operation) => writeOperation(w, operation));
  w.messages(3, request.failure, (operation) => writeOperation(w, operation));
}

function writeOperation(w: ProtoWriter, operation: Operation): void {
  if (operation.type === "range") w.message(1, () => writeRange(w, operation.range));
  else if (operation.type === "put") {
    const { key, value, lease } = operation.put;
    w.message(2, () => {
      w.string(1, key);
      w.string(2, value);
      if (lease !== undefined) w.intAlways(3, lease);
    });
  } else {
    const { key, end } = operation.delete;
    w.message(3, () => {
      w.string(1, key);
      w.string(2, end);
      w.bool(3, true); // prev_kv
    });
  }
}

function readHeader(reader: ProtoReader): number {
  let revision = 0;
  for (let field = reader.next(); field !== 0; field = reader.next())
    if (field === 3) revision = reader.number();
    else reader.skip();
  return revision;
}

function readRow(reader: ProtoReader): EtcdRow {
  let [path, value, createRevision, revision] = ["", "", 0, 0];
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) path = reader.text();
    else if (field === 2) createRevision = reader.number();
    else if (field === 3) revision = reader.number();
    else if (field === 5) value = reader.text();
    else reader.skip();
  }
  return { path, value, createRevision, revision };
}

function readRange(reader: ProtoReader): RangeResponse {
  let [revision, more] = [0, false];
  const rows: EtcdRow[] = [];
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) revision = readHeader(reader.message());
    else if (field === 2) rows.push(readRow(reader.message()));
    else if (field === 3) more = reader.boolean();
    else reader.skip();
  }
  return { rows, more, revision };
}

function readTxn(reader: ProtoReader): TxnResponse {
  let [revision, succeeded] = [0, false];
  const rows: EtcdRow[][] = [];
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) revision = readHeader(reader.message());
    else if (field === 2) succeeded = reader.boolean();
    else if (field === 3) rows.push(readOperation(reader.message()));
    else reader.skip();
  }
  return { succeeded, revision, rows };
}

/** Returns the rows of one operation's answer: read (range, field 2), replaced (put, 2) or deleted (delete, 3). */
function readOperation(reader: ProtoReader): EtcdRow[] {
  const rows: EtcdRow[] = [];
  for (let type = reader.next(); type !== 0; type = reader.next()) {
    const answer = reader.message();
    const rowField = type === 3 ? 3 : 2;
    for (let field = answer.next(); field !== 0; field = answer.next())
      if (field === rowField) rows.push(readRow(answer.message()));
      else answer.skip();
  }
  return rows;
}

function readEvent(reader: ProtoReader): EtcdEvent {
  let type: EtcdEvent["type"] = "put";
  let row: EtcdRow | undefined;
  let previous: EtcdRow | undefined;
  for (let field = reader.next(); field !== 0; field = reader.next()) {
    if (field === 1) type = reader.number() === 1 ? "delete" : "put";
    else if (field === 2) row = readRow(reader.message());
    else if (field === 3) previous = readRow(reader.message());
    else reader.skip();
  }
  if (row === undefined) throw new ProtoError("etcd event without a key");
  return { type, row, previous };
}
