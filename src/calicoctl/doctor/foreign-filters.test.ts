// Tests the parsing of packet filters of other programs, and the findings about them.
import { describe, expect, test } from "bun:test";
import { healthy, node, pool, PODS, resource, session, THREE } from "../testing/healthy.ts";
import { examine } from "./examine.ts";
import { clusterFacts, type HostFacts } from "./facts.ts";
import type { Finding } from "./finding.ts";
import { type FilterChain, parseLegacySave, parseNftTable } from "./packet-filters.ts";

const nft = (lines: string, family: FilterChain["family"] = "inet", table = "fw") =>
  parseNftTable(family, table, `table ${family} ${table} {\n${lines}\n}\n`);
const chain = (name: string, hook: string, policy: string, ...rules: string[]) =>
  `\tchain ${name} {\n\t\ttype filter hook ${hook} priority filter; policy ${policy};\n${rules.map((rule) => `\t\t${rule}\n`).join("")}\t}`;
const findingsFor = (filters: readonly FilterChain[], more: Partial<HostFacts> = {}, resources = [PODS, ...THREE]) =>
  examine(clusterFacts(resources), { ...healthy, ...more, filters }).findings.filter(
    ({ id }) => id === "foreign-filter",
  );
const sessions = (state: string): Partial<HostFacts> => ({
  birds: {
    4: {
      routerId: "10.0.0.1",
      sessions: [session("10.0.0.2", { state, bgpState: state === "up" ? "Established" : "Connect" })],
    },
    6: undefined,
  },
});

describe("parsing", () => {
  test("an nftables table: base chains with hook, policy and the rules that are reached from them", () => {
    const [read, ...others] = nft(
      [
        "\tset bad {\n\t\ttype ipv4_addr\n\t\telements = { 10.1.1.1 }\n\t}",
        chain("f", "forward", "drop", "ct state established accept", "jump more"),
        "\tchain more {\n\t\ttcp dport 5432 counter packets 3 bytes 180 drop\n\t\tjump f\n\t}",
      ].join("\n"),
    );
    expect(others).toEqual([]);
    expect(read).toMatchObject({ where: "table inet fw, chain f", hook: "forward", drops: true, entersCalico: false });
    expect(read?.rules.map(({ verdict, isDirect }) => [verdict, isDirect])).toEqual([
      ["accept", true],
      [undefined, true],
      ["drop", false],
      [undefined, false],
    ]);
  });

  test("a counter or a comment is not a condition, and a comment is not a verdict", () => {
    const [read] = nft(
      chain(
        "f",
        "forward",
        "accept",
        'counter packets 5 bytes 420 drop comment "all"',
        'tcp dport 1 comment "drop" accept',
      ),
    );
    expect(read?.rules.map(({ verdict, isBare }) => [verdict, isBare])).toEqual([
      ["drop", true],
      ["accept", false],
    ]);
  });

  test("iptables-legacy-save", () => {
    const [input, forward] = parseLegacySave(
      "ip",
      "# Generated\n*filter\n:INPUT ACCEPT [0:0]\n:FORWARD DROP [7:420]\n:MINE - [0:0]\n-A FORWARD -j MINE\n-A MINE -p tcp --dport 22 -j ACCEPT\nCOMMIT\n",
    );
    expect(input).toMatchObject({ hook: "input", drops: false, rules: [] });
    expect(forward).toMatchObject({ where: "filter FORWARD", hook: "forward", drops: true });
    expect(forward?.rules.map(({ verdict }) => verdict)).toEqual([undefined, "accept"]);
  });
});

