import { expect, test } from "bun:test";
import type { Route, RouteChange } from "../../kernel/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip.ts";
import { silentLogger } from "../../lib/log.ts";
import { objectsLeftPerRound } from "../../lib/testing/heap-growth.ts";
import { mainTableOwnership } from "./ownership.ts";
import { RouteTable } from "./route-table.ts";

function open(existing: Route[] = []) {
  const done: string[] = [];
  const forgotten: IpAddress[] = [];
  let now = 0;
  const text = ({ action, route }: RouteChange) =>
    `${action} ${route.destination}${route.link === undefined ? "" : ` dev ${route.link}`}`;
  const table = new RouteTable({
    version: 4,
    table: 254,
    routes: {
      list: () => existing,
      apply: (changes: readonly RouteChange[]) => (done.push(...changes.map(text)), []),
    } as never,
    ownership: mainTableOwnership({
      deviceRouteProtocol: 3,
      removeExternalRoutes: true,
      isWorkload: (name) => name.startsWith("cali"),
      isBgpPeer: () => false,
      ownsIpip: true,
    }),
    logger: silentLogger,
    forgetConnections: (addresses) => void forgotten.push(...addresses),
    now: () => now,
  });
  const up = (name: string, index: number) => table.onInterface({ type: "interfaceState", name, index, state: "up" });
  return {
    table,
    done,
    forgotten,
    up,
    apply: () => (table.apply(), done.splice(0)),
    wait: (ms: number) => (now += ms),
  };
}
const route = (destination: string, link: number, protocol = 3): Route => ({
  destination: destination as Cidr,
  table: 254,
  type: "unicast",
  protocol,
  scope: "link",
  tos: 0,
  priority: 1024,
  link,
  onlink: false,
  isDead: false,
});
const wanted = (interfaceName: string) =>
  ({ destination: "10.0.0.1/32" as Cidr, interfaceName, scope: "link", protocol: 3, priority: 1024 }) as const;

test("FD-124 the class decides, then the newest interface; a down interface does not compete", () => {
  const { table, up, apply } = open();
  up("cali1", 5);
  up("cali2", 7);
  table.set("vxlanTunnel", { ...wanted("cali2"), interfaceName: "vxlan.calico" });
  table.set("localWorkload", wanted("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  table.set("localWorkload", wanted("cali2"));
  expect(apply()).toEqual(["delete 10.0.0.1/32", "replace 10.0.0.1/32 dev 7"]);
  table.onInterface({ type: "interfaceState", name: "cali2", index: 7, state: "down" });
  expect(apply()).toEqual(["delete 10.0.0.1/32 dev 7", "replace 10.0.0.1/32 dev 5"]);
});

test("FD-124 the route of an interface that lost its carrier goes, and comes back with it; connections go on", () => {
  const { table, up, apply, forgotten } = open();
  up("cali1", 5);
  table.set("localWorkload", wanted("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "down" });
  expect(apply()).toEqual(["delete 10.0.0.1/32 dev 5"]);
  expect(apply()).toEqual([]);
  up("cali1", 5);
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  // Off and on again before we looked: the kernel dropped it.
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "down" });
  up("cali1", 5);
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  expect(forgotten).toEqual([]);
});

test("FD-126 connections of an address that moved or went are forgotten", () => {
  const { table, up, apply, forgotten } = open();
  up("cali1", 5);
  table.set("localWorkload", wanted("cali1"));
  apply();
  expect(forgotten).toEqual([]);
  table.remove("localWorkload", wanted("cali1"));
  expect(apply()).toEqual(["delete 10.0.0.1/32"]);
  expect(forgotten).toEqual(["10.0.0.1" as IpAddress]);
});

test("FD-126 connections of a workload that is unknown since the start are forgotten with its interface", () => {
  const { table, up, apply, forgotten } = open([route("10.0.0.9/32", 5)]);
  up("cali1", 5);
  expect(apply()).toEqual([]); // the endpoint may still be reported
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "gone" });
  apply();
  expect(forgotten).toEqual(["10.0.0.9" as IpAddress]);
});

test("FD-126 connections are forgotten although the interface is down when the route is removed", () => {
  const { table, up, apply, forgotten } = open();
  up("cali1", 5);
  table.set("localWorkload", wanted("cali1"));
  apply();
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "down" });
  table.remove("localWorkload", wanted("cali1"));
  apply();
  expect(forgotten).toEqual(["10.0.0.1" as IpAddress]);
});

