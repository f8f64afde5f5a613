// Records netlink replies of this machine's kernel as inputs of the netlink targets:
//   unshare --net bun test/fuzz/record-netlink.ts
// The script configures its network namespace, so it must not run in the host's.
import { spawnSync } from "node:child_process";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { NETLINK_NETFILTER, NETLINK_ROUTE, NetlinkSocket } from "../../src/kernel/netlink/netlink-socket.ts";
import type { NetlinkWriter } from "../../src/kernel/netlink/netlink-writer.ts";
import { NetlinkError } from "../../src/kernel/sys/kernel-error.ts";
import { wireguardMessages } from "../../src/kernel/wireguard/wireguard-message.ts";
import { NetlinkWriter as Writer } from "../../src/kernel/netlink/netlink-writer.ts";
import { parseAddress, parseCidr } from "../../src/lib/ip/ip.ts";

const NFT = 10 << 8;
const AF_INET = 2;
const AF_INET6 = 10;
const AF_BRIDGE = 7;
const NFPROTO_INET = 1;
const MOST_PER_KIND = 8;

if (spawnSync("ip", ["-o", "link"]).stdout.toString().trim().split("\n").length > 1)
  throw new Error("run this in a new network namespace: unshare --net");
configure();

record("netlink-link", NETLINK_ROUTE, 18, (w) => w.putZero(16));
for (const family of [AF_INET, AF_INET6]) {
  record("netlink-address", NETLINK_ROUTE, 22, (w) => putFamily(w, family, 8));
  record("netlink-route", NETLINK_ROUTE, 26, (w) => putFamily(w, family, 12));
  record("netlink-neighbour", NETLINK_ROUTE, 30, (w) => putFamily(w, family, 12));
  record("netlink-route", NETLINK_ROUTE, 34, (w) => putFamily(w, family, 12));
}
record("netlink-neighbour", NETLINK_ROUTE, 30, (w) => putFamily(w, AF_BRIDGE, 12));
record("netlink-link", NETLINK_ROUTE, 38, (w) => w.putZero(20));
const index = linkIndex("v0");
record("netlink-link", NETLINK_ROUTE, 46, (w) => {
  w.putZero(4);
  w.putI32(index);
  w.putU32(0);
  w.putU32(0xffff0000);
  w.putU32(0);
});
for (const message of [1, 4, 7, 10, 23])
  record("netlink-nftables", NETLINK_NETFILTER, NFT | message, (w) => {
    putNetfilter(w, NFPROTO_INET);
    if (message !== 1 && message !== 4) w.string(1, "filter");
  });
for (const set of ["addresses", "prefixes", "ports", "verdicts"])
  record("netlink-nftables", NETLINK_NETFILTER, NFT | 13, (w) => {
    putNetfilter(w, NFPROTO_INET);
    w.string(1, "filter");
    w.string(2, set);
  });
record("netlink-ipset", NETLINK_NETFILTER, (6 << 8) | 7, (w) => {
  putNetfilter(w, AF_INET);
  w.u8(1, 6);
});
for (const family of [AF_INET, AF_INET6])
  record("netlink-conntrack", NETLINK_NETFILTER, (1 << 8) | 1, (w) => putNetfilter(w, family));
recordWireguard();

