import { expect, test } from "bun:test";
import fc from "fast-check";
import type { SyncerUpdate } from "../datastore/index.ts";
import { parseCidr } from "../lib/ip/ip.ts";
import { ParsedSelector } from "../model/index.ts";
import { FRAME, FrameReader, frameBytes, isOneZstdFrame, ProtocolError, zstdContentSize } from "./protocol.ts";
import { decodeHead, decodeRecords, encodeRecords, textUpdate } from "./records.ts";

const reader = () => new FrameReader({ maxFrame: 1 << 20, allowCompressed: true });

test("decoding inverts encoding, however the stream is split into chunks", () =>
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 5000 }), { maxLength: 8 }),
      fc.array(fc.integer({ min: 1, max: 3000 }), { minLength: 1 }),
      fc.boolean(),
      (payloads, cuts, compress) => {
        const stream = Buffer.concat(payloads.map((payload) => frameBytes(FRAME.updates, payload, compress)));
        const frames = reader();
        const seen: Buffer[] = [];
        for (let at = 0, i = 0; at < stream.length; i++) {
          const size = cuts[i % cuts.length]!;
          frames.push(stream.subarray(at, at + size));
          at += size;
          for (let frame = frames.next(); frame !== undefined; frame = frames.next()) seen.push(frame.payload);
        }
        expect(seen.map((b) => b.toString("hex"))).toEqual(payloads.map((p) => Buffer.from(p).toString("hex")));
      },
    ),
  ));

test("TC-T17 a frame that is too large is rejected by its header, before its payload arrives", () => {
  const frames = reader();
  const header = Buffer.alloc(5);
  header.writeUInt32BE((1 << 20) + 1, 0);
  frames.push(header);
  expect(() => frames.next()).toThrow(ProtocolError);
  const fine = reader();
  for (let i = 0; i < 3; i++) {
    fine.push(frameBytes(FRAME.pong, Buffer.alloc(900_000)));
    expect(fine.next()?.payload.length).toBe(900_000); // the limit is for each frame, not for all
  }
});

test("a compressed frame with too large a content is rejected", () => {
  const bomb = frameBytes(FRAME.updates, Buffer.alloc(50 << 20), true);
  expect(bomb.length).toBeLessThan(1 << 20);
  const frames = reader();
  frames.push(bomb);
  expect(() => frames.next()).toThrow(ProtocolError);
});

test("invalid bytes cause only a ProtocolError", () =>
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 300 }), (bytes) => {
      try {
        const frames = reader();
        frames.push(Buffer.from(bytes));
        const frame = frames.next();
        if (frame === undefined) return;
        decodeRecords(decodeHead(frame.payload).rest);
      } catch (error) {
        expect(error).toBeInstanceOf(ProtocolError);
      }
    }),
    { numRuns: 3000 },
  ));

const samples: readonly SyncerUpdate[] = [
  { key: { type: "ready" }, value: true, change: "new" },
  { key: { type: "hostConfig", host: "h", name: "LogSeverityScreen" }, value: "Info", change: "updated" },
  {
    key: { type: "block", cidr: parseCidr("10.0.0.0/30") },
    value: {
      cidr: parseCidr("10.0.0.0/30"),
      affinity: "host:n",
      allocations: [0, null, null, null],
      unallocated: [1, 2, 3],
      attributes: [{ handleId: "h" }],
      sequenceNumber: 18446744073709551615n,
      sequenceNumberForAllocation: { 0: 2n },
      deleted: false,
    },
    revision: "17",
    change: "updated",
  },
  {
    key: { type: "policy", kind: "NetworkPolicy", namespace: "prod", name: "a/b%c" },
    value: {
      tier: "default",
      inboundRules: [],
      outboundRules: [],
      selector: ParsedSelector.parse("all()"),
      types: ["ingress"],
      order: 1.5,
    },
    change: "new",
  },
  {
    key: { type: "resource", kind: "Node", name: "n" },
    value: { apiVersion: "projectcalico.org/v3", kind: "Node", metadata: { name: "n" }, spec: { orchRefs: [] } },
    change: "new",
  },
  { key: { type: "networkSet", name: "prod/set" }, value: undefined, change: "deleted" },
];
for (const sample of samples)
  test(`decoding inverts encoding for an update of a ${sample.key.type}`, () => {
    expect(decodeRecords(encodeRecords([textUpdate(sample)])).updates).toEqual([sample]);
  });