test("FD-127 a route that only changes its priority is there all the time, and its connections go on", () => {
  const { table, up, apply, forgotten } = open();
  up("cali1", 5);
  up("cali2", 7);
  table.set("localWorkload", wanted("cali1"));
  apply();
  table.remove("localWorkload", wanted("cali1"));
  table.set("localWorkload", { ...wanted("cali1"), priority: 512 });
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5", "delete 10.0.0.1/32"]);
  expect(forgotten).toEqual([]);
  // By another interface it is another workload's: the old way goes first.
  table.remove("localWorkload", { ...wanted("cali1"), priority: 512 });
  table.set("localWorkload", wanted("cali2"));
  expect(apply()).toEqual(["delete 10.0.0.1/32", "replace 10.0.0.1/32 dev 7"]);
  expect(forgotten).toEqual(["10.0.0.1" as IpAddress]);
});

test("FD-127 where nothing may lead, not even a route the CNI plugin just wrote does", () => {
  const plugin = { ...route("10.0.0.1/32", 5), priority: 0 };
  const { table, up, apply, wait } = open([plugin]);
  up("cali1", 5);
  expect(apply()).toEqual([]); // it has ten seconds
  table.forbid("10.0.0.1/32" as Cidr);
  expect(apply()).toEqual(["delete 10.0.0.1/32"]);
  wait(11_000);
  expect(apply()).toEqual([]);
});

test("FD-123 FD-125 foreign routes stay; an unknown one on a new workload interface has ten seconds", () => {
  const { up, apply, wait } = open([route("10.9.9.9/32", 5), route("192.0.2.0/24", 2, 2), route("10.7.0.0/16", 2, 80)]);
  up("cali1", 5);
  up("eth0", 2);
  expect(apply()).toEqual(["delete 10.7.0.0/16"]); // ours by its protocol
  wait(11_000);
  expect(apply()).toEqual(["delete 10.9.9.9/32"]);
});

test("FD-125 an unknown route goes at once when its interface has a route of ours, after that one is written", () => {
  const { table, up, apply } = open([route("10.0.0.9/32", 5)]);
  up("cali1", 5);
  expect(apply()).toEqual([]);
  table.set("localWorkload", wanted("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5", "delete 10.0.0.9/32"]);
  expect(apply()).toEqual([]);
});

test("FD-125 the plugin's route without a priority is deleted once: a second time would take ours", () => {
  const { table, up, apply, wait } = open([{ ...route("10.0.0.1/32", 5), priority: 0 }]);
  up("cali1", 5);
  expect(apply()).toEqual([]);
  table.set("localWorkload", wanted("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5", "delete 10.0.0.1/32"]);
  wait(11_000);
  expect(apply()).toEqual([]);
});

test("FD-010 a route never lands on an interface that was renamed, whichever news comes first", () => {
  const { table, up, apply } = open();
  table.set("localWorkload", {
    destination: "10.65.0.3/32" as Cidr,
    interfaceName: "cali1",
    protocol: 3,
    priority: 1024,
  });
  up("cali1", 7);
  expect(apply()).toEqual(["replace 10.65.0.3/32 dev 7"]);
  up("elsewhere", 7); // the same link under another name, before the old name is told to be gone
  expect(apply()).toEqual([]);
  table.onInterface({ type: "interfaceState", name: "cali1", index: 7, state: "gone" });
  expect(apply()).toEqual([]);
  up("cali1", 7);
  expect(apply()).toEqual(["replace 10.65.0.3/32 dev 7"]);
});

test("interfaces and routes that are gone leave nothing in memory", async () => {
  const { table, up, apply, forgotten } = open();
  const left = await objectsLeftPerRound((number) => {
    const name = `cali${number}`;
    const destination = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}/32` as Cidr;
    up(name, number + 10);
    table.set("localWorkload", { ...wanted(name), destination });
    apply();
    table.remove("localWorkload", { ...wanted(name), destination });
    table.onInterface({ type: "interfaceState", name, index: number + 10, state: "gone" });
    apply();
    forgotten.length = 0;
  });
  expect(left).toBeLessThan(0.5);
  expect(table.size).toEqual({ routes: 0, interfaces: 0 });
});

test("a route that two classes want by one interface still follows the interface when one class is gone", () => {
  const { table, up, apply } = open();
  up("cali1", 5);
  table.set("localWorkload", wanted("cali1"));
  table.set("noEncap", wanted("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  table.remove("noEncap", wanted("cali1"));
  expect(apply()).toEqual([]);
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "gone" });
  expect(apply()).toEqual([]);
  up("cali1", 8);
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 8"]);
});
