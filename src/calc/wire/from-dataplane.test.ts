import { expect, test } from "bun:test";
import fc from "fast-check";
import type { DataplaneReport } from "../messages.ts";
import { frame, FrameReader } from "./frames.ts";
import { encodeReport } from "../testing/encode-report.ts";
import { decodeFromDataplane } from "./from-dataplane.ts";

const ID = { orchestrator: "k8s", workload: "ns/pod", endpoint: "eth0" };
const reports: readonly DataplaneReport[] = [
  { type: "processStatus", time: "2026-01-01T00:00:00Z", uptimeSeconds: 12.5 },
  { type: "hostEndpointStatus", endpointId: "h", status: "down" },
  { type: "hostEndpointStatusRemove", endpointId: "h" },
  { type: "workloadEndpointStatus", id: ID, status: "up" },
  { type: "workloadEndpointStatusRemove", id: ID },
  { type: "wireguardStatus", ipVersion: 6, publicKey: "k" },
  { type: "dataplaneInSync" },
];
for (const report of reports)
  test(`FC-083 decodes report ${report.type}`, () =>
    expect(decodeFromDataplane(encodeReport(report, 3))).toEqual(report));

test("ignores an unknown report of a newer protocol", () =>
  expect(decodeFromDataplane(new Uint8Array([0xa2, 0x06, 0x00]))).toBeUndefined());

test("FC-085 decodes frames that arrive in chunks of any size", () =>
  fc.assert(
    fc.property(
      fc.array(fc.uint8Array({ maxLength: 50 }), { maxLength: 10 }),
      fc.integer({ min: 1, max: 20 }),
      (messages, step) => {
        const stream = Buffer.concat(messages.map(frame));
        const reader = new FrameReader();
        const read: Uint8Array[] = [];
        for (let at = 0; at < stream.length; at += step) read.push(...reader.read(stream.subarray(at, at + step)));
        expect(read.map((bytes) => [...bytes])).toEqual(messages.map((bytes) => [...bytes]));
      },
    ),
  ));

test("FC-085 a frame starts with a little-endian length of eight bytes", () => {
  expect([...frame(new Uint8Array([9, 8]))]).toEqual([2, 0, 0, 0, 0, 0, 0, 0, 9, 8]);
  expect(() => [...new FrameReader().read(new Uint8Array(8).fill(255))]).toThrow("does not use the dataplane protocol");
});
