import { expect, test } from "bun:test";
import fc from "fast-check";
import { decodeWatchResponse, encodeWatchRequest, LEASE_GRANT, RANGE, TXN } from "./messages.ts";
import { ProtoError, ProtoWriter } from "../../lib/protobuf.ts";
import { ProtoReader } from "./proto-reader.ts";

test("numbers, texts and nested messages come back as they went", () =>
  fc.assert(
    fc.property(
      fc.nat({ max: Number.MAX_SAFE_INTEGER }),
      fc.string({ unit: "grapheme" }),
      fc.bigInt({ min: -(2n ** 63n), max: 2n ** 63n - 1n }),
      fc.array(fc.string(), { maxLength: 20 }),
      (number, text, big, parts) => {
        const w = new ProtoWriter();
        w.intAlways(1, number);
        w.string(2, text);
        w.intAlways(300, big);
        w.message(4, () => {
          for (const part of parts) w.message(1, () => w.string(1, part));
        });
        const bytes = Buffer.from(w.finish());
        const reader = new ProtoReader(bytes);
        const seen: { number?: number; text: string; big?: bigint; parts: string[] } = { text: "", parts: [] };
        for (let field = reader.next(); field !== 0; field = reader.next()) {
          if (field === 1) seen.number = reader.number();
          else if (field === 2) seen.text = reader.text();
          else if (field === 300) seen.big = reader.bigint();
          else {
            const list = reader.message();
            while (list.next() !== 0) {
              const item = list.message();
              seen.parts.push(item.next() === 1 ? item.text() : "");
            }
          }
        }
        expect(seen).toEqual({ number, text, big, parts });
      },
    ),
  ));

test("bytes that are no message are refused, whatever they are", () =>
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 200 }), (bytes) => {
      for (const decode of [RANGE.decode, TXN.decode, LEASE_GRANT.decode, decodeWatchResponse])
        try {
          decode(Buffer.from(bytes));
        } catch (error) {
          expect(error).toBeInstanceOf(ProtoError);
        }
    }),
    { numRuns: 2000 },
  ));

test("a number of more than ten bytes is refused", () => {
  const long = (bytes: number) => Buffer.from([0x0a, bytes + 1, 0x18, ...Array(bytes - 1).fill(0x80), 1]);
  expect(RANGE.decode(long(10)).revision).toBe(2 ** 63);
  for (const bytes of [11, 100]) expect(() => RANGE.decode(long(bytes))).toThrow(ProtoError);
  expect(() => LEASE_GRANT.decode(Buffer.from([0x10, ...Array(50).fill(0xff), 1]))).toThrow(ProtoError);
});

test("a comparison with zero says so on the wire", () => {
  const request = { compare: [{ key: "k", field: "version", equals: 0 }], success: [], failure: [] } as const;
  // compare { target: VERSION (0, left out), key: "k", version: 0 }
  expect([...TXN.encode(request)]).toEqual([0x0a, 5, 0x1a, 1, 0x6b, 0x20, 0]);
});

test("an empty progress request still names itself", () => {
  expect([...encodeWatchRequest({ progress: true })]).toEqual([0x1a, 0]);
});
