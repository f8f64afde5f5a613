// Tests changes of other programs to Calico's rules and sets: everything is restored exactly, and other rules are kept.
import { spawn } from "node:child_process";
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { allowProfile, BACKENDS, type Backend, DataplaneHost, inSync, policy, rule, tier } from "./host.ts";

const SETTINGS = {
  IptablesPostWriteCheckIntervalSecs: "0.1",
  IptablesRefreshInterval: "0.2",
  IpsetsRefreshInterval: "0.2",
  NftablesRefreshInterval: "0.2",
};
const A = "calia2";
const B = "calib3";

/** Shell commands; `$T` is the tool of the variant, such as iptables-legacy. */
const NFT_FAULTS = [
  "nft flush chain ip calico filter-cali-FORWARD",
  "nft flush chain ip calico filter-FORWARD",
  `nft delete element ip calico filter-cali-to-wl-dispatch '{ "${B}" }'`,
  `nft add element ip calico filter-cali-to-wl-dispatch '{ "cali9" : accept }'`,
  "nft insert rule ip calico filter-cali-FORWARD accept",
  `nft insert rule ip6 calico filter-cali-tw-${B} accept`,
  "nft add chain ip calico filter-cali-strange",
  "nft delete element ip calico cali40s-friends-hash '{ 10.65.0.2 }'",
  "nft add element ip calico cali40s-friends-hash '{ 10.65.0.9 }'",
  "nft flush set ip6 calico cali60s-friends-hash",
  "nft add set ip calico cali40s-nobody '{ type ipv4_addr; }'",
  "nft delete table arp calico-arp",
  "nft delete table inet calico-guard",
  "nft flush chain inet calico-guard filter-INPUT",
  "nft insert rule inet calico-guard filter-cali-guard-loopback accept",
  "nft delete table ip6 calico",
  "nft add table ip calico '{ flags dormant; }'", // the table exists, but its hooks are inactive
  "nft add table ip6 calico '{ flags dormant; }'; nft flush chain ip6 calico raw-PREROUTING",
  "nft add chain ip calico filter-FORWARD '{ policy drop; }'",
  "nft add chain ip calico first '{ type filter hook forward priority -10; }'; nft add rule ip calico first accept",
  `nft rename chain ip calico filter-cali-tw-${B} elsewhere`,
  `nft delete rule ip calico filter-cali-tw-${B} $(nft -a list chain ip calico filter-cali-tw-${B} | grep -o 'handle [0-9]*' | tail -1)`,
  `nft delete element ip calico filter-cali-to-wl-dispatch '{ "${B}" }'; nft add element ip calico filter-cali-to-wl-dispatch '{ "${B}" : accept }'`,
  "nft delete table ip calico; nft add table ip calico '{ set cali40s-friends-hash { type ipv4_addr; flags timeout; timeout 1h; }; }'",
  "nft flush table ip calico",
  "nft flush ruleset",
];
const IPTABLES_FAULTS = [
  "$T -F cali-FORWARD",
  "$T -F FORWARD",
  "$T -D FORWARD 1",
  "$T -t raw -F",
  "$T -t nat -F POSTROUTING",
  `$T -I cali-tw-${B} -j ACCEPT`,
  `$T -D cali-tw-${B} 1`,
  "$T -N cali-strange",
  "$T -A cali-FORWARD -j ACCEPT",
  `$T6 -R cali-tw-${B} 1 -j ACCEPT`,
  "ipset del cali40s:friends 10.65.0.2",
  "ipset add cali40s:friends 10.65.0.9",
  "ipset flush cali60s:friends",
  "ipset create cali40s:nobody hash:ip",
  "ipset -exist add cali40s:friends 10.65.0.2/32 nomatch", // the member is negated
  "ipset swap cali40s:friends cali40masq-ipam-pools",
  "$T -F; $T -X; ipset flush",
  "$T -F; $T -X; ipset destroy cali40s:friends; ipset create cali40s:friends hash:ip",
  "$T -F; $T -X; ipset destroy cali40s:friends; ipset create cali40s:friends hash:net family inet6",
  "$T -F; $T -X; ipset destroy cali40s:friends; ipset create cali40s:friends hash:net timeout 2 maxelem 1048576",
  "nft delete table arp calico-arp",
  "nft delete table inet calico-guard",
  "nft flush chain inet calico-guard filter-cali-guard-loopback",
];

