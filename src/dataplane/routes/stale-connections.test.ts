import { expect, test } from "bun:test";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { objectsLeftPerRound } from "../../lib/testing/heap-growth.ts";
import { type InterfaceOwner, StaleConnections } from "./stale-connections.ts";

function open() {
  const flushed: IpAddress[] = [];
  let failures = 0;
  const connections = new StaleConnections(async (addresses) => {
    if (failures-- > 0) throw new Error("EBUSY");
    flushed.push(...addresses);
  });
  return {
    connections,
    fail: (count: number) => void (failures = count),
    /** Addresses that were flushed since the last call. */
    takeFlushed: () => flushed.splice(0),
  };
}

const V4 = "10.0.0.1" as IpAddress;
const V6 = "fd00::1" as IpAddress;
const owner = (endpoint: string, index: number, state: "up" | "down" = "up"): InterfaceOwner => ({
  endpoint,
  destinations: [`${V4}/32`, `${V6}/128`] as Cidr[],
  link: { index, state },
});

test("an address that moves to another endpoint in one round is flushed before rules are written and after the old route is deleted", async () => {
  const { connections, takeFlushed } = open();
  connections.setInterface("cali1", owner("a", 5));
  await connections.resolveOwners();
  connections.setInterface("cali1", undefined);
  connections.setInterface("cali2", owner("b", 7));
  await connections.resolveOwners();
  expect(takeFlushed()).toEqual([V4, V6]);
  await connections.flush(4, []);
  expect(takeFlushed()).toEqual([V4]);
  await connections.flush(6, ["fd00::7" as IpAddress]);
  expect(takeFlushed()).toEqual(["fd00::7" as IpAddress, V6]);
  await connections.apply();
  expect(takeFlushed()).toEqual([]);
});

test("of two endpoints with the same address, the owner is the one to which the route leads", async () => {
  const { connections, takeFlushed } = open();
  const set = async (name: string, value: InterfaceOwner | undefined) => {
    connections.setInterface(name, value);
    await connections.resolveOwners();
    await connections.apply();
    return new Set(takeFlushed()).size > 0;
  };
  expect(await set("cali1", owner("a", 5))).toBe(false);
  expect(await set("cali2", owner("b", 7, "down"))).toBe(false);
  expect(await set("cali2", owner("b", 7))).toBe(true);
  expect(await set("cali1", undefined)).toBe(false); // connections are those of b by now
  expect(await set("cali3", owner("c", 6))).toBe(false); // the older interface
  expect(await set("cali2", { ...owner("b", 7), link: undefined })).toBe(true);
  expect(await set("cali3", undefined)).toBe(true);
  // Neither interface is known yet: the newer endpoint has the address.
  expect(await set("cali4", { ...owner("d", 0), link: undefined })).toBe(true);
});

test("another endpoint on the same interface is another owner", async () => {
  const { connections, takeFlushed } = open();
  connections.setInterface("cali1", owner("a", 5));
  await connections.resolveOwners();
  connections.setInterface("cali1", owner("b", 5));
  await connections.resolveOwners();
  expect(takeFlushed()).toEqual([V4, V6]);
});

test("a flush that fails is repeated until it succeeds", async () => {
  const { connections, fail, takeFlushed } = open();
  connections.setInterface("cali1", owner("a", 5));
  await connections.resolveOwners();
  connections.setInterface("cali1", undefined);
  await connections.resolveOwners();
  fail(1);
  await expect(connections.flush(4, []) ?? Promise.resolve()).rejects.toThrow("EBUSY");
  await connections.apply();
  expect(takeFlushed()).toEqual([V4, V6]);
});

test("prefixes other than single addresses are not flushed", async () => {
  const { connections, takeFlushed } = open();
  connections.setInterface("cali1", { ...owner("a", 5), destinations: ["10.0.0.0/24" as Cidr] });
  await connections.resolveOwners();
  connections.setInterface("cali1", undefined);
  await connections.resolveOwners();
  await connections.apply();
  expect(takeFlushed()).toEqual([]);
});

test("removed endpoints use no memory", async () => {
  const { connections, takeFlushed } = open();
  const left = await objectsLeftPerRound(async (number) => {
    const destinations = [`10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}/32` as Cidr];
    connections.setInterface(`cali${number}`, { ...owner(`pod${number}`, number), destinations });
    await connections.resolveOwners();
    connections.setInterface(`cali${number}`, undefined);
    await connections.resolveOwners();
    await connections.apply();
    takeFlushed();
  });
  expect(left).toBeLessThan(0.5);
});
