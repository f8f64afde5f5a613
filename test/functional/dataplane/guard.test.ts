// Tests packets that no policy rule covers: from workloads to the host's loopback addresses, and IPv6 while IPv6 support is
// off. Every packet is sent as raw bytes, as a workload with CAP_NET_RAW can do.
import { describe, expect, test } from "bun:test";
import { closeWithIptables } from "../../../src/cni/attach/close-with-iptables.ts";
import { Iptables, type IptablesStore } from "../../../src/kernel/index.ts";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { allowProfile, BACKENDS, inSync, workload } from "./host.ts";
import type { Sent } from "./packet-world.ts";
import { WorldDataplane } from "./world-dataplane.ts";

const HOST = "192.168.0.1" as IpAddress;
const HOST_LINK_LOCAL = "fe80::ecee:eeff:feee:eeee" as IpAddress;
const PODS = [
  {
    name: "a",
    interfaceName: "calia",
    addresses: ["10.65.0.2", "fd00:65::2"] as IpAddress[],
    linkLocal: "fe80::ff:fe00:100" as IpAddress,
  },
  {
    name: "b",
    interfaceName: "taplb",
    addresses: ["10.65.0.3", "fd00:65::3"] as IpAddress[],
    linkLocal: "fe80::ff:fe00:101" as IpAddress,
  },
];
const [A, B] = PODS as [(typeof PODS)[0], (typeof PODS)[0]];
const v4 = ({ addresses: [address] }: (typeof PODS)[0]) => address as IpAddress;
const v6 = ({ addresses: [, address] }: (typeof PODS)[0]) => address as IpAddress;

const SETTINGS = { DefaultEndpointToHostAction: "ACCEPT", InterfacePrefix: "cali,tap" };

const udp = (from: string, to: string, source: IpAddress, destination: IpAddress): Sent => ({
  from,
  to,
  packet: { source, destination, protocol: 17, sourcePort: 4000, destinationPort: 7777 },
});

const KERNELS = [
  ...BACKENDS.map((backend) => ({ name: backend, backend, withoutNftables: false })),
  { name: "legacy, kernel without nf_tables", backend: "legacy", withoutNftables: true } as const,
];

/** A dataplane that has not applied anything. */
const newDataplane = ({ backend, withoutNftables }: Omit<(typeof KERNELS)[number], "name">, settings = {}) =>
  new WorldDataplane({
    backend,
    withoutNftables,
    pods: PODS,
    host: [HOST, "2001:db8::1" as IpAddress],
    settings: { ...SETTINGS, ...settings },
  });

const ALLOW_ALL = [
  allowProfile,
  ...PODS.map(({ interfaceName, addresses }) => workload(interfaceName, addresses)),
  inSync,
];

/** A dataplane with both workloads, allowed to send and receive everything. */
async function openDataplane(kernel: (typeof KERNELS)[number], settings: Readonly<Record<string, string>>) {
  const dataplane = newDataplane(kernel, settings);
  await dataplane.send(...ALLOW_ALL);
  return dataplane;
}

