import { expect, test } from "bun:test";
import { block, LOCAL, node, pool, REMOTE, REMOTE2, wep } from "../testing/build.ts";
import { GraphBench } from "../testing/run.ts";
import { summarize } from "../testing/summary.ts";
import { defaultMac } from "./vteps.ts";

const routes = (bench: GraphBench) => summarize(bench.dataplane, []).routes;
const us = node(LOCAL, { ip: "192.168.0.1/24" });
const them = node(REMOTE, { ip: "192.168.0.2/24" });

test("FC-072 a block's route tells its pool, its node and whether that is a neighbour", () => {
  const bench = new GraphBench();
  bench
    .give(
      pool("10.0.0.0/16", { vxlanMode: "cross-subnet", masquerade: true }),
      ...us,
      ...them,
      block("10.0.1.0/29", REMOTE),
    )
    .inSync();
  const route = () => routes(bench)["10.0.1.0/29"];
  expect(route()).toBe(`vxlan remoteWorkload ${REMOTE}=192.168.0.2 sameSubnet natOutgoing`);
  bench.give(...node(REMOTE, { ip: "192.168.1.2/24" })).flush();
  expect(route()).toBe(`vxlan remoteWorkload ${REMOTE}=192.168.1.2 natOutgoing`);
  bench.give(...node(LOCAL, { ip: "192.168.0.1/16" })).flush();
  expect(route()).toBe(`vxlan remoteWorkload ${REMOTE}=192.168.1.2 sameSubnet natOutgoing`);
  bench.give(pool("10.0.0.0/16", { ipipMode: "always" })).flush();
  expect(route()).toBe(`ipip remoteWorkload ${REMOTE}=192.168.1.2`);
  bench.remove(pool("10.0.0.0/16")).flush();
  expect(route()).toBe(`none remoteWorkload ${REMOTE}=192.168.1.2`);
});

test("FC-073 what another node holds in a block is borrowed; a host's address in a block stays a host's", () => {
  const bench = new GraphBench();
  bench.give(
    pool("192.168.0.0/16", {}),
    ...us,
    ...them,
    block("192.168.0.0/29", REMOTE, { 3: LOCAL, 4: REMOTE2 }),
    wep("ep1", { nets: ["192.168.0.3/32"] }),
  );
  bench.inSync();
  expect(routes(bench)).toMatchObject({
    "192.168.0.1/32": `no-encap localHost ${LOCAL}=192.168.0.1`,
    "192.168.0.2/32": `no-encap remoteHost ${REMOTE}=192.168.0.2`,
    "192.168.0.3/32": `no-encap remoteWorkload+localWorkload ${LOCAL}=192.168.0.1 localWorkload borrowed`,
    "192.168.0.4/32": `no-encap remoteWorkload ${REMOTE2}= borrowed`,
  });
  bench.give(block("192.168.0.0/29", LOCAL, { 3: LOCAL })).flush();
  expect(routes(bench)["192.168.0.3/32"]).toBe(`no-encap localWorkload ${LOCAL}=192.168.0.1 localWorkload`);
  expect(routes(bench)["192.168.0.4/32"]).toBeUndefined();
});

test("FC-073 a tunnel's address is a tunnel's, not a workload's", () => {
  const bench = new GraphBench();
  bench.give(
    pool("10.0.0.0/16", { vxlanMode: "always" }),
    ...us,
    ...node(REMOTE, { ip: "192.168.0.2/24", vxlan: "10.0.1.1", wireguard: "10.0.1.1" }),
    block("10.0.1.0/29", REMOTE, { 1: REMOTE }),
  );
  bench.inSync();
  expect(routes(bench)["10.0.1.1/32"]).toBe(`vxlan remoteTunnel ${REMOTE}=192.168.0.2 tunnel:vxlan tunnel:wireguard`);
});

test("FC-074 routes from workloads: every workload of the cluster, blocks of none", () => {
  const bench = new GraphBench({ routes: "workloads" });
  const shared = (name: string, host: string) => wep(name, { host, nets: ["10.0.0.5/32"] });
  bench
    .give(pool("10.0.0.0/16"), ...us, ...them, block("10.0.0.0/29", REMOTE), shared("a", REMOTE), shared("b", REMOTE2))
    .inSync();
  expect(routes(bench)["10.0.0.0/29"]).toBeUndefined();
  expect(routes(bench)["10.0.0.5/32"]).toBe(`no-encap remoteWorkload ${REMOTE2}=`);
  bench.remove(shared("b", REMOTE2)).flush();
  expect(routes(bench)["10.0.0.5/32"]).toBe(`no-encap remoteWorkload ${REMOTE}=192.168.0.2`);
});