function configure(): void {
  const script = `
    ip link set lo up
    ip link add v0 type veth peer name v1; ip link set v0 up; ip link set v1 up; ip link set v0 alias "calico: ns/pod"
    ip link add br0 type bridge; ip link add d0 type veth peer name d1; ip link set d0 master br0; ip link set d0 up; ip link set br0 up
    ip link add vxlan.calico type vxlan id 4096 local 10.0.0.1 dev v0 dstport 4789 nolearning; ip link set vxlan.calico up
    ip tunnel add tunl1 mode ipip local 10.0.0.1 remote 10.0.0.2
    ip addr add 10.0.0.1/24 dev v0; ip addr add 10.1.0.1 peer 10.1.0.2/32 dev v0; ip addr add fd00::1/64 dev v0 nodad
    ip route add 10.65.0.0/26 via 10.0.0.2 dev v0 proto 80 onlink; ip route add blackhole 10.65.1.0/26 proto 80
    ip route add 10.66.0.0/16 nexthop via 10.0.0.2 dev v0 weight 2 nexthop via 10.0.0.3 dev v0 onlink
    ip route add 10.67.0.0/16 dev v0 mtu lock 1400 metric 30 table 77 src 10.0.0.1
    ip route add 10.68.0.0/16 via inet6 fd00::2 dev v0
    ip -6 route add fd01::/64 via fd00::2 dev v0 pref high; ip -6 route add unreachable fd02::/64
    ip -6 route add fd03::/64 nexthop via fd00::2 dev v0 nexthop via fd00::3 dev v0
    ip rule add fwmark 0x100/0x300 lookup 77 pref 99; ip rule add not from 10.0.0.0/8 to 10.2.0.0/16 iif v0 goto 32766
    ip -6 rule add from fd00::/8 lookup 77; ip rule add from all suppress_prefixlength 0 lookup main
    ip neigh add 10.0.0.2 lladdr 02:00:00:00:00:02 dev v0 nud permanent; ip neigh add proxy 10.0.0.9 dev v0
    ip -6 neigh add fd00::2 lladdr 02:00:00:00:00:02 dev v0 nud permanent
    bridge fdb append 66:00:00:00:00:01 dev vxlan.calico dst 10.0.0.2
    tc qdisc add dev v0 root tbf rate 10mbit burst 64k latency 25ms peakrate 12mbit minburst 1540
    tc qdisc add dev v0 ingress; tc filter add dev v0 parent ffff: protocol all u32 match u32 0 0 action mirred egress redirect dev d0
    nft -f - <<'NFT'
      table inet filter {
        set addresses { type ipv4_addr; timeout 1h; elements = { 10.0.0.1, 10.0.0.2 timeout 5m } }
        set prefixes { type ipv6_addr; flags interval; elements = { fd00::/64, fd01::1-fd01::9 } }
        set ports { type ipv4_addr . inet_proto . inet_service; flags interval; elements = { 10.0.0.0/8 . tcp . 80-90 } }
        map verdicts { type ifname : verdict; elements = { "cali1" : goto pods, "cali2" : drop } }
        chain pods { tcp dport 80 counter accept comment "cali:abc"; }
        chain forward { type filter hook forward priority -1; policy drop; iifname vmap @verdicts; ct state established jump pods; }
        chain nat { type nat hook postrouting priority 100; ip saddr @addresses masquerade; }
      }
NFT
    nft 'add flowtable inet filter fast { hook ingress priority 0; devices = { v0, v1 }; }'
    ipset create a hash:ip family inet timeout 60; ipset add a 10.0.0.1
    ipset create b hash:net family inet6; ipset add b fd00::/64; ipset add b fd00::/66 nomatch
    ipset create c hash:ip,port; ipset add c 10.0.0.1,tcp:80; ipset add c 10.0.0.1,udp:53
    ipset create d hash:net,port; ipset add d 10.0.0.0/8,sctp:80
    conntrack -I -s 10.0.0.1 -d 10.0.0.2 -p tcp --sport 1000 --dport 80 --state ESTABLISHED -t 600 --mark 7
    conntrack -I -s 10.0.0.1 -d 10.0.0.2 -p udp --sport 1000 --dport 53 -t 600 --dst-nat 10.0.0.3
    conntrack -I -s fd00::1 -d fd00::2 -p icmpv6 --icmpv6-type 128 --icmpv6-code 0 --icmpv6-id 7 -t 600
  `;
  const { stderr } = spawnSync("bash", ["-c", script]);
  if (stderr.length > 0) console.error(stderr.toString()); // the kernel may not support all of them
}

function record(target: string, protocol: number, type: number, body: (w: NetlinkWriter) => void): void {
  using socket = NetlinkSocket.open(protocol);
  let number = 0;
  try {
    socket.dump({ operation: `record ${target}`, type, body }, ({ bytes, start, end }) => {
      if (number++ < MOST_PER_KIND)
        save(target, `kernel-${type}-${bytes[start + 16] ?? 0}-${number}`, bytes.slice(start, end));
      return undefined;
    });
  } catch (error) {
    if (!(error instanceof NetlinkError)) throw error;
    console.error(error.message);
  }
}

/** The kernel may not support WireGuard; requests of calico-ts have the same attributes as its replies. */
function recordWireguard(): void {
  const key = (n: number): string => btoa(String.fromCharCode(...Array.from({ length: 32 }, () => n)));
  const peer = {
    publicKey: key(2),
    endpoint: { address: parseAddress("192.0.2.1"), port: 51820 },
    keepaliveSeconds: 25,
    allowed: [parseCidr("10.65.0.0/26"), parseCidr("fd00::/122")],
  };
  const other = { ...peer, publicKey: key(3), endpoint: { address: parseAddress("fd00::9"), port: 1 } };
  for (const [i, write] of wireguardMessages(0x25, "wireguard.cali", {
    privateKey: key(1),
    port: 51820,
    mark: 1,
    set: [peer, other],
  }).entries()) {
    const w = new Writer();
    write(w);
    save("netlink-wireguard", `device-${i}`, w.toBytes());
  }
}

function save(target: string, name: string, bytes: Uint8Array): void {
  const folder = join(import.meta.dir, "corpus", target);
  mkdirSync(folder, { recursive: true });
  writeFileSync(join(folder, name), bytes);
}

function putFamily(w: NetlinkWriter, family: number, header: number): void {
  w.putU8(family);
  w.putZero(header - 1);
}

function putNetfilter(w: NetlinkWriter, family: number): void {
  w.putU8(family);
  w.putZero(3);
}

function linkIndex(name: string): number {
  return Number(/^(\d+):/.exec(spawnSync("ip", ["-o", "link", "show", name]).stdout.toString())?.[1] ?? 0);
}