for (const kernel of KERNELS)
  describe(kernel.name, () => {
    test("a workload cannot reach a loopback address of its host, unless the host translated the destination", async () => {
      await using dataplane = await openDataplane(kernel, {});
      const { world } = dataplane;
      const loopback = ["127.0.0.1", "127.99.0.7"] as IpAddress[];
      const packets = [
        ...PODS.flatMap((pod) => loopback.map((address) => udp(pod.name, "host", v4(pod), address))),
        ...PODS.map((pod) => udp(pod.name, "host", v4(pod), HOST)),
      ];
      const expected = [false, false, false, false, true, true];
      expect(await world.send(packets, expected)).toEqual(expected);

      world.host.run("nft", [
        "table ip portmap { chain c { type nat hook prerouting priority dstnat; ip daddr 10.96.0.1 dnat to 127.0.0.1\n }\n }",
      ]);
      const translated = PODS.map((pod) => udp(pod.name, "host", v4(pod), "10.96.0.1" as IpAddress));
      expect(await world.send(translated, [true, true])).toEqual([true, true]);
    });

    test("an untracked packet to a loopback address is also dropped", async () => {
      await using dataplane = await openDataplane(kernel, {});
      const { world } = dataplane;
      world.host.run("nft", [
        "table ip untracked { chain c { type filter hook prerouting priority raw; iifname calia notrack\n }\n }",
      ]);
      const packets = [udp("a", "host", v4(A), "127.0.0.1" as IpAddress), udp("a", "host", v4(A), HOST)];
      expect(await world.send(packets, [false, true])).toEqual([false, true]);
    });

    const ipv6Packets = [
      udp("a", "host", A.linkLocal, HOST_LINK_LOCAL),
      udp("b", "host", B.linkLocal, HOST_LINK_LOCAL),
      udp("a", "host", v6(A), "2001:db8::1" as IpAddress),
      udp("a", "b", v6(A), v6(B)),
      udp("a", "outside", v6(A), "2001:db8:ffff::9" as IpAddress),
      udp("outside", "a", "2001:db8:ffff::9" as IpAddress, v6(A)),
      udp("host", "a", "2001:db8::1" as IpAddress, v6(A)),
    ];

    test("no IPv6 packet passes from or to a workload while IPv6 support is off, and IPv4 passes", async () => {
      await using dataplane = await openDataplane(kernel, { Ipv6Support: "false" });
      const { world } = dataplane;
      // Routes and forwarding that the agent does not program while IPv6 is off, but others may.
      for (const pod of PODS)
        world.host.run("ip", ["-6", "route", "replace", `${v6(pod)}/128`, "dev", pod.interfaceName]);
      const packets = [
        ...ipv6Packets,
        udp("a", "b", v4(A), v4(B)),
        udp("b", "host", v4(B), HOST),
        udp("outside", "host", "2001:db8:ffff::9" as IpAddress, "2001:db8::1" as IpAddress),
      ];
      const expected = [...ipv6Packets.map(() => false), true, true, true];
      expect(await world.send(packets, expected)).toEqual(expected);
    });

    test("IPv6 passes as policy allows while IPv6 support is on", async () => {
      await using dataplane = await openDataplane(kernel, {});
      const expected = ipv6Packets.map(() => true);
      expect(await dataplane.world.send(ipv6Packets, expected)).toEqual(expected);
    });
  });

test("on a kernel without nf_tables, workloads are blocked by iptables chains until Felix programs its rules", async () => {
  await using dataplane = newDataplane({ backend: "legacy", withoutNftables: true });
  const { world } = dataplane;
  const stores = ([4, 6] as const).map((family): IptablesStore => {
    const store = new Iptables({ family, variant: "legacy" });
    return {
      family,
      variant: "legacy",
      save: (table) => world.host.enter(() => store.save(table)),
      restore: (text) => world.host.enter(() => store.restore(text)),
    };
  });
  // Routes as the CNI plugin adds them.
  for (const pod of PODS)
    for (const address of pod.addresses)
      world.host.run("ip", [
        "route",
        "replace",
        `${address}/${address.includes(":") ? 128 : 32}`,
        "dev",
        pod.interfaceName,
      ]);
  const packets = [
    udp("a", "b", v4(A), v4(B)),
    udp("a", "b", v6(A), v6(B)),
    udp("b", "host", v4(B), HOST),
    udp("host", "a", HOST, v4(A)),
  ];
  const none = packets.map(() => false);
  const all = packets.map(() => true);
  expect(await world.send(packets, all)).toEqual(all); // as after boot
  world.forgetConnections();
  for (let call = 0; call < 2; call++) await closeWithIptables(stores, ["cali", "tap"]);
  expect(await world.send(packets, none)).toEqual(none);
  await dataplane.send(...ALLOW_ALL);
  expect(await world.send(packets, all)).toEqual(all);
  for (const store of stores) expect(await store.save("filter")).not.toContain("cali-guard-closed");
});
