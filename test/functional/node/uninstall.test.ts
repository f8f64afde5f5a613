// `calico-node -uninstall` on a host where a node ran, with both backends' rules, pods' interfaces, tunnels and routes: all
// of ours goes, all of others' stays. The host before and after must look the same.
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { canRun, NODE, TestHost } from "./host.ts";

const FOREIGN = [
  "ip link add eth0 type veth peer name eth0p",
  "ip link set eth0p up",
  "ip addr add 192.0.2.11/24 dev eth0",
  "ip link set eth0 up",
  "ip link add calendar type bridge", // begins like ours, and is another kind
  "ip link add vxlan7 type vxlan id 7 dstport 4790 dev eth0",
  "ip route add 203.0.113.0/24 via 192.0.2.1 proto static",
  "ip route add 203.0.114.0/24 via 192.0.2.1 proto 81",
  "ip rule add fwmark 0x1/0x1 lookup 100 priority 99", // a mark we do not use
  "nft add table ip other",
  "nft add table arp other",
  "nft add chain ip other c",
  "nft add rule ip other c counter",
  "iptables-legacy -N OTHER",
  "iptables-legacy -A FORWARD -j OTHER",
  "ipset create other hash:ip",
  "mkdir -p /etc/cni/net.d /opt/cni/bin",
  "mount -t tmpfs none /etc/cni/net.d",
  "mount -t tmpfs none /opt/cni/bin",
  "echo '{}' > /etc/cni/net.d/99-other.conf",
  "touch /opt/cni/bin/portmap",
];
const OURS = [
  "ip link add cali0123456789a type veth peer name inner",
  "ip link set cali0123456789a up",
  "ip route add 10.9.0.5 dev cali0123456789a proto 80",
  "ip route add blackhole 10.9.0.0/26 proto bird",
  "ip route add 10.9.1.0/26 via 192.0.2.12 proto bird",
  "iptables-legacy -N cali-FORWARD",
  "iptables-legacy -I FORWARD -m comment --comment cali:wUHhoiAYhphO9Mso -j cali-FORWARD",
  "ipset create cali40s:abc hash:net",
  "iptables-legacy -A cali-FORWARD -m set --match-set cali40s:abc src -j DROP",
  "nft add table arp calico-arp",
  "iptables-nft -N cali-INPUT",
  "iptables-nft -A INPUT -j cali-INPUT",
  `echo '{"plugins":[{"type":"calico"}]}' > /etc/cni/net.d/10-calico.conflist`,
  "touch /etc/cni/net.d/calico-kubeconfig /opt/cni/bin/calico /opt/cni/bin/calico-ipam",
];
const ENV = {
  DATASTORE_TYPE: "sqlite",
  NODENAME: "n1",
  CALICO_IPV4POOL_IPIP: "Never",
  CALICO_IPV4POOL_VXLAN: "Always",
  CALICO_NETWORKING_BACKEND: "vxlan",
  FELIX_HEALTHENABLED: "true",
  CALICO_DISABLE_FILE_LOGGING: "true",
};

/** All a stranger could notice, less counters and tables that tools make by looking. */
function look(host: TestHost): Record<string, string> {
  const see = (command: string) =>
    host
      .run(["sh", "-c", command])
      .out.replaceAll(/\[\d+:\d+\]|packets \d+ bytes \d+|^#.*$/gm, "")
      .replaceAll(/^\s+$/gm, "");
  return {
    links: see("ip -o link | sed -E 's/^[0-9]+: //; s/@.*//; s/:.*//' | sort"),
    addresses: see("ip -4 -o addr | awk '{print $2, $4}' | sort"),
    routes: see("ip route show table all | grep -v 'proto kernel' | sort"),
    rules: see("ip rule"),
    nft: see("nft list tables | grep -v -E ' (filter|nat|mangle|raw)$'"),
    legacy: see("iptables-legacy-save -t filter"),
    viaNft: see("iptables-nft-save | grep cali"),
    sets: see("ipset list -n"),
    cni: see("ls /etc/cni/net.d /opt/cni/bin"),
    state: see("ls -A /var/lib/calico /var/run/calico"),
  };
}

test.skipIf(!canRun)("TC-I01 uninstalling leaves the host as it was before the node ran", async () => {
  await using host = await TestHost.create(FOREIGN);
  const before = look(host);
  const node = host.start([NODE], ENV);
  await eventually(() => host.run([NODE, "-felix-ready"], ENV).code === 0, 30_000, "Felix ready");
  for (const command of OURS)
    expect({ command, ...host.run(["sh", "-c", command]) }).toMatchObject({ command, code: 0 });
  expect(host.run(["nft", "list", "tables"]).out).toContain("calico");
  expect(host.run(["ip", "link"]).out).toContain("vxlan.calico");

  const refused = host.run([NODE, "-uninstall"]);
  expect(refused.code).toBe(1);
  expect(refused.out + refused.err).toContain("still runs on this host");
  expect(host.run(["nft", "list", "tables"]).out).toContain("calico"); // nothing was touched

  const ended = new Promise((resolve) => node.child.once("exit", resolve));
  node.child.kill("SIGTERM");
  await ended;
  const { code, err } = host.run([NODE, "-uninstall"]);
  expect({ code, err: code === 0 ? "" : err }).toEqual({ code: 0, err: "" });
  expect(look(host)).toEqual(before);
  expect(host.run([NODE, "-uninstall"]).code).toBe(0); // and again
  expect(look(host)).toEqual(before);
});
