import { expect, test } from "bun:test";
import { block, LOCAL, node, pool, REMOTE, REMOTE2, wep } from "../testing/build.ts";
import { GraphHarness } from "../testing/run.ts";
import { summarize } from "../testing/summary.ts";
import { defaultMac } from "./vteps.ts";

const routes = (harness: GraphHarness) => summarize(harness.dataplane, []).routes;
const localNode = node(LOCAL, { ip: "192.168.0.1/24" });
const remoteNode = node(REMOTE, { ip: "192.168.0.2/24" });

test("FC-072 the route of a block contains its pool type, its node and whether the node is in the same subnet", () => {
  const harness = new GraphHarness();
  harness
    .update(
      pool("10.0.0.0/16", { vxlanMode: "cross-subnet", masquerade: true }),
      ...localNode,
      ...remoteNode,
      block("10.0.1.0/29", REMOTE),
    )
    .inSync();
  const route = () => routes(harness)["10.0.1.0/29"];
  expect(route()).toBe(`vxlan remoteWorkload ${REMOTE}=192.168.0.2 sameSubnet natOutgoing`);
  harness.update(...node(REMOTE, { ip: "192.168.1.2/24" })).flush();
  expect(route()).toBe(`vxlan remoteWorkload ${REMOTE}=192.168.1.2 natOutgoing`);
  harness.update(...node(LOCAL, { ip: "192.168.0.1/16" })).flush();
  expect(route()).toBe(`vxlan remoteWorkload ${REMOTE}=192.168.1.2 sameSubnet natOutgoing`);
  harness.update(pool("10.0.0.0/16", { ipipMode: "always" })).flush();
  expect(route()).toBe(`ipip remoteWorkload ${REMOTE}=192.168.1.2`);
  harness.remove(pool("10.0.0.0/16")).flush();
  expect(route()).toBe(`none remoteWorkload ${REMOTE}=192.168.1.2`);
});

test("FC-073 an address of another node in a block is borrowed; a host address in a block keeps its host type", () => {
  const harness = new GraphHarness();
  harness.update(
    pool("192.168.0.0/16", {}),
    ...localNode,
    ...remoteNode,
    block("192.168.0.0/29", REMOTE, { 3: LOCAL, 4: REMOTE2 }),
    wep("ep1", { nets: ["192.168.0.3/32"] }),
  );
  harness.inSync();
  expect(routes(harness)).toMatchObject({
    "192.168.0.1/32": `no-encap localHost ${LOCAL}=192.168.0.1`,
    "192.168.0.2/32": `no-encap remoteHost ${REMOTE}=192.168.0.2`,
    "192.168.0.3/32": `no-encap remoteWorkload+localWorkload ${LOCAL}=192.168.0.1 localWorkload borrowed`,
    "192.168.0.4/32": `no-encap remoteWorkload ${REMOTE2}= borrowed`,
  });
  harness.update(block("192.168.0.0/29", LOCAL, { 3: LOCAL })).flush();
  expect(routes(harness)["192.168.0.3/32"]).toBe(`no-encap localWorkload ${LOCAL}=192.168.0.1 localWorkload`);
  expect(routes(harness)["192.168.0.4/32"]).toBeUndefined();
});

test("FC-073 a tunnel address in a block has the type tunnel, not workload", () => {
  const harness = new GraphHarness();
  harness.update(
    pool("10.0.0.0/16", { vxlanMode: "always" }),
    ...localNode,
    ...node(REMOTE, { ip: "192.168.0.2/24", vxlan: "10.0.1.1", wireguard: "10.0.1.1" }),
    block("10.0.1.0/29", REMOTE, { 1: REMOTE }),
  );
  harness.inSync();
  expect(routes(harness)["10.0.1.1/32"]).toBe(`vxlan remoteTunnel ${REMOTE}=192.168.0.2 tunnel:vxlan tunnel:wireguard`);
});