test("TC-T10 policies with old keys are decoded with present keys", () => {
  const value = JSON.stringify({ tier: "default", inboundRules: [], outboundRules: [], selector: "", types: [] });
  const path = "/calico/v1/policy/tier/default/policy/prod%2fknp.default.web";
  expect(decodeRecords(encodeRecords([{ path, value, revision: "", change: "new" }])).updates[0]?.key).toEqual({
    type: "policy",
    kind: "KubernetesNetworkPolicy",
    namespace: "prod",
    name: "web",
  });
});

test("an unknown key is skipped, and an unreadable value counts as deleted", () => {
  const unknown: string[] = [];
  const unreadable: string[] = [];
  const records = encodeRecords([
    { path: "/calico/v9/future", value: "1", revision: "", change: "new" },
    { path: "/calico/ipam/v2/handle/h", value: '"{"', revision: "", change: "new" },
  ]);
  expect(
    decodeRecords(records, {
      onUnknown: (path) => unknown.push(path),
      onUnreadable: (path) => unreadable.push(path),
    }).updates,
  ).toEqual([{ key: { type: "ipamHandle", handleId: "h" }, value: undefined, change: "deleted" }]);
  expect(unknown).toEqual(["/calico/v9/future"]);
  expect(unreadable).toEqual(["/calico/ipam/v2/handle/h"]);
});

for (const text of ["{}", "[1]", "[0,1,2,3]", '[7,"/calico/v1/Ready","",true]', "[", '[0,"a",null,1]'])
  test(`records ${text} are rejected`, () => expect(() => decodeRecords(Buffer.from(text))).toThrow(ProtocolError));

test("the content size of a compressed frame is read, and a frame with a large or wrong size is rejected", () => {
  for (const size of [200, 255, 256, 70_000, 3_000_000]) {
    const noise = Buffer.from(Array.from({ length: 20 }, (_, i) => (i * 97) % 251));
    const packed = Buffer.from(Bun.zstdCompressSync(Buffer.concat([noise, Buffer.alloc(size - 20)])));
    expect(zstdContentSize(packed)).toBe(size);
  }
  expect(zstdContentSize(Buffer.from("no zstandard frame at all"))).toBeUndefined();
  const bomb = Buffer.from(Bun.zstdCompressSync(Buffer.alloc(64 * 2 ** 20)));
  const liar = Buffer.from(bomb);
  liar.writeUInt32LE(1000, ((liar[4] ?? 0) & 0x20) === 0 ? 6 : 5);
  for (const payload of [bomb, liar]) {
    const bytes = Buffer.alloc(5);
    bytes.writeUInt32BE(payload.length + 1, 0);
    bytes[4] = FRAME.updates | 0x80;
    const frames = reader();
    frames.push(Buffer.concat([bytes, payload]));
    expect(() => frames.next()).toThrow(ProtocolError);
  }
});

test("a second compressed frame after a small one cannot exceed the limit", () => {
  const small = Bun.zstdCompressSync(Buffer.from("[]".padEnd(100)));
  for (const size of [0, 1, 100, 1000, 100_000, 3_000_000]) {
    const packed = Buffer.from(Bun.zstdCompressSync(Buffer.alloc(size, "abcdefgh0123")));
    expect([size, isOneZstdFrame(packed)]).toEqual([size, true]);
    expect([size, isOneZstdFrame(Buffer.concat([small, packed]))]).toEqual([size, false]);
    expect([size, isOneZstdFrame(packed.subarray(0, -1))]).toEqual([size, false]);
  }
  const payload = Buffer.concat([small, Bun.zstdCompressSync(Buffer.alloc(4 << 20))]);
  const head = Buffer.alloc(5);
  head.writeUInt32BE(1 + payload.length, 0);
  head[4] = FRAME.updates | 0x80;
  const reader = new FrameReader({ maxFrame: 1 << 20, allowCompressed: true });
  reader.push(Buffer.concat([head, payload]));
  expect(() => reader.next()).toThrow(ProtocolError);
});
