// Changes by other programs to interfaces, kernel settings, neighbours, tunnels and routes: everything is restored exactly,
// the log reports it, and objects of other programs stay.
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, DataplaneHost, inSync, policy, rule, tier, vxlanRoute } from "./host.ts";
import type { DataplaneMessage, RouteUpdate } from "../../../src/calc/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";

const A = "calia2";
const B = "calib3";
const SETTINGS = { RouteRefreshInterval: "0.2", InterfaceRefreshInterval: "0.2" };

/** Shell commands, with the log line that each causes. */
const FAULTS: readonly (readonly [fault: string, logged: RegExp])[] = [
  [`echo 0 > /proc/sys/net/ipv4/conf/${B}/proxy_arp`, /changed a kernel setting.*proxy_arp/],
  [`echo 2 > /proc/sys/net/ipv6/conf/${B}/accept_ra`, /changed a kernel setting.*accept_ra/],
  [`echo 0 > /proc/sys/net/ipv6/conf/${B}/proxy_ndp`, /changed a kernel setting.*proxy_ndp/],
  ["echo 0 > /proc/sys/net/ipv4/ip_forward", /changed a kernel setting.*ip_forward/],
  ["echo 0 > /proc/sys/net/ipv6/conf/all/forwarding", /changed a kernel setting.*forwarding/],
  [`ip neigh del 10.65.0.3 dev ${B}`, /changed static neighbours.*10\.65\.0\.3/],
  [`ip neigh replace 10.65.0.3 lladdr 02:00:00:00:00:99 dev ${B} nud permanent`, /changed static neighbours/],
  [`ip route flush dev ${B}`, /another program deleted a route/],
  [`ip -6 route flush dev ${B} proto boot`, /another program deleted a route/],
  [`ip route add 10.65.0.3/32 dev ${A} metric 5`, /another program changed routes/],
  ["ip route replace blackhole 10.65.0.3/32 metric 1024", /another program (changed routes|deleted a route)/],
  ["ip route replace 10.65.2.0/26 via 192.0.2.99", /another program (changed routes|deleted a route)/],
  ["ip link set vxlan.calico down", /changed a tunnel device.*switched off/],
  ["ip link set vxlan.calico mtu 1300", /changed a tunnel device.*MTU 1300/],
  ["ip addr flush dev vxlan.calico", /changed a tunnel device.*its address/],
  ["ip addr add 10.99.0.1/32 dev vxlan.calico", /changed a tunnel device.*address 10\.99\.0\.1/],
  ["ip -6 addr flush dev vxlan-v6.calico scope global", /changed a tunnel device.*its address/],
  ["ip link del vxlan.calico", /changed a tunnel device.*the device itself/],
  [
    "ip link set vxlan.calico down; ip link set vxlan.calico name elsewhere; ip link del elsewhere",
    /the device itself/,
  ],
  ["bridge fdb del 66:00:00:00:00:02 dev vxlan.calico", /neighbours of the tunnel.*"missing":1,"surplus":0/],
  ["bridge fdb replace 66:00:00:00:00:02 dev vxlan.calico dst 192.0.2.55", /neighbours of the tunnel/],
  ["bridge fdb add 66:00:00:00:00:77 dev vxlan.calico dst 192.0.2.55", /neighbours of the tunnel.*"surplus":1/],
  ["ip neigh del 10.65.2.0 dev vxlan.calico", /neighbours of the tunnel.*"missing":1/],
  ["ip neigh del fd00:65:2::1 dev vxlan-v6.calico", /neighbours of the tunnel.*"missing":1/],
];

