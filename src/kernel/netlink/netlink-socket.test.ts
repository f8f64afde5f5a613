import { heapStats } from "bun:jsc";
import { expect, test } from "bun:test";
import { RTM_GETLINK } from "../route/links.ts";
import { type NetlinkRequest, NetlinkSocket } from "./netlink-socket.ts";

const NETLINK_ROUTE = 0;
const links: NetlinkRequest = {
  operation: "list links",
  type: RTM_GETLINK,
  body: (w) => w.putZero(16), // ifinfomsg
};
const MB = 1 << 20;

test("open sockets have no receive buffers of their own", () => {
  const sockets: NetlinkSocket[] = [];
  const listLinks = () => {
    const socket = NetlinkSocket.open(NETLINK_ROUTE);
    sockets.push(socket);
    return socket.dump(links, (message) => message.i32(4)); // the interface's index
  };
  try {
    const first = listLinks();
    expect(first.length).toBeGreaterThan(0);
    Bun.gc(true);
    const before = heapStats().extraMemorySize;
    for (let i = 0; i < 50; i++) expect(listLinks()).toEqual(first);
    Bun.gc(true);
    expect(heapStats().extraMemorySize - before).toBeLessThan(MB);
  } finally {
    for (const socket of sockets) socket[Symbol.dispose]();
  }
});

test("a request that is sent while another socket's reply is parsed does not change that reply", () => {
  using outer = NetlinkSocket.open(NETLINK_ROUTE);
  using inner = NetlinkSocket.open(NETLINK_ROUTE);
  const read = (message: { i32(offset: number): number }) => message.i32(4);
  const plain = outer.dump(links, read);
  const nested = outer.dump(links, (message) => {
    const others = inner.dump(links, read);
    return { index: read(message), others };
  });
  expect(nested).toEqual(plain.map((index) => ({ index, others: plain })));
});
