// Tests that Felix disables checksum offload on a VXLAN device if ChecksumOffloadBroken is set.
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { FelixProcess } from "../../support/felix-process.ts";
import { TestNamespace } from "../kernel/test-namespace.ts";

for (const [setting, state] of [
  ["true", "off"],
  ["false", "on"],
] as const)
  test(`FD-147 checksums of a VXLAN device are ${state} if ChecksumOffloadBroken is ${setting}`, async () => {
    using space = new TestNamespace("tunnelsum");
    space.run("ip", ["link", "add", "eth0", "type", "veth", "peer", "name", "eth1"]);
    for (const device of ["eth0", "eth1", "lo"]) space.run("ip", ["link", "set", device, "up"]);
    space.run("ip", ["addr", "add", "192.0.2.10/24", "dev", "eth0"]);
    await using felix = await FelixProcess.prepare();
    await felix.put("IPPool", "pool", { cidr: "10.65.0.0/16", vxlanMode: "Always", ipipMode: "Never" });
    await felix.put("Node", "node-a", {
      bgp: { ipv4Address: "192.0.2.10/24" },
      ipv4VXLANTunnelAddr: "10.65.0.1",
      vxlanTunnelMACAddr: "66:00:00:00:00:0a",
    });
    const within = ["ip", "netns", "exec", space.name, "sh", "-c", 'mount -t tmpfs calico /var/lib && exec "$@"', "sh"];
    felix.start(
      {
        FELIX_USEINTERNALDATAPLANEDRIVER: "true",
        FELIX_FEATUREDETECTOVERRIDE: `ChecksumOffloadBroken=${setting}`,
      },
      [],
      within,
    );
    const shown = (): string => {
      if (!felix.isRunning) throw new Error(`the agent ended:\n${felix.output}`);
      try {
        return /tx-checksum-ip-generic: (\w+)/.exec(space.run("ethtool", ["-k", "vxlan.calico"]))?.[1] ?? "";
      } catch {
        return ""; // does not exist yet
      }
    };
    await eventually(
      () => shown() === state && space.run("ip", ["addr", "show", "vxlan.calico"]).includes("10.65.0.1"),
      20_000,
    );
    expect(shown()).toBe(state);
  }, 60_000);
