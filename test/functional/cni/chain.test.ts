// Runs a configuration list as a runtime does: `calico`, followed by stock plugins, each with the previous result.
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { describe, expect, test } from "bun:test";
import { parseAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { canRun, collect, CniHost, type Pod } from "./cni-host.ts";
import { openProber, PORT } from "./reach.ts";

const STOCK = "/usr/lib/cni";
const hasStock = ["portmap", "tuning", "bandwidth"].every((name) => existsSync(`${STOCK}/${name}`));
if (canRun && !hasStock) console.log("chaining tests need containernetworking-plugins: skipped");

async function stock(host: CniHost, command: string, pod: Pod, conf: Record<string, unknown>) {
  const env = {
    PATH: process.env["PATH"],
    CNI_COMMAND: command,
    CNI_CONTAINERID: pod.containerId,
    CNI_NETNS: pod.netns,
    CNI_IFNAME: "eth0",
    CNI_PATH: STOCK,
  };
  const child = host.start(`${STOCK}/${conf["type"]}`, [], env);
  const done = collect(child);
  child.stdin?.end(JSON.stringify({ cniVersion: "1.0.0", name: "net1", ...conf }));
  return done;
}

/** Checks with packets that another pod reaches the first pod through the host's port, with DNAT and the rate limit. */
async function reachThroughHostPort(host: CniHost, pod: Pod): Promise<void> {
  const lo = host.kernel.links.get("lo")!.index;
  host.kernel.addresses.add({ link: lo, address: parseAddress("192.0.2.1"), length: 32 });
  const client = host.pod("cid2");
  expect((await host.add(client)).code).toBe(0);
  using prober = openProber([pod]);
  await eventually(async () => {
    const [outcome] = await prober.reach(client, pod, ["192.0.2.1"], 8081);
    return outcome === "192.0.2.1 reached";
  });
  expect((await host.del(client)).code).toBe(0);
}

describe.skipIf(!canRun || !hasStock)("chaining", () => {
  for (const mtu of [0, 1440])
    test(`CI-083 CI-084 portmap, tuning and bandwidth accept the result of calico (${mtu === 0 ? "short" : "full"} form)`, async () => {
      await using host = await CniHost.create();
      const pod = host.pod("cid1");
      const added = await host.add(pod, { conf: { mtu } });
      expect(added.code).toBe(0);
      const chain: Record<string, unknown>[] = [
        { type: "tuning", sysctl: { "net.ipv4.conf.eth0.arp_filter": "1" } },
        { type: "bandwidth", ingressRate: 8_000_000, ingressBurst: 80_000, egressRate: 8_000_000, egressBurst: 80_000 },
        {
          type: "portmap",
          snat: false,
          runtimeConfig: { portMappings: [{ hostPort: 8081, containerPort: PORT, protocol: "tcp" }] },
        },
      ];
      let prevResult: Record<string, unknown> = added.json;
      for (const conf of chain) {
        const run = await stock(host, "ADD", pod, { ...conf, prevResult });
        expect([conf["type"], run.code, run.stdout.includes('"code"') ? run.stdout : ""]).toEqual([
          conf["type"],
          0,
          "",
        ]);
        prevResult = run.json;
      }
      expect(prevResult["ips"]).toMatchObject([{ address: "10.65.0.128/32" }]);
      expect(pod.read("net", "ipv4", "conf", "eth0", "arp_filter")).toBe("1");
      const qdisc = execFileSync("ip", [
        "netns",
        "exec",
        host.name,
        "tc",
        "qdisc",
        "show",
        "dev",
        "calicid1",
      ]).toString();
      expect(qdisc).toContain("tbf");
      const nat = execFileSync("ip", ["netns", "exec", host.name, "iptables-save", "-t", "nat"]).toString();
      expect(nat).toContain(`10.65.0.128:${PORT}`);
      await reachThroughHostPort(host, pod);
      expect((await host.call("CHECK", pod, { conf: { prevResult } })).code).toBe(0);
      for (const conf of chain.toReversed())
        expect((await stock(host, "DEL", pod, { ...conf, prevResult })).code).toBe(0);
      expect((await host.del(pod)).code).toBe(0);
      expect(host.workloadLinks()).toEqual([]);
    });
});
