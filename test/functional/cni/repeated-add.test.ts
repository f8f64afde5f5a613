// Tests a second ADD for a pod's container without a DEL in between. A runtime may do that after it has lost the first result.
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { canRun, CniHost, k8s, type PluginRun } from "./cni-host.ts";
import { startService } from "./service.ts";

const DUAL = { ipam: { type: "calico-ipam", assign_ipv4: "true", assign_ipv6: "true" } };
const addressesOf = ({ json }: PluginRun): string[] =>
  ((json["ips"] ?? []) as { address: string }[]).map(({ address }) => address.split("/")[0] ?? "");

const cases = [
  { name: "one family", conf: {}, args: "" },
  { name: "both families", conf: DUAL, args: "" },
  { name: "a requested address", conf: {}, args: ";IP=10.65.0.20" },
];

describe.skipIf(!canRun)("a repeated ADD of a pod's container", () => {
  for (const by of ["plugin", "service"])
    for (const { name, conf, args } of cases)
      test(`releases the addresses of the first ADD: ${name}, by the ${by}`, async () => {
        await using host = await CniHost.create();
        const service_socket = by === "service" ? join(host.folder, "run/cni.sock") : "";
        if (by === "service") await startService(host, service_socket).ready;
        const pod = host.pod("cid1");
        const who = k8s("ns1", "p1");
        const options = { conf: { ...conf, service_socket }, ...who };
        const first = await host.add(pod, options);
        const second = await host.add(pod, { ...options, env: { CNI_ARGS: who.env["CNI_ARGS"] + args } });
        expect([first.code, second.code]).toEqual([0, 0]);
        const [before, after] = [addressesOf(first), addressesOf(second)];
        expect(before.filter((address) => after.includes(address))).toEqual([]);
        expect(await host.allocations()).toEqual(after.map(() => expect.stringContaining("net1.cid1")));
        const held = pod.kernel.addresses.list().map(({ address }) => String(address));
        expect(after.filter((address) => !held.includes(address))).toEqual([]);
        expect(await host.del(pod, options)).toMatchObject({ code: 0 });
        expect([host.workloadLinks(), await host.allocations(), await host.handles()]).toEqual([[], [], []]);
      });

  test("that fails because the pool is exhausted keeps the address of the first, and DEL releases it", async () => {
    await using host = await CniHost.create();
    await host.put("IPPool", "p4", { cidr: "10.65.0.0/32", blockSize: 32 });
    const pod = host.pod();
    expect(await host.add(pod, k8s("ns1", "p1"))).toMatchObject({ code: 0 });
    expect(await host.add(pod, k8s("ns1", "p1"))).toMatchObject({ code: 1 });
    expect(await host.allocations()).toHaveLength(1);
    expect(await host.del(pod, k8s("ns1", "p1"))).toMatchObject({ code: 0 });
    expect([host.workloadLinks(), await host.allocations(), await host.handles()]).toEqual([[], [], []]);
  });
});
