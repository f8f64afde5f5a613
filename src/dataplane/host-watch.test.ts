import { expect, test } from "bun:test";
import { memoryRouteKernel } from "../kernel/index.ts";
import { HostWatch } from "./host-watch.ts";
import { hostMtu } from "./mtu.ts";

const PATTERN = /^eth/;

function open(given: { ipvs?: boolean; backendNow?: () => string } = {}) {
  const { links } = memoryRouteKernel();
  links.create({ name: "eth0", type: { kind: "dummy" }, mtu: 1500 });
  links.set("eth0", { up: true });
  const reasons: string[] = [];
  const watch = new HostWatch({
    links: () => links.list(),
    mtuPattern: PATTERN,
    mtu: hostMtu(links.list(), PATTERN),
    ipvs: given.ipvs ?? false,
    backend: "nftables",
    ...(given.backendNow === undefined ? {} : { backendNow: given.backendNow }),
    onChange: (reason) => reasons.push(reason),
  });
  return { links, watch, reasons };
}

test("FD-014 another MTU of the host is a reason to start again, any other change of links is none", () => {
  const { links, watch, reasons } = open();
  links.create({ name: "cali1", type: { kind: "dummy" }, mtu: 1280 });
  links.set("cali1", { up: true });
  watch.checkMtu();
  expect(reasons).toEqual([]);
  links.set("eth0", { mtu: 9000 });
  watch.checkMtu();
  expect(reasons).toEqual(["the host's MTU changed from 1500 to 9000"]);
});

test("FD-014 so is kube-proxy's IPVS device coming or going", () => {
  const without = open();
  without.watch.onLink("eth1", true);
  without.watch.onLink("kube-ipvs0", false);
  expect(without.reasons).toEqual([]);
  without.watch.onLink("kube-ipvs0", true);
  expect(without.reasons).toEqual(["kube-proxy began to use IPVS"]);
  const having = open({ ipvs: true });
  having.watch.onLink("kube-ipvs0", true);
  having.watch.onLink("kube-ipvs0", false);
  expect(having.reasons).toEqual(["kube-proxy no longer uses IPVS"]);
});

test("FD-015 with NFTablesMode Auto another answer than at the start is a reason to start again", () => {
  let now = "nftables";
  const { watch, reasons } = open({ backendNow: () => now });
  watch.checkBackend();
  expect(reasons).toEqual([]);
  now = "iptables";
  watch.checkBackend();
  expect(reasons).toEqual(["rules would now be written with iptables, not with nftables"]);
  const told = open(); // Enabled or Disabled: nobody asks again
  told.watch.checkBackend();
  expect(told.reasons).toEqual([]);
});
