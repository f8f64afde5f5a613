import { expect, test } from "bun:test";
import type { Route, RouteChange } from "../../kernel/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { silentLogger } from "../../lib/log/log.ts";
import { objectsLeftPerRound } from "../../lib/testing/heap-growth.ts";
import { mainTableOwnership } from "./ownership.ts";
import { RouteTable } from "./route-table.ts";

function open(existing: Route[] = []) {
  const done: string[] = [];
  const flushed: IpAddress[] = [];
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
    flushConnections: (addresses) => void flushed.push(...addresses),
    nowMs: () => now,
  });
  const up = (name: string, index: number) => table.onInterface({ type: "interfaceState", name, index, state: "up" });
  return {
    table,
    done,
    flushed,
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
const desired = (interfaceName: string) =>
  ({ destination: "10.0.0.1/32" as Cidr, interfaceName, scope: "link", protocol: 3, priority: 1024 }) as const;

test("FD-124 the class decides, then the newest interface; a down interface is ignored", () => {
  const { table, up, apply } = open();
  up("cali1", 5);
  up("cali2", 7);
  table.set("vxlanTunnel", { ...desired("cali2"), interfaceName: "vxlan.calico" });
  table.set("localWorkload", desired("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  table.set("localWorkload", desired("cali2"));
  expect(apply()).toEqual(["delete 10.0.0.1/32", "replace 10.0.0.1/32 dev 7"]);
  table.onInterface({ type: "interfaceState", name: "cali2", index: 7, state: "down" });
  expect(apply()).toEqual(["delete 10.0.0.1/32 dev 7", "replace 10.0.0.1/32 dev 5"]);
});

test("FD-124 the route of an interface without carrier is deleted, and written again with the carrier; connections continue", () => {
  const { table, up, apply, flushed } = open();
  up("cali1", 5);
  table.set("localWorkload", desired("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "down" });
  expect(apply()).toEqual(["delete 10.0.0.1/32 dev 5"]);
  expect(apply()).toEqual([]);
  up("cali1", 5);
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  // Down and up again within one round: the kernel has removed the route.
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "down" });
  up("cali1", 5);
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  expect(flushed).toEqual([]);
});

test("FD-126 connections of an address that moved or was removed are flushed", () => {
  const { table, up, apply, flushed } = open();
  up("cali1", 5);
  table.set("localWorkload", desired("cali1"));
  apply();
  expect(flushed).toEqual([]);
  table.remove("localWorkload", desired("cali1"));
  expect(apply()).toEqual(["delete 10.0.0.1/32"]);
  expect(flushed).toEqual(["10.0.0.1" as IpAddress]);
});

test("FD-126 connections of a workload that was never reported are flushed when its interface is deleted", () => {
  const { table, up, apply, flushed } = open([route("10.0.0.9/32", 5)]);
  up("cali1", 5);
  expect(apply()).toEqual([]); // the endpoint may still be reported
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "gone" });
  apply();
  expect(flushed).toEqual(["10.0.0.9" as IpAddress]);
});

test("FD-126 connections are flushed although the interface is down when the route is removed", () => {
  const { table, up, apply, flushed } = open();
  up("cali1", 5);
  table.set("localWorkload", desired("cali1"));
  apply();
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "down" });
  table.remove("localWorkload", desired("cali1"));
  apply();
  expect(flushed).toEqual(["10.0.0.1" as IpAddress]);
});

test("FD-127 a route whose priority changes exists all the time, and its connections continue", () => {
  const { table, up, apply, flushed } = open();
  up("cali1", 5);
  up("cali2", 7);
  table.set("localWorkload", desired("cali1"));
  apply();
  table.remove("localWorkload", desired("cali1"));
  table.set("localWorkload", { ...desired("cali1"), priority: 512 });
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5", "delete 10.0.0.1/32"]);
  expect(flushed).toEqual([]);
  // Another interface means another workload: the old route is deleted first.
  table.remove("localWorkload", { ...desired("cali1"), priority: 512 });
  table.set("localWorkload", desired("cali2"));
  expect(apply()).toEqual(["delete 10.0.0.1/32", "replace 10.0.0.1/32 dev 7"]);
  expect(flushed).toEqual(["10.0.0.1" as IpAddress]);
});

