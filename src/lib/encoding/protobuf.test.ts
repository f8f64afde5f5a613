import { expect, test } from "bun:test";
import fc from "fast-check";
import { ProtoError, ProtoReader, ProtoWriter } from "./protobuf.ts";
import { bytesOf, rawFields } from "../testing/proto-fields.ts";

test("numbers, strings and nested messages are read back as they were written", () =>
  fc.assert(
    fc.property(
      fc.nat({ max: Number.MAX_SAFE_INTEGER }),
      fc.string({ unit: "grapheme" }),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
      fc.array(fc.string(), { maxLength: 20 }),
      fc.double({ noNaN: true }).map((value) => value + 0), // 0 stands for -0, which is written as absent
      (number, text, big, parts, double) => {
        const w = new ProtoWriter();
        w.intAlways(1, number);
        w.string(2, text);
        w.intAlways(300, big);
        w.message(4, () => {
          for (const part of parts) w.message(1, () => w.string(1, part));
        });
        w.double(5, double);
        const reader = ProtoReader.of(w.finish());
        const seen: { number?: number; text: string; big?: bigint; parts: string[]; double: number } = {
          text: "",
          parts: [],
          double: 0,
        };
        for (let field = reader.next(); field !== 0; field = reader.next()) {
          if (field === 1) seen.number = reader.number();
          else if (field === 2) seen.text = reader.text();
          else if (field === 5) seen.double = reader.double();
          else if (field === 300) seen.big = reader.bigint();
          else {
            const list = reader.message();
            while (list.next() !== 0) {
              const item = list.message();
              seen.parts.push(item.next() === 1 ? item.text() : "");
            }
          }
        }
        expect(seen).toEqual({ number, text, big, parts, double });
      },
    ),
  ));

test("fields are listed in the order in which they were written, without a schema", () =>
  fc.assert(
    fc.property(
      fc.integer(),
      fc.string({ unit: "grapheme" }),
      fc.array(fc.string(), { maxLength: 50 }),
      (number, text, list) => {
        const w = new ProtoWriter();
        w.message(1, () => {
          w.intAlways(2, number);
          w.string(300, text);
          w.message(3, () => w.strings(4, list));
        });
        const [outer] = rawFields(w.finish());
        const inner = rawFields(bytesOf(outer));
        expect(inner.find((field) => field.number === 2)?.value).toBe(number);
        expect(inner.find((field) => field.number === 300)?.value.toString() ?? "").toBe(text);
        const nested = inner.find((field) => field.number === 3);
        expect(rawFields(bytesOf(nested)).map((field) => bytesOf(field).toString())).toEqual(list);
      },
    ),
  ));

test("defaults are omitted, and maps are sorted by key", () => {
  const w = new ProtoWriter();
  w.string(1, "");
  w.int(2, 0);
  w.bool(3, false);
  w.double(4, 0);
  expect(w.finish()).toHaveLength(0);
  w.stringMap(5, { b: "2", a: "1" });
  expect(rawFields(w.finish()).map((field) => rawFields(bytesOf(field)).map((part) => part.value.toString()))).toEqual([
    ["a", "1"],
    ["b", "2"],
  ]);
});

test("arbitrary bytes are parsed or rejected with a ProtoError", () =>
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      try {
        rawFields(bytes);
      } catch (error) {
        expect(error).toBeInstanceOf(ProtoError);
      }
    }),
  ));

const rejected: readonly {
  readonly name: string;
  readonly bytes: number[];
  readonly read: (r: ProtoReader) => unknown;
}[] = [
  { name: "a number read as a string", bytes: [0x08, 1], read: (r) => r.text() },
  { name: "a number read as a message", bytes: [0x08, 1], read: (r) => r.message() },
  { name: "a number read as a double", bytes: [0x08, 1], read: (r) => r.double() },
  { name: "a string read as a number", bytes: [0x0a, 1, 0x61], read: (r) => r.number() },
  { name: "a string read as 64 bits", bytes: [0x0a, 1, 0x61], read: (r) => r.bigint() },
  { name: "a string that extends past the end", bytes: [0x0a, 2, 0x61], read: (r) => r.text() },
  { name: "a double that extends past the end", bytes: [0x09, 0, 0, 0], read: (r) => r.double() },
  { name: "a skipped double that extends past the end", bytes: [0x09, 0, 0, 0], read: (r) => r.skip() },
  { name: "a skipped field of an unknown wire type", bytes: [0x0b, 0], read: (r) => r.skip() },
  { name: "field number 0", bytes: [0x00, 0], read: () => {} },
  { name: "a field number of more than 29 bits", bytes: [0x80, 0x80, 0x80, 0x80, 0x10, 0], read: () => {} },
];
for (const { name, bytes, read } of rejected)
  test(`a reader rejects ${name}`, () => {
    const reader = new ProtoReader(Buffer.from(bytes));
    expect(() => {
      reader.next();
      read(reader);
    }).toThrow(ProtoError);
  });
