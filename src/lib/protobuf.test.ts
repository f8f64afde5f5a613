import { expect, test } from "bun:test";
import fc from "fast-check";
import { ProtoError, ProtoWriter, readFields } from "./protobuf.ts";

test("numbers, texts and nested messages are read as they were written", () =>
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
        const [outer] = [...readFields(w.finish())];
        const inner = [...outer!.fields()];
        expect(inner.find((field) => field.number === 2)?.int()).toBe(number);
        expect(inner.find((field) => field.number === 300)?.string() ?? "").toBe(text);
        const nested = inner.find((field) => field.number === 3);
        expect([...nested!.fields()].map((field) => field.string())).toEqual(list);
      },
    ),
  ));

test("defaults are left out, and a map stands in the order of its keys", () => {
  const w = new ProtoWriter();
  w.string(1, "");
  w.int(2, 0);
  w.bool(3, false);
  w.double(4, 0);
  expect(w.finish()).toHaveLength(0);
  w.stringMap(5, { b: "2", a: "1" });
  expect([...readFields(w.finish())].map((field) => [...field.fields()].map((part) => part.string()))).toEqual([
    ["a", "1"],
    ["b", "2"],
  ]);
});

test("bytes that are no message are refused, whatever they are", () =>
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 40 }), (bytes) => {
      try {
        for (const field of readFields(bytes)) void field.number;
      } catch (error) {
        expect(error).toBeInstanceOf(ProtoError);
      }
    }),
  ));
