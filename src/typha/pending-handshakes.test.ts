import { expect, test } from "bun:test";
import { EventEmitter } from "node:events";
import { PendingHandshakes, type PendingSocket } from "./pending-handshakes.ts";

const MINUTE = 60_000;
let nextPort = 1;

class FakeSocket extends EventEmitter implements PendingSocket {
  isDestroyed = false;
  constructor(
    readonly remoteAddress: string | undefined,
    readonly remotePort: number = nextPort++,
  ) {
    super();
  }
  destroy(): void {
    this.isDestroyed = true;
    this.emit("close");
  }
}

/** Opens connections and returns them. */
function open(pending: PendingHandshakes, address: string | undefined, count: number): FakeSocket[] {
  return Array.from({ length: count }, () => {
    const socket = new FakeSocket(address);
    pending.add(socket);
    return socket;
  });
}
const alive = (sockets: readonly FakeSocket[]): number => sockets.filter(({ isDestroyed }) => !isDestroyed).length;

test("an address has a limit of its own, and other addresses are not affected", () => {
  const pending = new PendingHandshakes({ perAddress: 3, total: 10 }, MINUTE);
  const flood = open(pending, "10.0.0.1", 5);
  expect(flood.map(({ isDestroyed }) => isDestroyed)).toEqual([false, false, false, true, true]);
  expect(pending.add(new FakeSocket("10.0.0.1"))).toBe(false);
  expect(pending.add(new FakeSocket("10.0.0.2"))).toBe(true);
  expect(pending.count).toBe(4);
  pending.destroyAll();
  expect([alive(flood), pending.count]).toEqual([0, 0]);
});

test("at the total limit the address with most connections loses its oldest one", () => {
  const pending = new PendingHandshakes({ perAddress: 5, total: 8 }, MINUTE);
  const few = open(pending, "10.0.0.1", 3);
  const most = open(pending, "10.0.0.2", 5);
  const [node] = open(pending, "10.0.0.3", 1);
  expect(node?.isDestroyed).toBe(false);
  expect(most.map(({ isDestroyed }) => isDestroyed)).toEqual([true, false, false, false, false]);
  expect([alive(few), pending.count]).toEqual([3, 8]);
  pending.destroyAll();
});

test("at the total limit a connection of an address that has as many as every other is rejected", () => {
  const pending = new PendingHandshakes({ perAddress: 5, total: 4 }, MINUTE);
  const sockets = ["10.0.0.1", "10.0.0.2"].flatMap((address) => open(pending, address, 2));
  expect(pending.add(new FakeSocket("10.0.0.1"))).toBe(false);
  expect([alive(sockets), pending.count]).toEqual([4, 4]);
  expect(pending.add(new FakeSocket("10.0.0.3"))).toBe(true);
  expect([alive(sockets), pending.count]).toEqual([3, 4]);
  pending.destroyAll();
});

test("a complete or closed handshake no longer counts", () => {
  const pending = new PendingHandshakes({ perAddress: 1, total: 10 }, MINUTE);
  const [first] = open(pending, "10.0.0.1", 1);
  if (first === undefined) throw new Error("no socket");
  pending.complete({ remoteAddress: "10.0.0.1", remotePort: first.remotePort });
  expect([first.isDestroyed, pending.count]).toEqual([false, 0]);
  const second = new FakeSocket("10.0.0.1", first.remotePort); // the port is in use again
  expect(pending.add(second)).toBe(true);
  first.emit("close"); // must not count as the end of the second
  expect(pending.count).toBe(1);
  second.emit("close");
  expect(pending.count).toBe(0);
});

test("a handshake that takes too long is destroyed", async () => {
  const pending = new PendingHandshakes({ perAddress: 1, total: 10 }, 1);
  const [socket] = open(pending, "10.0.0.1", 1);
  await new Promise((resolve) => socket?.once("close", resolve));
  expect([socket?.isDestroyed, pending.count]).toEqual([true, 0]);
});

test("a connection that is closed already has no address and is not kept", () => {
  const pending = new PendingHandshakes({ perAddress: 1, total: 10 }, MINUTE);
  const [socket] = open(pending, undefined, 1);
  expect([socket?.isDestroyed, pending.count]).toEqual([true, 0]);
});