test("FD-127 a forbidden route is deleted even if the CNI plugin has just written it", () => {
  const plugin = { ...route("10.0.0.1/32", 5), priority: 0 };
  const { table, up, apply, wait } = open([plugin]);
  up("cali1", 5);
  expect(apply()).toEqual([]); // within the grace period
  table.forbid("10.0.0.1/32" as Cidr);
  expect(apply()).toEqual(["delete 10.0.0.1/32"]);
  wait(11_000);
  expect(apply()).toEqual([]);
});

test("FD-123 FD-125 routes of other programs stay; an unknown one on a new workload interface stays for ten seconds", () => {
  const { up, apply, wait } = open([route("10.9.9.9/32", 5), route("192.0.2.0/24", 2, 2), route("10.7.0.0/16", 2, 80)]);
  up("cali1", 5);
  up("eth0", 2);
  expect(apply()).toEqual(["delete 10.7.0.0/16"]); // owned because of its protocol
  wait(11_000);
  expect(apply()).toEqual(["delete 10.9.9.9/32"]);
});

test("FD-125 an unknown route is deleted as soon as a route on its interface is written", () => {
  const { table, up, apply } = open([route("10.0.0.9/32", 5)]);
  up("cali1", 5);
  expect(apply()).toEqual([]);
  table.set("localWorkload", desired("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5", "delete 10.0.0.9/32"]);
  expect(apply()).toEqual([]);
});

test("FD-125 the plugin's route without a priority is deleted only once, because a second deletion would hit another route", () => {
  const { table, up, apply, wait } = open([{ ...route("10.0.0.1/32", 5), priority: 0 }]);
  up("cali1", 5);
  expect(apply()).toEqual([]);
  table.set("localWorkload", desired("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5", "delete 10.0.0.1/32"]);
  wait(11_000);
  expect(apply()).toEqual([]);
});

test("FD-010 a route is never written to a renamed interface, in either order of the events", () => {
  const { table, up, apply } = open();
  table.set("localWorkload", {
    destination: "10.65.0.3/32" as Cidr,
    interfaceName: "cali1",
    protocol: 3,
    priority: 1024,
  });
  up("cali1", 7);
  expect(apply()).toEqual(["replace 10.65.0.3/32 dev 7"]);
  up("elsewhere", 7); // the same link under another name, before the event that the old name is gone
  expect(apply()).toEqual([]);
  table.onInterface({ type: "interfaceState", name: "cali1", index: 7, state: "gone" });
  expect(apply()).toEqual([]);
  up("cali1", 7);
  expect(apply()).toEqual(["replace 10.65.0.3/32 dev 7"]);
});

test("deleted interfaces and routes use no memory", async () => {
  const { table, up, apply, flushed } = open();
  const left = await objectsLeftPerRound((number) => {
    const name = `cali${number}`;
    const destination = `10.${(number >> 16) & 255}.${(number >> 8) & 255}.${number & 255}/32` as Cidr;
    up(name, number + 10);
    table.set("localWorkload", { ...desired(name), destination });
    apply();
    table.remove("localWorkload", { ...desired(name), destination });
    table.onInterface({ type: "interfaceState", name, index: number + 10, state: "gone" });
    apply();
    flushed.length = 0;
  });
  expect(left).toBeLessThan(0.5);
  expect(table.size).toEqual({ routes: 0, interfaces: 0 });
});

test("a route that two classes set on one interface follows the interface after one class removed it", () => {
  const { table, up, apply } = open();
  up("cali1", 5);
  table.set("localWorkload", desired("cali1"));
  table.set("noEncap", desired("cali1"));
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 5"]);
  table.remove("noEncap", desired("cali1"));
  expect(apply()).toEqual([]);
  table.onInterface({ type: "interfaceState", name: "cali1", index: 5, state: "gone" });
  expect(apply()).toEqual([]);
  up("cali1", 8);
  expect(apply()).toEqual(["replace 10.0.0.1/32 dev 8"]);
});