test("FC-074 with routes from workloads, every workload of the cluster has a route and blocks have none", () => {
  const harness = new GraphHarness({ routes: "workloads" });
  const shared = (name: string, host: string) => wep(name, { host, nets: ["10.0.0.5/32"] });
  harness
    .update(
      pool("10.0.0.0/16"),
      ...localNode,
      ...remoteNode,
      block("10.0.0.0/29", REMOTE),
      shared("a", REMOTE),
      shared("b", REMOTE2),
    )
    .inSync();
  expect(routes(harness)["10.0.0.0/29"]).toBeUndefined();
  expect(routes(harness)["10.0.0.5/32"]).toBe(`no-encap remoteWorkload ${REMOTE2}=`);
  harness.remove(shared("b", REMOTE2)).flush();
  expect(routes(harness)["10.0.0.5/32"]).toBe(`no-encap remoteWorkload ${REMOTE}=192.168.0.2`);
});

test("FC-075 node address and same-subnet flag are separate for each IP family", () => {
  const harness = new GraphHarness();
  harness.update(
    pool("10.0.0.0/16", { vxlanMode: "cross-subnet" }),
    pool("fd00:10::/48", { vxlanMode: "cross-subnet" }),
    ...node(LOCAL, { ip: "192.168.0.1/24", ip6: "fd00::1/64" }),
    ...node(REMOTE, { ip: "192.168.0.2/24", ip6: "fd01::2/64" }),
    block("10.0.1.0/29", REMOTE),
    block("fd00:10::8/125", REMOTE),
  );
  harness.inSync();
  expect(routes(harness)["10.0.1.0/29"]).toBe(`vxlan remoteWorkload ${REMOTE}=192.168.0.2 sameSubnet`);
  expect(routes(harness)["fd00:10::8/125"]).toBe(`vxlan remoteWorkload ${REMOTE}=fd01::2`);
});

test("FC-076 a pool for load balancers has the pool type none; its natOutgoing applies", () => {
  const harness = new GraphHarness();
  harness
    .update(
      pool("10.0.0.0/16", { allowedUses: ["LoadBalancer"], masquerade: true, vxlanMode: "always" }),
      block("10.0.0.0/29", REMOTE),
    )
    .inSync();
  expect(routes(harness)).toEqual({
    "10.0.0.0/16": "none cidrInfo natOutgoing",
    "10.0.0.0/29": `none remoteWorkload ${REMOTE}= natOutgoing`,
  });
});

test("FC-077 FC-078 a VTEP needs the node address and the tunnel address; its MAC is configured or a hash of the node name", () => {
  expect(defaultMac("remotehostname", 4)).toBe("66:3e:ca:a4:db:65");
  const harness = new GraphHarness();
  const vteps = () => summarize(harness.dataplane, []).vteps;
  harness.update(...node(REMOTE, { vxlan: "10.0.1.0" })).inSync();
  expect(vteps()).toEqual({});
  harness.update(...node(REMOTE, { ip: "192.168.0.2/24", vxlan: "10.0.1.0" })).flush();
  expect(vteps()[REMOTE]).toBe("66:3e:ca:a4:db:65 10.0.1.0 192.168.0.2");
  harness
    .update(
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
  harness.remove(...node(REMOTE, { vxlan: "10.0.1.0" })).flush();
  expect(vteps()[REMOTE]).toBeUndefined();
});

test("ignores invalid MAC and IP addresses in the tunnel settings of a node", () => {
  const harness = new GraphHarness();
  const vteps = () => summarize(harness.dataplane, []).vteps;
  harness
    .update(...node(REMOTE, { ip: "192.168.0.2/24", vxlan: "10.0.1.0", mac: "66:00:00:00:00:01; reboot" }))
    .inSync();
  expect(vteps()[REMOTE]).toBe(`${defaultMac(REMOTE, 4)} 10.0.1.0 192.168.0.2`);
  for (const name of ["IPv4VXLANTunnelAddr", "constructor"])
    harness.update({ key: { type: "hostConfig", host: REMOTE, name }, value: "10.0.1" }).flush();
  expect(vteps()[REMOTE]).toBeUndefined();
});

test("emits a route only when it changes", () => {
  const harness = new GraphHarness();
  harness.update(pool("10.0.0.0/16"), ...localNode, ...remoteNode, block("10.0.1.0/29", REMOTE)).inSync();
  const before = harness.dataplane.messages;
  harness.update(block("10.0.1.0/29", REMOTE, { 1: REMOTE }), ...remoteNode).flush();
  expect(harness.dataplane.messages).toBe(before);
});
