import { expect, test } from "bun:test";
import { parseAddress, parseCidr } from "../../lib/ip/ip.ts";
import { forEachMessage } from "../netlink/netlink-reader.ts";
import { NetlinkWriter } from "../netlink/netlink-writer.ts";
import {
  keyBytes,
  type WireguardChange,
  WireguardDumpParser,
  type WireguardPeer,
  wireguardMessages,
} from "./wireguard-message.ts";

const key = (n: number): string => btoa(String.fromCharCode(...Array.from({ length: 32 }, () => n)));

function written(change: WireguardChange): Uint8Array<ArrayBuffer>[] {
  return wireguardMessages(0x25, "wireguard.cali", change).map((write) => {
    const w = new NetlinkWriter();
    write(w);
    return w.toBytes();
  });
}

/** Parses our own messages as if the kernel had sent them. */
function collected(messages: readonly Uint8Array<ArrayBuffer>[]) {
  const collector = new WireguardDumpParser();
  for (const bytes of messages) forEachMessage(bytes, bytes.length, (m) => collector.add(m));
  return collector.device();
}

test("a device with one peer is encoded byte for byte", () => {
  const [bytes, ...more] = written({
    privateKey: key(1),
    port: 51820,
    mark: 0x100000,
    replacePeers: true,
    set: [
      {
        publicKey: key(2),
        endpoint: { address: parseAddress("192.0.2.1"), port: 51820 },
        keepaliveSeconds: 25,
        allowed: [parseCidr("10.65.0.0/26"), parseCidr("fd00::/122")],
      },
    ],
  });
  expect(more).toEqual([]);
  const hex = Buffer.from(bytes!).toString("hex");
  const allowed4 = "1c000080" + "06000100" + "02000000" + "08000200" + "0a410000" + "05000300" + "1a000000";
  const allowed6 = "28000080" + "06000100" + "0a000000" + "14000200" + `fd${"00".repeat(15)}` + "05000300" + "7a000000";
  const peer =
    `24000100${"02".repeat(32)}` +
    "0800030002000000" + // replace allowed prefixes
    `140004000200ca6cc0000201${"00".repeat(8)}` +
    "0600050019000000" +
    `48000980${allowed4}${allowed6}`;
  const attributes =
    `13000200${Buffer.from("wireguard.cali\0").toString("hex")}00` +
    "0800050001000000" +
    `24000300${"01".repeat(32)}` +
    "060006006cca0000" +
    "0800070000001000" +
    `98000880${"94000080"}${peer}`;
  expect(hex.slice(32)).toBe(`01010000${attributes}`);
  expect(hex.slice(8, 16)).toBe("25000100");
});

test("a peer with thousands of prefixes is sent in several messages and parsed as one", () => {
  const peers: WireguardPeer[] = [1, 2, 3].map((n) => ({
    publicKey: key(n),
    allowed: Array.from({ length: 2500 }, (_, i) => parseCidr(`10.${n}.${i >> 8}.${i & 255}/32`)),
  }));
  const messages = written({ port: 51821, set: peers });
  expect(messages.length).toBeGreaterThan(5);
  for (const bytes of messages) expect(bytes.length).toBeLessThan(65536);
  const device = collected(messages);
  expect(device.port).toBe(51821);
  expect(device.peers.map(({ publicKey, allowed }) => ({ publicKey, allowed }))).toEqual(peers);
});

test("a change without peers is one message, and a key of the wrong length is rejected", () => {
  expect(written({ remove: [key(9)] })).toHaveLength(1);
  expect(() => keyBytes(btoa("short"))).toThrow(/32 bytes/);
  expect(collected(written({ mark: 7 }))).toEqual({ name: "wireguard.cali", port: 0, mark: 7, peers: [] });
});
