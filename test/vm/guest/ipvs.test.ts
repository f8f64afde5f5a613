// Tests kube-proxy's IPVS mode with the kernel's real IPVS, which build machines usually lack. A service's address is assigned to
// `kube-ipvs0`, so the kernel treats a packet to it as received by the host, and then as sent by the host.
//
//   pod a ─┐                        ┌─ pod b :80 :81
//   pod c ─┼─ 10.96.0.10 ─ IPVS ────┘
//   outside ─ 192.0.2.10:30080 ─┘
import { describe, expect, test } from "bun:test";
import { execFileSync } from "node:child_process";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, DataplaneHost, inSync, policy, rule, tier } from "../../functional/dataplane/host.ts";

const MINUTES = 60_000;
const SERVICE = "10.96.0.10" as IpAddress;
const SERVICE6 = "fd00:96::10" as IpAddress;
const HOST = "192.0.2.10" as IpAddress;
const OUTSIDE = "192.0.2.99";
DataplaneHost.patienceMs = 5 * MINUTES;

const tcp = { name: "tcp" };
const port = (first: number, last = first) => ({ first, last });
const bracketed = (address: string) => (address.includes(":") ? `[${address}]` : address);

function addService(host: DataplaneHost, address: string, from: number, to: string): void {
  const service = `${bracketed(address)}:${from}`;
  host.namespace.run("ipvsadm", ["-A", "-t", service, "-s", "rr"]);
  host.namespace.run("ipvsadm", ["-a", "-t", service, "-r", to, "-m"]);
}

for (const backend of ["legacy", "nft"] as const)
  describe(backend, () => {
    test(
      "FD-037 FD-063 policies of source and destination apply to a connection to an IPVS service",
      async () => {
        for (const module of ["ip_vs", "ip_vs_rr", "dummy"]) execFileSync("modprobe", [module]);
        await using host = await DataplaneHost.create(backend);
        const [a, b, c, stranger] = [
          host.addPod("a", 2),
          host.addPod("b", 3),
          host.addPod("c", 4),
          host.addPod("x", 5),
        ];
        for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
        const run = (line: string) => host.namespace.run("sh", ["-c", line]);
        run("ip link add kube-ipvs0 type dummy && sysctl -q net.ipv4.vs.conntrack=1");
        run(`ip addr add ${SERVICE}/32 dev kube-ipvs0; ip addr add ${SERVICE6}/128 dev kube-ipvs0 nodad`);
        for (const p of [80, 81]) {
          addService(host, SERVICE, p, `${b.v4}:${p}`);
          addService(host, SERVICE6, p, `[${b.v6}]:${p}`);
          addService(host, HOST, 30_000 + p, `${b.v4}:${p}`);
        }
        host.start({}, backend, { ipvs: true });
        const sources = [`${a.v4}/32`, `${a.v6}/128`, `${OUTSIDE}/32`];
        await host.send(
          allowProfile,
          { type: "ipSetUpdate", id: "s:friends", setType: "net", members: sources },
          policy("only80", [], [rule({ protocol: tcp, dstPorts: [port(80)] })]),
          policy("friends", [rule({ protocol: tcp, srcIpSetIds: ["s:friends"], dstPorts: [port(80, 81)] })]),
          host.endpoint(a, { tiers: [tier([], ["only80"])] }),
          host.endpoint(b, { tiers: [tier(["friends"])] }),
          host.endpoint(c),
          inSync,
        );
        const cells = [
          { from: a.target, to: SERVICE, port: 80 },
          { from: a.target, to: SERVICE6, port: 80 },
          { from: a.target, to: SERVICE, port: 81 }, // policy of the source, for the endpoint's port
          { from: a.target, to: SERVICE6, port: 81 },
          { from: c.target, to: SERVICE, port: 80 }, // policy of the destination
          { from: c.target, to: SERVICE6, port: 80 },
          { from: stranger.target, to: SERVICE, port: 80 }, // an interface without an endpoint
          { from: host.outside, to: HOST, port: 30_080 }, // a node port
          { from: host.hostTarget, to: SERVICE, port: 81 }, // the host may connect to its workloads
        ];
        const reached = async () => (await host.probe(cells, 5000)).map((outcome) => outcome === "reached");
        await eventually(async () => (await reached())[0] === true, MINUTES);
        expect(await reached()).toEqual([true, true, false, false, false, false, false, true, true]);

        // Reversed: denied connections are allowed, and allowed ones are denied.
        await host.send(policy("only80", [], [rule({ protocol: tcp, dstPorts: [port(81)] })]), {
          type: "ipSetDeltaUpdate",
          id: "s:friends",
          added: [`${c.v4}/32`],
          removed: [`${OUTSIDE}/32`],
        });
        expect(await reached()).toEqual([false, false, true, true, true, false, false, false, true]);

        // Without its endpoint, the interface is unknown.
        const id = { orchestrator: "k8s", workload: "ns1/a", endpoint: "eth0" };
        await host.send({ type: "workloadEndpointRemove", id });
        expect((await reached()).slice(0, 4)).toEqual([false, false, false, false]);
      },
      15 * MINUTES,
    );
  });
