// Lists the fields of an encoded Protocol Buffers message without its schema, for tests.
import { ProtoReader } from "../encoding/protobuf.ts";

export interface RawField {
  readonly number: number;
  /** The bytes of a string, bytes or message field; otherwise a number. Fixed-width numbers are read as 0. */
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
  reader.skip();
  return 0;
}

/** @throws Error if the field is a number */
export function bytesOf(field: RawField | undefined): Buffer {
  if (field === undefined || typeof field.value === "number") throw new Error(`field ${field?.number} has no bytes`);
  return field.value;
}