function held(host: DataplaneHost, backend: Backend): string {
  const run = (command: string, ...args: string[]) => host.namespace.run(command, args);
  const saved = [
    // The order of chains and sets does not matter; that of rules does.
    ...run("nft", "-s", "list", "table", "arp", "calico-arp").split("\n"),
    ...run("nft", "-s", "list", "table", "inet", "calico-guard").split("\n"),
    ...(backend === "nftables"
      ? ["ip", "ip6"].flatMap((family) =>
          run("nft", "-s", "list", "table", family, "calico")
            .replace(/\n}\s*$/, "")
            .split(/\n(?=\t\w)/)
            .map((block) => block.trimEnd())
            .sort(),
        )
      : [
          ...["iptables", "ip6tables"].flatMap((tool) => run(`${tool}-${backend}-save`).split("\n")),
          ...run("ipset", "save").split("\n").sort(),
        ]),
  ];
  return saved
    .filter((line) => !line.startsWith("#"))
    .map((line) => line.replace(/\[\d+:\d+\]|(hashsize|bucketsize|initval) \S+/g, ""))
    .join("\n");
}

/** Groups rules by chain, because iptables-save prints chains in any order. */
const byChain = (text: string) => text.split("\n").sort().join("\n");

for (const backend of BACKENDS)
  test(`FD-025 FD-093 FD-102 ${backend}: changes of other programs to Calico's rules and sets are repaired, and their own rules are kept`, async () => {
    await using host = await DataplaneHost.create(backend, SETTINGS);
    const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
    expect([a.interfaceName, b.interfaceName]).toEqual([A, B]);
    for (const p of [80, 81]) host.prober.listen(b.target, "tcp", p);
    const foreign = "table inet somebody { chain c { type filter hook forward priority 50; udp dport 7 drop\n }\n }";
    host.start();
    await host.send(
      allowProfile,
      { type: "ipSetUpdate", id: "s:friends", setType: "net", members: [`${a.v4}/32`, `${a.v6}/128`] },
      policy("p", [
        rule({ protocol: { name: "tcp" }, srcIpSetIds: ["s:friends"], dstPorts: [{ first: 80, last: 80 }] }),
      ]),
      host.endpoint(a),
      host.endpoint(b, { tiers: [tier(["p"])] }),
      inSync,
    );
    const compare = backend === "nftables" ? (text: string) => text : byChain;
    const before = compare(held(host, backend));
    const cells = [a.v4, a.v6].flatMap((_, i) =>
      [80, 81].map((p) => ({ from: a.target, to: i === 0 ? b.v4 : b.v6, port: p })),
    );
    for (const fault of backend === "nftables" ? NFT_FAULTS : IPTABLES_FAULTS) {
      const linesBefore = host.lines.length;
      host.namespace.run("nft", [foreign]);
      const env = `T=iptables-${backend}; T6=ip6tables-${backend};`;
      host.namespace.run("sh", ["-c", `${env} ${fault}`]);
      await eventually(async () => {
        try {
          return compare(held(host, backend)) === before;
        } catch {
          return false; // a table is temporarily missing
        }
      }, 20_000).catch((error: unknown) => {
        throw new Error(`${fault}: not repaired\n${compare(held(host, backend))}`, { cause: error });
      });
      const said = host.lines.slice(linesBefore).filter((line) => line.startsWith("warn another program"));
      expect([fault, said.length > 0]).toEqual([fault, true]);
      if (fault !== "nft flush ruleset") host.namespace.run("nft", ["list", "table", "inet", "somebody"]);
    }
    expect(await host.probe(cells, 500)).toEqual(["reached", "silent", "reached", "silent"]);
    if (backend === "nftables") return;
    // Other programs may have rules in the built-in chains: Calico's are restored, the others keep their place.
    const tool = `iptables-${backend}`;
    host.namespace.run("sh", ["-c", `${tool} -A FORWARD -p udp --dport 7 -j DROP; ${tool} -D FORWARD 1`]);
    await eventually(
      () => /-A FORWARD .*cali-FORWARD\n.*-A FORWARD -p udp/s.test(host.namespace.run(`${tool}-save`, [])),
      20_000,
    );
  }, 180_000);

test("nftables: the dataplane makes progress while another program writes continuously", async () => {
  await using host = await DataplaneHost.create("nftables", SETTINGS);
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  host.prober.listen(b.target, "tcp", 80);
  const script = "while :; do nft add table ip busy; nft delete table ip busy; done";
  const busy = [1, 2].map(() =>
    spawn("nsenter", [`--net=/proc/${process.pid}/fd/${host.hostTarget.namespace}`, "sh", "-c", script], {
      stdio: "ignore",
      detached: true,
    }),
  );
  try {
    host.start();
    const ends = [host.endpoint(a), host.endpoint(b, { tiers: [tier(["p"])] })];
    await host.send(allowProfile, policy("p", []), ...ends, inSync);
    for (let i = 0; i < 20; i++) {
      const action = i % 2 === 0 ? "allow" : "deny";
      await host.send(policy("p", [rule({ action })]));
      const [outcome] = await host.probe([{ from: a.target, to: b.v4 }], action === "allow" ? 3000 : 50);
      expect([i, outcome]).toEqual([i, action === "allow" ? "reached" : "silent"]);
    }
  } finally {
    for (const { pid } of busy) if (pid !== undefined) process.kill(-pid, "SIGKILL");
  }
}, 60_000);
