// Tests the warnings about resources that are valid, but probably not as intended: they are written, and the exit code is 0.
import { expect, test } from "bun:test";
import { CommandLine } from "../testing/command-line.ts";

const yaml = (kind: string, name: string, spec: object) =>
  `apiVersion: projectcalico.org/v3\nkind: ${kind}\nmetadata: {name: ${name}}\nspec: ${JSON.stringify(spec)}\n`;
const W1 = yaml("Node", "w1", { bgp: { ipv4Address: "10.20.30.5/24" } });
const W2 = yaml("Node", "w2", { bgp: { ipv4Address: "10.10.10.6/24" } });
const tor = (node: string) => yaml("BGPPeer", `tor-${node}`, { node, peerIP: "10.10.10.1", asNumber: 65001 });

test("a tunnel MTU that is too large for a network with an MTU of 1500", async () => {
  using line = new CommandLine();
  const felix = (spec: object) => yaml("FelixConfiguration", "default", spec);
  const large = await line.pipe(felix({ vxlanMTU: 9000 }), "apply", "-f", "-");
  expect(large.code).toBe(0);
  expect(large.err).toBe(
    "Warning: FelixConfiguration(default) spec.vxlanMTU is 9000: with the 50 bytes of VXLAN, all networks between nodes must carry packets of 9050 bytes (most carry 1500), otherwise large packets of pods are lost; 0 lets Felix detect the MTU\n",
  );
  for (const spec of [{ vxlanMTU: 1450, ipipMTU: 1480 }, { vxlanMTU: 0 }, {}])
    expect(await line.pipe(felix(spec), "apply", "-f", "-")).toMatchObject({ code: 0, err: "" });
  const patched = await line.run("patch", "felixconfiguration", "default", "-p", '{"spec":{"wireguardMTU":1500}}');
  expect(patched).toMatchObject({ code: 0, err: expect.stringContaining("spec.wireguardMTU is 1500") });
  const replaced = await line.pipe(felix({ ipipMTU: 1500 }), "replace", "-f", "-");
  expect(replaced).toMatchObject({ code: 0, err: expect.stringContaining("spec.ipipMTU is 1500") });
  await line.run("delete", "felixconfiguration", "default");
  expect(await line.pipe(felix({ vxlanMTUV6: 1450 }), "create", "-f", "-")).toMatchObject({
    code: 0,
    err: expect.stringContaining("spec.vxlanMTUV6 is 1450: with the 70 bytes"),
  });
});

test("a BGPPeer of a node that is in another network than the peer's other nodes", async () => {
  using line = new CommandLine();
  await line.given(W1, W2);
  expect(await line.pipe(tor("w2"), "apply", "-f", "-")).toMatchObject({ code: 0, err: "" });
  const applied = await line.pipe(tor("w1"), "apply", "-f", "-");
  expect(applied.code).toBe(0);
  expect(applied.err).toMatch(
    /^Warning: node w1 \(10\.20\.30\.5\) is not in the network of BGP peer 10\.10\.10\.1: .*\n$/,
  );
  expect(applied.err).toContain("IP_AUTODETECTION_METHOD=cidr=10.10.10.0/24");
  // Only the applied peers are examined.
  const other = yaml("BGPPeer", "far", { peerIP: "192.0.2.1", asNumber: 65001 });
  expect(await line.pipe(other, "apply", "-f", "-")).toMatchObject({ code: 0, err: "" });
});

test("a BGPPeer in the network of another interface that the node recorded", async () => {
  using line = new CommandLine();
  const interfaces = [
    { name: "eth0", addresses: ["10.10.10.5"] },
    { name: "eth1", addresses: ["10.20.30.5"] },
  ];
  await line.given(yaml("Node", "w1", { bgp: { ipv4Address: "10.20.30.5/24" }, interfaces }));
  const applied = await line.pipe(tor("w1"), "apply", "-f", "-");
  expect(applied).toMatchObject({ code: 0, err: expect.stringContaining("IP_AUTODETECTION_METHOD=interface=eth0") });
});
