import { expect, test } from "bun:test";
import type { KernelEvent, Link, Route } from "../../kernel/index.ts";
import type { Cidr, IpAddress } from "../../lib/ip.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { objectsLeftPerRound } from "../../lib/testing/heap-growth.ts";
import type { InterfaceMessage } from "../manager.ts";
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

test("FD-010 state is up only while the link runs", () => {
  const { subject, take } = monitor([link(1, "lo"), link(2, "eth0", false)]);
  subject.resync();
  expect(take()).toEqual(["lo up", "lo ", "eth0 down", "eth0 "]);
  subject.onEvents([linkEvent(link(2, "eth0"))]);
  expect(take()).toEqual(["eth0 up"]);
});

test("FD-010 a rename is the old name gone and the new one there", async () => {
  const { subject, take } = monitor([link(2, "eth0")], [local(2, "192.0.2.1")]);
  subject.resync();
  take();
  subject.onEvents([linkEvent(link(2, "wan0"))]);
  // At once: what is done for a name that is gone would hit whoever has the interface now.
  expect(take()).toEqual(["eth0 none", "eth0 gone", "wan0 up", "wan0 192.0.2.1"]);
  await Bun.sleep(20);
  expect(take()).toEqual([]);
});

test("FD-010 a new index for a name is told", async () => {
  const { subject, take } = monitor([link(2, "cali1")]);
  subject.resync();
  take();
  subject.onEvents([linkEvent(link(2, "cali1"), true), linkEvent(link(9, "cali1"))]);
  await Bun.sleep(20);
  expect(take()).toEqual(["cali1 up"]);
});

test("FD-011 addresses are those of local routes, of down interfaces too; excluded interfaces are silent", () => {
  const { subject, take } = monitor(
    [link(2, "eth0", false), link(3, "kube-ipvs0")],
    [local(2, "192.0.2.1"), local(2, "fd00::1"), local(3, "10.96.0.1")],
  );
  subject.resync();
  expect(take()).toEqual(["eth0 down", "eth0 192.0.2.1,fd00::1"]);
  subject.onEvents([addressEvent(2, "192.0.2.2"), addressEvent(3, "10.96.0.2")]);
  expect(take()).toEqual(["eth0 192.0.2.1,192.0.2.2,fd00::1"]);
});

test("FD-012 a flap is not told, nor an address that comes back at once", async () => {
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

test("FD-010 lost events mean reading again, and what vanished meanwhile is told", () => {
  const { subject, take, links } = monitor([link(2, "eth0"), link(3, "cali1")], [local(2, "192.0.2.1" as IpAddress)]);
  subject.resync();
  take();
  links.pop();
  subject.onEvents([{ type: "resync" }]);
  expect(take()).toEqual(["cali1 none", "cali1 gone"]);
});

test("FD-012 one that was switched off and on is told as both: the kernel dropped its routes without a word", async () => {
  const { subject, take } = monitor([link(2, "eth0")], []);
  subject.resync();
  take();
  subject.onEvents([linkEvent({ ...link(2, "eth0", false), isUp: false })]);
  subject.onEvents([linkEvent(link(2, "eth0"))]);
  await Bun.sleep(20);
  expect(take()).toEqual(["eth0 down", "eth0 up"]);
});

test("interfaces that are gone leave nothing in memory, whichever event comes last", async () => {
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
