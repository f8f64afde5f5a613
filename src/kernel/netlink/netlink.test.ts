import { expect, test } from "bun:test";
import fc from "fast-check";
import { parseAddress } from "../../lib/ip/ip.ts";
import { errnoName } from "../sys/errno.ts";
import { hasErrno, isGone, NetlinkError } from "../sys/kernel-error.ts";
import { forEachMessage, NetlinkMessage, NetlinkReader, type RawAttribute } from "./netlink-reader.ts";
import { NetlinkWriter } from "./netlink-writer.ts";
import { allocate } from "../sys/sys.ts";

function hex(bytes: Uint8Array): string {
  return Buffer.from(bytes).toString("hex");
}

function messagesOf(w: NetlinkWriter): NetlinkMessage[] {
  const bytes = w.toBytes();
  const messages: NetlinkMessage[] = [];
  forEachMessage(bytes, bytes.length, (m) => messages.push(m));
  return messages;
}

test("a message consists of header, fixed header and padded attributes, byte for byte", () => {
  const w = new NetlinkWriter(7);
  w.message(0x10, 0x400, () => {
    w.putU8(2);
    w.putZero(3);
    w.string(3, "eth0");
    w.nest(18, () => w.be16(1, 0x1234));
    w.u8(5, 9);
  });
  expect(hex(w.toBytes())).toBe(
    "34000000" +
      "1000" +
      "0104" +
      "07000000" +
      "00000000" +
      "02000000" +
      "0900" +
      "0300" +
      "65746830" +
      "00000000" +
      "0c00" +
      "1280" +
      "0600" +
      "0100" +
      "12340000" +
      "0500" +
      "0500" +
      "09000000",
  );
});

test("messages of one writer have consecutive sequence numbers and are unchanged when the buffer grows", () => {
  const w = new NetlinkWriter(100, 32);
  for (let i = 0; i < 50; i++) w.message(16 + i, 0, () => w.u32(1, i));
  const messages = messagesOf(w);
  expect(messages.map((m) => m.sequence)).toEqual(Array.from({ length: 50 }, (_, i) => 100 + i));
  expect(messages.map((m) => m.type)).toEqual(Array.from({ length: 50 }, (_, i) => 16 + i));
});

test("numbers, text and addresses are read back as they were written", () => {
  const w = new NetlinkWriter();
  const addresses = [parseAddress("10.1.2.3"), parseAddress("fd00::5")];
  w.message(1, 0, () => {
    w.u64(1, 0xffff_ffff_ffff_fffen);
    w.be64(2, 2n ** 60n);
    w.be32(3, 0x80000001);
    w.i32(4, -5);
    w.string(5, "größe");
    w.bytes(6, new Uint8Array(0));
    w.address(7, addresses[0]!);
    w.address(8, addresses[1]!);
    w.string(9, "");
  });
  const a = messagesOf(w)[0]!.attributes(0);
  const seen: unknown[] = [];
  const read = [() => a.u64(), () => a.be64(), () => a.be32(), () => a.i32(), () => a.string(), () => a.length];
  for (const value of [...read, () => a.address(), () => a.address(), () => a.string()]) {
    expect(a.next()).toBeTrue();
    seen.push(value());
  }
  expect(seen).toEqual([0xffff_ffff_ffff_fffen, 2n ** 60n, 0x80000001, -5, "größe", 0, ...addresses, ""]);
  expect(a.next()).toBeFalse();
});

test("an attribute whose length exceeds 16 bits is rejected", () => {
  const w = new NetlinkWriter();
  expect(() => w.bytes(1, new Uint8Array(65532))).toThrow(RangeError);
  expect(() => w.nest(1, () => [0, 1].forEach(() => w.bytes(2, new Uint8Array(40000))))).toThrow(RangeError);
});

test("text that contains a NUL is rejected", () =>
  expect(() => new NetlinkWriter().string(1, "a\0b")).toThrow(RangeError));

type Tree = { type: number; bytes: Uint8Array } | { type: number; children: Tree[] };
const arbTree = fc.letrec<{ tree: Tree }>((tie) => ({
  tree: fc.oneof(
    { depthSize: "small" },
    fc.record({ type: fc.integer({ min: 0, max: 0x3fff }), bytes: fc.uint8Array({ maxLength: 40 }) }),
    fc.record({ type: fc.integer({ min: 0, max: 0x3fff }), children: fc.array(tie("tree"), { maxLength: 4 }) }),
  ),
})).tree;

test("unknown attributes are copied unchanged", () => {
  const write = (w: NetlinkWriter, tree: Tree): void => {
    if ("bytes" in tree) w.bytes(tree.type, tree.bytes);
    else w.nest(tree.type, () => tree.children.forEach((child) => write(w, child)));
  };
  fc.assert(
    fc.property(fc.array(arbTree, { maxLength: 8 }), (trees) => {
      const first = new NetlinkWriter();
      first.message(1, 0, () => trees.forEach((tree) => write(first, tree)));
      const kept: RawAttribute[] = [];
      for (const a = messagesOf(first)[0]!.attributes(0); a.next(); ) kept.push(a.raw());
      const second = new NetlinkWriter();
      second.message(1, 0, () => kept.forEach((attribute) => second.raw(attribute)));
      expect(hex(second.toBytes())).toBe(hex(first.toBytes()));
    }),
  );
});

test("a reader never reads outside its buffer", () => {
  fc.assert(
    fc.property(fc.uint8Array({ maxLength: 120 }), (noise) => {
      const bytes = allocate(noise.length);
      bytes.set(noise);
      const walk = (a: NetlinkReader, depth: number): number => {
        let count = 0;
        while (a.next()) {
          count++;
          expect(a.length).toBeLessThanOrEqual(noise.length);
          for (const value of [a.u8(), a.u16(), a.u32(), a.be16()]) expect(Number.isInteger(value)).toBeTrue();
          expect(a.bytes().length).toBe(a.length);
          a.string();
          if (depth < 3) count += walk(a.nested(), depth + 1);
        }
        return count;
      };
      walk(NetlinkReader.fromBytes(bytes), 0);
      forEachMessage(bytes, bytes.length, (m) => walk(m.attributes(4), 0));
    }),
  );
});

test("an error names the request, the errno and the kernel's message", () => {
  const error = new NetlinkError("add route 10.0.0.0/26", errnoName(22), { message: "Invalid prefix" });
  expect(error.message).toBe("add route 10.0.0.0/26: EINVAL (Invalid prefix)");
  expect(hasErrno(error, "EEXIST", "EINVAL")).toBeTrue();
  expect([2, 3, 19].map((n) => isGone(new NetlinkError("delete", errnoName(n))))).toEqual([true, true, true]);
  expect([errnoName(105), errnoName(133), errnoName(4242)]).toEqual(["ENOBUFS", "EHWPOISON", "E4242"]);
});
