// Tests live migration of a VM to this node: there is no route to it before it has arrived, and no packet is lost afterwards.
import { describe, expect, test } from "bun:test";
import * as sys from "../../../src/kernel/sys/sys.ts";
import { withNamespace } from "../../../src/kernel/index.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, DataplaneHost, inSync, type Pod } from "./host.ts";

const v4 = (text: string) => text.split(".").map(Number);

/** Sends an ARP or RARP packet from inside the VM, as the guest or its hypervisor does. */
function announce(host: DataplaneHost, pod: Pod, kind: "gratuitous ARP" | "question" | "reverse ARP"): void {
  const isReverse = kind === "reverse ARP";
  const link = host.exec(pod.target, "ip", "link", "show", "eth0");
  const mac = (/link\/ether (\S+)/.exec(link)?.[1] ?? "").split(":").map((byte) => Number.parseInt(byte, 16));
  const [sender, target] = isReverse
    ? [v4("0.0.0.0"), v4("0.0.0.0")]
    : [v4(pod.v4), v4(kind === "question" ? "169.254.1.1" : pod.v4)];
  const type = isReverse ? [0x80, 0x35] : [0x08, 0x06];
  const body = [0, 1, 8, 0, 6, 4, 0, isReverse ? 3 : 1, ...mac, ...sender, ...(isReverse ? mac : [0, 0, 0, 0, 0, 0])];
  const frame = sys.allocate(60);
  frame.set([255, 255, 255, 255, 255, 255, ...mac, ...type, ...body, ...target]);
  withNamespace({ fd: pod.target.namespace }, () => {
    const fd = sys.socket(17, sys.SOCK_RAW, 0);
    const address = sys.allocate(20);
    const view = new DataView(address.buffer);
    view.setUint16(0, 17, true);
    view.setInt32(4, 2, true); // eth0 is the second link of its namespace
    expect(sys.sendTo(fd, frame, address)).toBe(frame.length);
    sys.close(fd);
  });
}

const SETTINGS = { LiveMigrationRouteConvergenceTime: "1" };
const routes = (host: DataplaneHost, pod: Pod): string[] =>
  ["-4", "-6"].flatMap((family) =>
    [
      ...host.namespace
        .run("ip", [family, "route", "show", "dev", pod.interfaceName])
        .matchAll(/^(\S+) .*metric (\d+)/gm),
    ]
      .filter(([, destination]) => destination !== "fe80::/64")
      .map(([, destination, metric]) => `${destination} ${metric}`),
  );
const both = (pod: Pod, metric: number) => [`${pod.v4} ${metric}`, `${pod.v6} ${metric}`];

for (const kind of ["gratuitous ARP", "reverse ARP"] as const)
  describe(kind, () => {
    test("FD-127 after the VM's announcement, routes get a better priority, later the normal one; packets always pass", async () => {
      await using host = await DataplaneHost.create("nftables", SETTINGS);
      const [a, vm] = [host.addPod("a", 2), host.addPod("vm", 3)];
      host.prober.listen(vm.target, "tcp", 80);
      // The state after the CNI plugin.
      host.namespace.run("ip", ["route", "add", vm.v4, "dev", vm.interfaceName, "scope", "link"]);
      host.start();
      const machine = (role: "target" | "none") => host.endpoint(vm, { liveMigrationRole: role });
      await host.send(allowProfile, host.endpoint(a), machine("target"), inSync);
      await eventually(() => routes(host, vm).length === 0, 5000);
      expect(host.namespace.run("ip", ["route", "show", "dev", vm.interfaceName])).toBe("");
      const cells = [vm.v4, vm.v6].map((to) => ({ from: a.target, to }));
      expect(await host.probe(cells, 100)).not.toContain("reached");
      announce(host, vm, "question"); // a VM that resolves its gateway may still be preparing
      await host.send(machine("target"));
      expect([routes(host, vm), host.arrivals]).toEqual([[], []]);

      announce(host, vm, kind);
      await eventually(() => Bun.deepEquals(routes(host, vm), both(vm, 512)), 5000);
      expect(host.arrivals).toEqual(["ns1/vm"]);
      expect(await host.probe(cells, 3000)).toEqual(["reached", "reached"]);
      const flows = () => host.namespace.run("conntrack", ["-L", "-p", "tcp"]).includes(`dst=${vm.v4}`);
      expect(flows()).toBe(true);
      await host.send(machine("none"));
      expect(routes(host, vm)).toEqual(both(vm, 512)); // until the route has propagated
      await eventually(() => Bun.deepEquals(routes(host, vm), both(vm, 1024)), 10_000);
      expect(flows()).toBe(true); // a change of the route's priority does not delete connections
      expect(await host.probe(cells, 1000)).toEqual(["reached", "reached"]);
    }, 60_000);
  });

test("FD-127 a restart during the migration keeps the routes of the VM", async () => {
  await using host = await DataplaneHost.create("nftables", { LiveMigrationRouteConvergenceTime: "60" });
  const vm = host.addPod("vm", 3);
  const machine = host.endpoint(vm, { liveMigrationRole: "target" });
  host.start();
  await host.send(allowProfile, machine, inSync);
  announce(host, vm, "gratuitous ARP");
  await eventually(() => Bun.deepEquals(routes(host, vm), both(vm, 512)), 5000);
  await host.stop();
  for (const role of ["target", "none"] as const) {
    host.start();
    await host.send(allowProfile, host.endpoint(vm, { liveMigrationRole: role }), inSync);
    expect(routes(host, vm)).toEqual(both(vm, 512));
    await host.stop();
  }
  expect(host.arrivals).toEqual(["ns1/vm"]);
}, 60_000);
