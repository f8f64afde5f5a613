import { expect, test } from "bun:test";
import { findPlace, NoPlace, putSegment } from "./elf.ts";
import { probeBytes } from "./probe.ts";

test("code goes behind all of the file and all of the memory, and is the new entry", () => {
  const file = probeBytes();
  const before = file.slice();
  const place = findPlace(file, file.length);
  expect(place).toEqual({ offset: 0x1000, address: 0x401000, entry: 0x4000b0, header: 120 });
  putSegment(file, place, 1000);
  const view = new DataView(file.buffer);
  expect(view.getBigUint64(24, true)).toBe(0x401000n);
  expect([view.getUint32(120, true), view.getUint32(124, true)]).toEqual([1, 5]);
  const fields = Array.from({ length: 6 }, (_, i) => Number(view.getBigUint64(128 + 8 * i, true)));
  expect(fields).toEqual([0x1000, 0x401000, 0x401000, 1000, 1000, 4096]);
  // Nothing else changed: the entry point's eight bytes and the one program header.
  const changed = [...file.keys()].filter((at) => file[at] !== before[at]);
  expect(changed.every((at) => (at >= 24 && at < 32) || (at >= 120 && at < 176))).toBeTrue();
});

const refusals: readonly { name: string; spoil: (file: Uint8Array, view: DataView) => void; want: string }[] = [
  { name: "no ELF", spoil: (file) => file.fill(0, 0, 4), want: "no executable for x86-64" },
  { name: "another processor", spoil: (_, view) => view.setUint16(18, 183, true), want: "no executable for x86-64" },
  { name: "32 bits", spoil: (file) => file.fill(1, 4, 5), want: "no executable for x86-64" },
  { name: "no note", spoil: (_, view) => view.setUint32(120, 0, true), want: "no note" },
  {
    name: "a segment behind the note",
    spoil: (_, view) => {
      view.setUint32(64, 4, true);
      view.setUint32(120, 1, true);
      view.setBigUint64(136, 0x400000n, true);
      view.setBigUint64(160, 100n, true);
    },
    want: "no note",
  },
  {
    name: "headers elsewhere",
    spoil: (_, view) => view.setBigUint64(32, 1_000_000n, true),
    want: "not at its beginning",
  },
  {
    name: "an impossible number",
    spoil: (_, view) => view.setBigUint64(80, 2n ** 63n, true),
    want: "impossible number",
  },
  { name: "nothing to load", spoil: (_, view) => view.setUint32(64, 6, true), want: "nothing of it is loaded" },
];
for (const { name, spoil, want } of refusals)
  test(`an executable is left alone: ${name}`, () => {
    const file = probeBytes();
    spoil(file, new DataView(file.buffer));
    expect(() => findPlace(file, file.length)).toThrow(NoPlace);
    expect(() => findPlace(file, file.length)).toThrow(want);
  });

test("what is shorter than a header is no executable", () => {
  for (const length of [0, 4, 63]) expect(() => findPlace(probeBytes().subarray(0, length), length)).toThrow(NoPlace);
});
