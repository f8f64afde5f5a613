import { expect, test } from "bun:test";
import fc from "fast-check";
import { ProtoError } from "../../lib/encoding/protobuf.ts";
import { decodeWatchResponse, encodeWatchRequest, LEASE_GRANT, RANGE, TXN } from "./messages.ts";

test("invalid bytes cause only a ProtoError", () =>
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

test("a number of more than ten bytes is rejected", () => {
  const long = (bytes: number) => Buffer.from([0x0a, bytes + 1, 0x18, ...Array(bytes - 1).fill(0x80), 1]);
  expect(RANGE.decode(long(10)).revision).toBe(2 ** 63);
  for (const bytes of [11, 100]) expect(() => RANGE.decode(long(bytes))).toThrow(ProtoError);
  expect(() => LEASE_GRANT.decode(Buffer.from([0x10, ...Array(50).fill(0xff), 1]))).toThrow(ProtoError);
});

test("a comparison with zero is encoded explicitly", () => {
  const request = { compare: [{ key: "k", field: "version", equals: 0 }], success: [], failure: [] } as const;
  // compare { target: VERSION (0, left out), key: "k", version: 0 }
  expect([...TXN.encode(request)]).toEqual([0x0a, 5, 0x1a, 1, 0x6b, 0x20, 0]);
});

test("an empty progress request is encoded with its field number", () => {
  expect([...encodeWatchRequest({ progress: true })]).toEqual([0x1a, 0]);
});
