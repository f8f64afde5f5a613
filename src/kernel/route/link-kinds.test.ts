// Requests for link kinds that the kernel of a build machine may lack: byte for byte those of `ip link add`.
import { expect, test } from "bun:test";
import { parseAddress } from "../../lib/ip/ip.ts";
import { type NewLink, writeNewLink } from "./links.ts";
import { NetlinkReader } from "../netlink/netlink-reader.ts";
import { NetlinkWriter } from "../netlink/netlink-writer.ts";
import { readIpip } from "./link-kinds.ts";

function linkInfo(link: NewLink): string {
  const w = new NetlinkWriter();
  w.message(16, 0, () => writeNewLink(w, link));
  const a = NetlinkReader.fromBytes(w.toBytes(), 32);
  while (a.next()) if (a.type === 18) return Buffer.from(a.bytes()).toString("hex");
  return "";
}
const text = (value: string) => Buffer.from(value).toString("hex");

const cases: readonly { name: string; link: NewLink; want: string }[] = [
  {
    name: "ipip between two addresses",
    link: {
      name: "tunl1",
      type: { kind: "ipip", local: parseAddress("1.2.3.4"), remote: parseAddress("2.3.4.5"), ttl: 64 },
    },
    want:
      `09000100${text("ipip\0")}000000` +
      "24000280" +
      "0800020001020304" +
      "0800030002030405" +
      "0500040040000000" +
      "05000a0001000000",
  },
  { name: "dummy", link: { name: "d0", type: { kind: "dummy" } }, want: `0a000100${text("dummy\0")}0000` },
  { name: "wireguard", link: { name: "w0", type: { kind: "wireguard" } }, want: `0e000100${text("wireguard\0")}0000` },
];
for (const { name, link, want } of cases) test(`link kinds: ${name}`, () => expect(linkInfo(link)).toBe(want));

test("the address 0.0.0.0 of an ipip device is parsed as absent", () => {
  const bytes = Uint8Array.from(Buffer.from("0800020001020304" + "0800030000000000" + "0500040040000000", "hex"));
  expect(readIpip(NetlinkReader.fromBytes(bytes))).toEqual({ local: parseAddress("1.2.3.4"), ttl: 64 });
});