test("FC-075 each family has its own node address and neighbours", () => {
  const bench = new GraphBench();
  bench.give(
    pool("10.0.0.0/16", { vxlanMode: "cross-subnet" }),
    pool("fd00:10::/48", { vxlanMode: "cross-subnet" }),
    ...node(LOCAL, { ip: "192.168.0.1/24", ip6: "fd00::1/64" }),
    ...node(REMOTE, { ip: "192.168.0.2/24", ip6: "fd01::2/64" }),
    block("10.0.1.0/29", REMOTE),
    block("fd00:10::8/125", REMOTE),
  );
  bench.inSync();
  expect(routes(bench)["10.0.1.0/29"]).toBe(`vxlan remoteWorkload ${REMOTE}=192.168.0.2 sameSubnet`);
  expect(routes(bench)["fd00:10::8/125"]).toBe(`vxlan remoteWorkload ${REMOTE}=fd01::2`);
});

test("FC-076 a pool for load balancers gives no pool type, and its NAT flag counts", () => {
  const bench = new GraphBench();
  bench
    .give(
      pool("10.0.0.0/16", { allowedUses: ["LoadBalancer"], masquerade: true, vxlanMode: "always" }),
      block("10.0.0.0/29", REMOTE),
    )
    .inSync();
  expect(routes(bench)).toEqual({
    "10.0.0.0/16": "none cidrInfo natOutgoing",
    "10.0.0.0/29": `none remoteWorkload ${REMOTE}= natOutgoing`,
  });
});

test("FC-077 FC-078 a tunnel endpoint needs the node's and the tunnel's address; its MAC is set or follows from the name", () => {
  expect(defaultMac("remotehostname", 4)).toBe("66:3e:ca:a4:db:65");
  const bench = new GraphBench();
  const vteps = () => summarize(bench.dataplane, []).vteps;
  bench.give(...node(REMOTE, { vxlan: "10.0.1.0" })).inSync();
  expect(vteps()).toEqual({});
  bench.give(...node(REMOTE, { ip: "192.168.0.2/24", vxlan: "10.0.1.0" })).flush();
  expect(vteps()[REMOTE]).toBe("66:3e:ca:a4:db:65 10.0.1.0 192.168.0.2");
  bench
    .give(
      ...node(REMOTE, {
        ip: "192.168.0.2/24",
        vxlan: "10.0.1.0",
        mac: "66:00:00:00:00:01",
        ip6: "fd00::2/64",
        vxlan6: "fd00:1::",
      }),
    )
    .flush();
  expect(vteps()[REMOTE]).toBe(`66:00:00:00:00:01 10.0.1.0 192.168.0.2 ${defaultMac(REMOTE, 6)} fd00:1:: fd00::2`);
  bench.remove(...node(REMOTE, { vxlan: "10.0.1.0" })).flush();
  expect(vteps()[REMOTE]).toBeUndefined();
});

test("what a node says of its tunnel that is no MAC or address is not what all others must write", () => {
  const bench = new GraphBench();
  const vteps = () => summarize(bench.dataplane, []).vteps;
  bench.give(...node(REMOTE, { ip: "192.168.0.2/24", vxlan: "10.0.1.0", mac: "66:00:00:00:00:01; reboot" })).inSync();
  expect(vteps()[REMOTE]).toBe(`${defaultMac(REMOTE, 4)} 10.0.1.0 192.168.0.2`);
  for (const name of ["IPv4VXLANTunnelAddr", "constructor"])
    bench.give({ key: { type: "hostConfig", host: REMOTE, name }, value: "10.0.1" }).flush();
  expect(vteps()[REMOTE]).toBeUndefined();
});

test("a route is said once, and only when it changes", () => {
  const bench = new GraphBench();
  bench.give(pool("10.0.0.0/16"), ...us, ...them, block("10.0.1.0/29", REMOTE)).inSync();
  const before = bench.dataplane.messages;
  bench.give(block("10.0.1.0/29", REMOTE, { 1: REMOTE }), ...them).flush();
  expect(bench.dataplane.messages).toBe(before);
});
