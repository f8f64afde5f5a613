// Tests workloads and load balancers with addresses of the nodes' own network: this host answers ARP and neighbour discovery
// for them, so that other hosts on the network reach them.
import { expect, test } from "bun:test";
import type { DataplaneMessage } from "../../../src/calc/index.ts";
import type { Cidr, IpAddress } from "../../../src/lib/ip/ip.ts";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, DataplaneHost, inSync, pool } from "./host.ts";

const POD = ["192.0.2.200", "2001:db8::c8"] as IpAddress[];
const VIP = ["192.0.2.201", "2001:db8::c9"] as IpAddress[];
const plain = (cidr: string): DataplaneMessage => ({ ...pool(cidr), ipipMode: "Never", vxlanMode: "Never" }) as never;

for (const setting of ["PodsAndLoadBalancers", "Disabled"] as const)
  test(`FD-130 ${setting}: ${setting === "Disabled" ? "requests are not answered" : "ARP and neighbour discovery are answered and announced for local addresses only"}`, async () => {
    await using host = await DataplaneHost.create("nftables", { LocalSubnetL2Reachability: setting });
    const a = host.addPod("a", 2);
    for (const [i, address] of POD.entries()) {
      const length = i === 0 ? "32" : "128";
      host.exec(a.target, "ip", "addr", "add", `${address}/${length}`, "dev", "eth0", ...(i === 0 ? [] : ["nodad"]));
    }
    host.prober.listen(a.target, "tcp", 80);
    // Another program translates the address of the load balancer to the workload.
    for (const [i, family] of ["ip", "ip6"].entries())
      host.namespace.run("nft", [
        `table ${family} somebody { chain p { type nat hook prerouting priority -110; ${family} daddr ${VIP[i]} dnat to ${POD[i]}\n }\n }`,
      ]);
    // Unsolicited announcements on the network.
    const advertised = host.count(host.outside, "ip6 daddr ff02::1 icmpv6 type nd-neighbor-advert");
    const own = `arp saddr ip { ${POD[0]}, ${VIP[0]} } arp daddr ip { ${POD[0]}, ${VIP[0]} }`;
    host.exec(
      host.outside,
      "nft",
      `table arp told { chain c { type filter hook input priority 0;\n ${own} counter\n }\n }`,
    );
    const announced = () =>
      Number(/packets (\d+)/.exec(host.exec(host.outside, "nft", "list", "table", "arp", "told"))?.[1] ?? -1);
    host.start();
    await host.send(
      allowProfile,
      plain("192.0.2.192/26"),
      plain("2001:db8::c0/122"),
      host.endpoint(a, {
        ipv4Nets: [`${POD[0]}/32` as Cidr],
        ipv6Nets: [`${POD[1]}/128` as Cidr],
      }),
      {
        type: "hostMetadataUpdate",
        ...{ hostname: "node-a", ipv4Addr: "192.0.2.10", ipv6Addr: "2001:db8::10", asNumber: "", labels: {} },
      },
      {
        type: "serviceUpdate",
        ...{ name: "lb", namespace: "ns", serviceType: "LoadBalancer", clusterIps: [], loadBalancerIp: "" },
        ...{ externalIps: [], ports: [], loadBalancerIngressIps: VIP },
      },
      inSync,
    );
    const targets = [...POD, ...VIP];
    if (setting === "PodsAndLoadBalancers") await eventually(() => announced() === 2 && advertised() === 2, 5000);
    const free = ["192.0.2.202", "2001:db8::ca"] as IpAddress[]; // in the pool, not assigned
    const isOn = setting === "PodsAndLoadBalancers";
    const cells = [...targets, ...free].map((to) => ({ from: host.outside, to }));
    const outcomes = (await host.probe(cells, 3000)).map((outcome) => outcome === "reached");
    expect(outcomes).toEqual([isOn, isOn, isOn, isOn, false, false]);
    if (!isOn) return;
    const neighbours = host.exec(host.outside, "ip", "neigh");
    const mac = /link\/ether (\S+)/.exec(host.namespace.run("ip", ["link", "show", "eth0"]))?.[1] ?? "?";
    for (const address of targets) expect(neighbours).toMatch(new RegExp(`^${address} .*${mac}`, "m"));
    // Requests for a removed address are no longer answered.
    host.exec(host.outside, "ip", "neigh", "flush", "all");
    await host.send({ type: "serviceRemove", name: "lb", namespace: "ns" });
    const after = (await host.probe(cells, 1500)).map((outcome) => outcome === "reached");
    expect(after).toEqual([true, true, false, false, false, false]);
    // After the agent has ended, requests are not answered.
    await host.stop();
    host.exec(host.outside, "ip", "neigh", "flush", "all");
    expect(await host.probe(cells.slice(0, 1), 500)).not.toContain("reached");
  }, 60_000);
