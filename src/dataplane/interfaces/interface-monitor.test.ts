import { expect, test } from "bun:test";
import type { KernelEvent, Link, Route } from "../../kernel/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip/ip.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { objectsLeftPerRound } from "../../lib/testing/heap-growth.ts";
import type { InterfaceMessage } from "../loop/manager.ts";
import { InterfaceMonitor } from "./interface-monitor.ts";

const link = (index: number, name: string, isRunning = true): Link => ({
  index,
  name,
  mtu: 1500,
  isUp: true,
  isRunning,
  isLoopback: false,
  operState: "up",
});
const local = (index: number, address: string): Route => ({
  destination: `${address}/${address.includes(":") ? 128 : 32}` as Cidr,
  table: 255,
  type: "local",
  protocol: 2,
  scope: "host",
  tos: 0,
  priority: 0,
  link: index,
  onlink: false,
  isDead: false,
});
const linkEvent = (l: Link, isGone = false): KernelEvent => ({ type: "link", link: l, isGone });
const addressEvent = (index: number, address: string, isGone = false): KernelEvent => ({
  type: "route",
  route: local(index, address),
  isGone,
});

function monitor(links: Link[] = [], routes: Route[] = []) {
  const messages: string[] = [];
  const text = (m: InterfaceMessage) =>
    m.type === "interfaceState"
      ? `${m.name} ${m.state}`
      : `${m.name} ${m.addresses === undefined ? "none" : [...m.addresses].sort().join(",")}`;
  const subject = new InterfaceMonitor({
    kernel: {
      links: { list: () => links } as never,
      routes: {
        list: ({ version }: { version: number }) =>
          routes.filter((r) => r.destination.includes(":") === (version === 6)),
      } as never,
    },
    onMessage: (m) => messages.push(text(m)),
    isExcluded: (name) => name === "kube-ipvs0",
    dampingMs: 10,
  });
  const take = () => messages.splice(0);
  return { subject, take, links, routes };
}

test("FD-010 the state is up only while the link is running", () => {
  const { subject, take } = monitor([link(1, "lo"), link(2, "eth0", false)]);
  subject.resync();
  expect(take()).toEqual(["lo up", "lo ", "eth0 down", "eth0 "]);
  subject.onEvents([linkEvent(link(2, "eth0"))]);
  expect(take()).toEqual(["eth0 up"]);
});

test("FD-010 a rename is reported as the old name gone and the new name added", async () => {
  const { subject, take } = monitor([link(2, "eth0")], [local(2, "192.0.2.1")]);
  subject.resync();
  take();
  subject.onEvents([linkEvent(link(2, "wan0"))]);
  // Without delay: changes for the old name would affect the renamed interface.
  expect(take()).toEqual(["eth0 none", "eth0 gone", "wan0 up", "wan0 192.0.2.1"]);
  await Bun.sleep(20);
  expect(take()).toEqual([]);
});

test("FD-010 a new index of a name is reported", async () => {
  const { subject, take } = monitor([link(2, "cali1")]);
  subject.resync();
  take();
  subject.onEvents([linkEvent(link(2, "cali1"), true), linkEvent(link(9, "cali1"))]);
  await Bun.sleep(20);
  expect(take()).toEqual(["cali1 up"]);
});

test("FD-011 addresses are read from local routes, also of down interfaces; excluded interfaces are not reported", () => {
  const { subject, take } = monitor(
    [link(2, "eth0", false), link(3, "kube-ipvs0")],
    [local(2, "192.0.2.1"), local(2, "fd00::1"), local(3, "10.96.0.1")],
  );
  subject.resync();
  expect(take()).toEqual(["eth0 down", "eth0 192.0.2.1,fd00::1"]);
  subject.onEvents([addressEvent(2, "192.0.2.2"), addressEvent(3, "10.96.0.2")]);
  expect(take()).toEqual(["eth0 192.0.2.1,192.0.2.2,fd00::1"]);
});

test("FD-012 a flap is not reported, nor is an address that is removed and added at once", async () => {
  const { subject, take } = monitor([link(2, "eth0")], [local(2, "192.0.2.1")]);
  subject.resync();
  take();
  subject.onEvents([linkEvent(link(2, "eth0", false))]);
  subject.onEvents([addressEvent(2, "192.0.2.1", true)]);
  subject.onEvents([linkEvent(link(2, "eth0"))]);
  subject.onEvents([addressEvent(2, "192.0.2.1")]);
  await Bun.sleep(20);
  expect(take()).toEqual([]);
  subject.onEvents([linkEvent(link(2, "eth0", false))]);
  expect(take()).toEqual([]);
  await Bun.sleep(20);
  expect(take()).toEqual(["eth0 down"]);
  subject.onEvents([linkEvent(link(2, "eth0"))]);
  expect(take()).toEqual(["eth0 up"]);
});

test("FD-010 after lost events the interfaces are listed, and missing ones are reported", () => {
  const { subject, take, links } = monitor([link(2, "eth0"), link(3, "cali1")], [local(2, "192.0.2.1" as IpAddress)]);
  subject.resync();
  take();
  links.pop();
  subject.onEvents([{ type: "resync" }]);
  expect(take()).toEqual(["cali1 none", "cali1 gone"]);
});

test("FD-012 an interface that was set down and up is reported as down and up, because the kernel removed its routes", async () => {
  const { subject, take } = monitor([link(2, "eth0")], []);
  subject.resync();
  take();
  subject.onEvents([linkEvent({ ...link(2, "eth0", false), isUp: false })]);
  subject.onEvents([linkEvent(link(2, "eth0"))]);
  await Bun.sleep(20);
  expect(take()).toEqual(["eth0 down", "eth0 up"]);
});

test("deleted interfaces use no memory, whichever event comes last", async () => {
  const { subject, take } = monitor();
  const left = await objectsLeftPerRound(async (number) => {
    const index = number + 10;
    const down = { ...link(index, `cali${number}`, false), isUp: false };
    subject.onEvents([linkEvent(link(index, `cali${number}`)), addressEvent(index, "fe80::1")]);
    subject.onEvents([linkEvent(down), linkEvent(down, true), addressEvent(index, "fe80::1", true)]);
    if (number % 50 === 49) await eventually(() => take().includes(`cali${number} gone`));
  });
  expect(left).toBeLessThan(0.5);
}, 60_000);
