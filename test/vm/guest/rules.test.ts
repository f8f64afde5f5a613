// Tests rules with kernel features that build machines usually lack: flow offload.
import { spawn } from "node:child_process";
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, DataplaneHost, inSync, type Pod, policy, rule, tier } from "../../functional/dataplane/host.ts";

const MINUTES = 60_000;
const tcp = { name: "tcp" };
DataplaneHost.patienceMs = 5 * MINUTES;
const port = (first: number) => ({ first, last: first });

test(
  "FD-105 established flows of workloads are offloaded, new flows and flows with limits are not",
  async () => {
    await using host = await DataplaneHost.create("nftables", { NFTablesFlowTableOffload: "All" });
    const [a, b, c] = [host.addPod("a", 2), host.addPod("b", 3), host.addPod("c", 4)];
    host.start();
    const http = policy("http", [rule({ protocol: tcp, dstPorts: [port(80)] })]);
    await host.send(
      allowProfile,
      http,
      host.endpoint(a),
      host.endpoint(b, { tiers: [tier(["http"])] }),
      host.endpoint(c, { qosControls: { ingressPacketRate: 1000, ingressPacketBurst: 1000 } }),
      inSync,
    );
    // The kernel removes a flow from the table after 30 s without packets, which is short in an emulated machine.
    host.namespace.run("sysctl", ["-qw", "net.netfilter.nf_flowtable_tcp_timeout=3600"]);
    const listed = host.namespace.run("nft", ["list", "flowtables"]);
    for (const pod of [a, b, c]) expect(listed).toContain(pod.interfaceName);
    const run = (pod: Pod, ...command: string[]) =>
      spawn("nsenter", [`--net=/proc/${process.pid}/fd/${pod.target.namespace}`, ...command], {
        stdio: ["pipe", "pipe", "ignore"],
      });
    const children = [b, c].map((pod) => run(pod, "socat", "TCP-LISTEN:80,fork,reuseaddr", "EXEC:cat"));
    try {
      for (const pod of [b, c]) await eventually(() => host.exec(pod.target, "ss", "-ltn").includes(":80 "), MINUTES);
      for (const pod of [b, c]) {
        const client = run(a, "socat", "-", `TCP:${pod.v4}:80`);
        children.push(client);
        let answered = 0;
        client.stdout.on("data", (chunk: Buffer) => (answered += chunk.length));
        for (let i = 1; i <= 5; i++) {
          client.stdin.write("hello\n");
          await eventually(() => answered >= 6 * i, MINUTES);
        }
      }
      const flow = (pod: Pod) =>
        host.namespace
          .run("conntrack", ["-L", "-p", "tcp"])
          .split("\n")
          .find((line) => line.includes(`dst=${pod.v4} `)) ?? "";
      expect(flow(b)).toContain("[OFFLOAD]");
      expect(flow(c)).not.toContain("[OFFLOAD]");
      // Established connections continue; policy applies to new ones.
      expect(await host.probe([{ from: a.target, to: b.v4, port: 81 }], 2000)).toEqual(["silent"]);

      // The flowtable's devices change with the workloads, in one transaction with the rules.
      host.namespace.run("ip", ["link", "del", c.interfaceName]);
      const d = host.addPod("d", 5);
      await host.send(
        { type: "workloadEndpointRemove", id: { orchestrator: "k8s", workload: "ns1/c", endpoint: "eth0" } },
        host.endpoint(d),
      );
      await eventually(() => {
        const devices = host.namespace.run("nft", ["list", "flowtables"]);
        return devices.includes(d.interfaceName) && !devices.includes(c.interfaceName);
      }, MINUTES);
      // A restart keeps the flowtable; a restart without offload removes it.
      await host.stop();
      host.start({});
      await host.send(allowProfile, http, host.endpoint(a), host.endpoint(b, { tiers: [tier(["http"])] }), inSync);
      expect(host.namespace.run("nft", ["list", "ruleset"])).not.toContain("flowtable");
      host.prober.listen(a.target, "tcp", 80);
      expect(await host.probe([{ from: b.target, to: a.v4, port: 80 }], 2000)).toEqual(["reached"]);
    } finally {
      for (const child of children) child.kill("SIGKILL");
    }
  },
  10 * MINUTES,
);
