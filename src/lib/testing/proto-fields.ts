// The fields of an encoded message without its schema, for tests.
import { ProtoReader } from "../protobuf.ts";

export interface RawField {
  readonly number: number;
  /** Bytes of a text, of bytes or of a message; otherwise a number. Fixed-width numbers are read as 0. */
  readonly value: Buffer | number;
}

export function rawFields(bytes: Uint8Array): RawField[] {
  const reader = ProtoReader.of(bytes);
  const fields: RawField[] = [];
  for (let number = reader.next(); number !== 0; number = reader.next())
    fields.push({ number, value: valueOf(reader) });
  return fields;
}

function valueOf(reader: ProtoReader): RawField["value"] {
  if (reader.hasLength) return reader.bytes();
  if (reader.isVarint) return Number(reader.bigint());
  reader.passOver();
  return 0;
}

/** @throws if the field holds a number */
export function bytesOf(field: RawField | undefined): Buffer {
  if (field === undefined || typeof field.value === "number") throw new Error(`field ${field?.number} holds no bytes`);
  return field.value;
}