describe("findings", () => {
  const only = (found: readonly Finding[]) => {
    expect(found).toHaveLength(1);
    return found[0]!;
  };

  test("a chain on forward that drops everything breaks pods", () => {
    const found = only(findingsFor(nft(chain("f", "forward", "drop"))));
    expect(found).toMatchObject({ severity: "error", setting: "table inet fw, chain f" });
    expect(found.evidence[0]).toBe("hook forward, policy drop");
    expect(found.fix).toContain('nft insert rule inet fw f iifname "cali*" accept');
    expect(only(findingsFor(nft(chain("f", "forward", "accept", "counter packets 0 bytes 0 drop")))).severity).toBe(
      "error",
    );
  });

  test("Docker's FORWARD DROP is reported with iptables commands, a chain with exceptions as a warning", () => {
    const docker = nft(chain("FORWARD", "forward", "drop", 'oifname "docker0" accept'), "ip", "filter");
    const found = only(findingsFor(docker));
    expect(found.severity).toBe("warning");
    expect(found.fix).toContain("iptables -I FORWARD -i cali+ -j ACCEPT");
    expect(findingsFor(nft(chain("FORWARD", "forward", "drop"), "ip6", "filter"))).toEqual([]); // the node has no IPv6
  });

  test("no finding if packets of pods are accepted, or Calico's own chains are entered first", () => {
    const fine = [
      chain("f", "forward", "accept"),
      chain("f", "forward", "drop", 'iifname "cali*" accept', 'oifname "cali*" accept'),
      chain("f", "forward", "drop", "ip saddr 10.65.0.0/16 accept"),
      chain("f", "forward", "drop", "accept"),
      chain("f", "forward", "drop", "jump cali-FORWARD"),
      chain("f", "forward", "accept", "ip saddr 192.0.2.7 drop", 'iifname "docker0" drop'),
      chain("i", "input", "drop", "tcp dport 22 accept"),
    ];
    for (const each of fine) expect(findingsFor(nft(each), sessions("up"))).toEqual([]);
  });

  test("rules that drop packets of pods by interface or address", () => {
    for (const rule of ['iifname "cali1234abcd" drop', "ip daddr 10.65.3.0/24 reject", "ip saddr 10.0.0.0/8 drop"]) {
      const found = only(findingsFor(nft(chain("p", "prerouting", "accept", rule))));
      expect(found).toMatchObject({ severity: "error", evidence: [rule] });
    }
  });

  test("BGP: a rule that drops its port, and a policy that drops everything else while a session is down", () => {
    const dropping = nft(chain("i", "input", "accept", "tcp dport 179 drop"));
    expect(only(findingsFor(dropping, sessions("start"))).problem).toContain("BGP (tcp port 179)");
    expect(findingsFor(dropping)).toEqual([]); // BIRD is not running
    const closed = nft(chain("i", "input", "drop", "tcp dport 22 accept"));
    expect(only(findingsFor(closed, sessions("start"))).evidence).toContain("no session with 10.0.0.2");
    expect(findingsFor(nft(chain("i", "input", "drop", "tcp dport bgp accept")), sessions("start"))).toEqual([]);
  });

  test("VXLAN: its port is not accepted", () => {
    const overlay = [pool("pods", "10.65.0.0/16", { vxlanMode: "Always" }), node("n1", "10.0.0.1/24")];
    const found = only(findingsFor(nft(chain("i", "input", "drop", "tcp dport 22 accept")), {}, overlay));
    expect(found).toMatchObject({ severity: "warning" });
    expect(found.fix).toContain("udp dport 4789 accept");
    expect(findingsFor(nft(chain("i", "input", "drop", "ip saddr 10.0.0.0/24 accept")), {}, overlay)).toEqual([]);
  });

  test("VXLAN: the port is that of FelixConfiguration, the node's before the common one", () => {
    const overlay = [pool("pods", "10.65.0.0/16", { vxlanMode: "Always" }), node("n1", "10.0.0.1/24")];
    const common = resource("FelixConfiguration", "default", { vxlanPort: 8472 });
    const closed = (port: number) => nft(chain("i", "input", "drop", `udp dport ${port} accept`));
    expect(findingsFor(closed(8472), {}, [...overlay, common])).toEqual([]);
    const found = only(findingsFor(closed(4789), {}, [...overlay, common]));
    expect(found.problem).toContain("the VXLAN overlay (udp port 8472)");
    expect(found.fix).toContain("udp dport 8472 accept");
    const own = resource("FelixConfiguration", "node.n1", { vxlanPort: 8473 });
    expect(only(findingsFor(closed(8472), {}, [...overlay, common, own])).fix).toContain("udp dport 8473 accept");
  });
});
