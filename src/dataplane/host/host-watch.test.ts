import { expect, test } from "bun:test";
import { memoryRtnetlink } from "../../kernel/index.ts";
import { HostWatch } from "./host-watch.ts";
import { hostMtu } from "./mtu.ts";

const PATTERN = /^eth/;

function open(given: { ipvs?: boolean; currentBackend?: () => string } = {}) {
  const { links } = memoryRtnetlink();
  links.create({ name: "eth0", type: { kind: "dummy" }, mtu: 1500 });
  links.set("eth0", { up: true });
  const reasons: string[] = [];
  const watch = new HostWatch({
    links: () => links.list(),
    mtuPattern: PATTERN,
    mtu: hostMtu(links.list(), PATTERN),
    ipvs: given.ipvs ?? false,
    backend: "nftables",
    currentBackend: given.currentBackend,
    onChange: (reason) => reasons.push(reason),
  });
  return { links, watch, reasons };
}

test("FD-014 a change of the host's MTU requires a restart; other changes of links do not", () => {
  const { links, watch, reasons } = open();
  links.create({ name: "cali1", type: { kind: "dummy" }, mtu: 1280 });
  links.set("cali1", { up: true });
  watch.checkMtu();
  expect(reasons).toEqual([]);
  links.set("eth0", { mtu: 9000 });
  watch.checkMtu();
  expect(reasons).toEqual(["the host's MTU changed from 1500 to 9000"]);
});

test("FD-014 a restart is required if the IPVS device of kube-proxy appears or disappears", () => {
  const without = open();
  without.watch.onLink("eth1", true);
  without.watch.onLink("kube-ipvs0", false);
  expect(without.reasons).toEqual([]);
  without.watch.onLink("kube-ipvs0", true);
  expect(without.reasons).toEqual(["kube-proxy started to use IPVS"]);
  const having = open({ ipvs: true });
  having.watch.onLink("kube-ipvs0", true);
  having.watch.onLink("kube-ipvs0", false);
  expect(having.reasons).toEqual(["kube-proxy stopped using IPVS"]);
});

test("FD-015 with NFTablesMode Auto, a restart is required if another backend would be selected", () => {
  let now = "nftables";
  const { watch, reasons } = open({ currentBackend: () => now });
  watch.checkBackend();
  expect(reasons).toEqual([]);
  now = "iptables";
  watch.checkBackend();
  expect(reasons).toEqual(["the backend for rules changed from nftables to iptables"]);
  const fixed = open(); // with NFTablesMode Enabled or Disabled, the backend is not checked
  fixed.watch.checkBackend();
  expect(fixed.reasons).toEqual([]);
});