test("FD-093 FD-120 FD-142 changes by other programs to interfaces, settings, neighbours, tunnels and routes are restored and logged", async () => {
  await using host = await DataplaneHost.create("nftables", SETTINGS);
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  expect([a.interfaceName, b.interfaceName]).toEqual([A, B]);
  const mac = /link\/ether (\S+)/.exec(host.exec(b.target, "ip", "link", "show", "eth0"))?.[1] ?? "";
  for (const port of [80, 81]) host.prober.listen(b.target, "tcp", port);
  // Objects of other programs.
  const foreign = [
    "ip link add theirs type veth peer name theirs2 && ip link set theirs up && ip addr add 198.51.100.1/24 dev theirs",
    "ip route add 203.0.113.0/24 via 192.0.2.99 proto static",
    "ip route add blackhole 203.0.114.0/24 proto bird",
    "ip rule add from 198.51.100.0/24 lookup 77 priority 500 && ip route add default via 192.0.2.99 table 77",
    "ip neigh replace 198.51.100.9 lladdr 02:00:00:00:00:09 dev theirs nud permanent",
    "ip link add vx9 type vxlan id 9 dstport 8472 dev eth0 nolearning && ip link set vx9 up",
    "bridge fdb append 00:00:00:00:00:00 dev vx9 dst 192.0.2.77",
  ];
  for (const line of foreign) host.namespace.run("sh", ["-c", line]);
  host.start(SETTINGS, "nftables", { vxlanEnabled: true, vxlanEnabledV6: true });
  await host.send(
    allowProfile,
    policy("p", [rule({ protocol: { name: "tcp" }, dstPorts: [{ first: 80, last: 80 }] })]),
    host.endpoint(a),
    host.endpoint(b, { mac, tiers: [tier(["p"])] }),
    tunnelEnd("node-a", 1, "192.0.2.10", "2001:db8::10"),
    tunnelEnd("node-b", 2, "192.0.2.99", "2001:db8::99"),
    remote("10.65.2.0/26"),
    remote("fd00:65:2::/122"),
    inSync,
  );
  const held = () => kernelState(host);
  await eventually(
    () => /10\.65\.2\.0\/26.*vxlan\.calico/.test(held()) && /fd00:65:2::\/122.*vxlan-v6/.test(held()),
    10_000,
  );
  const before = held();
  const cells = [b.v4, b.v6].flatMap((to) => [80, 81].map((port) => ({ from: a.target, to, port })));
  for (const [fault, logged] of FAULTS) {
    const start = host.lines.length;
    host.namespace.run("sh", ["-c", fault]);
    await eventually(() => held() === before, 25_000).catch(() => expect([fault, held()]).toEqual([fault, before]));
    await eventually(() => logged.test(host.lines.slice(start).join("\n")), 3000).catch(() =>
      expect([fault, host.lines.slice(start)]).toEqual([fault, [String(logged)]]),
    );
  }
  expect(await host.probe(cells, 3000)).toEqual(["reached", "silent", "reached", "silent"]);
}, 240_000);

const tunnelEnd = (node: string, n: number, parent: string, parent6: string): DataplaneMessage => ({
  type: "vtepUpdate",
  node,
  mac: `66:00:00:00:00:0${n}`,
  ipv4Addr: `10.65.${n}.0` as IpAddress,
  parentDeviceIp: parent as IpAddress,
  macV6: `66:00:00:00:06:0${n}`,
  ipv6Addr: `fd00:65:${n}::1` as IpAddress,
  parentDeviceIpv6: parent6 as IpAddress,
});

const remote = (dst: string): RouteUpdate => vxlanRoute(dst, dst.includes(":") ? "2001:db8::99" : "192.0.2.99");

/** The kernel state without rules, of calico-ts and of other programs. */
function kernelState(host: DataplaneHost): string {
  const settings = [A, B].flatMap((name) => [
    ...["proxy_arp", "forwarding", "rp_filter", "route_localnet"].map((key) => `ipv4/conf/${name}/${key}`),
    ...["accept_ra", "forwarding", "proxy_ndp"].map((key) => `ipv6/conf/${name}/${key}`),
    `ipv4/neigh/${name}/proxy_delay`,
  ]);
  const files = [...settings, "ipv4/ip_forward", "ipv6/conf/all/forwarding"].map((key) => `/proc/sys/net/${key}`);
  const script = [
    "ip -4 route show table all; ip -6 route show table all | grep -v -e fe80 -e ^ff00 -e ^multicast",
    "ip rule; ip -6 rule; ip neigh show nud permanent; bridge fdb show | grep vx",
    "ip -o -4 addr; ip -o -6 addr | grep -v fe80; ip -o link",
    `head -n1 ${files.join(" ")}`,
  ].join("; ");
  return host.namespace
    .run("sh", ["-c", script])
    .split("\n")
    .map((line) =>
      line
        .replace(
          /^\d+: |@if\d+|\bpref \w+|\blinkdown\b|expires \S+|\b(qdisc|qlen|state|mode|group) \S+|altname \S+/g,
          "",
        )
        .trim(),
    )
    .sort()
    .join("\n");
}
