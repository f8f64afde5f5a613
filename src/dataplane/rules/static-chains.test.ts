import { expect, test } from "bun:test";
import type { IpAddress } from "../../lib/ip/ip.ts";
import { chain } from "./rule.ts";
import { filterChains, filterHooks } from "./filter-chains.ts";
import { mangleChains, mangleHooks, natChains, natHooks, rawChains, rawHooks } from "./static-chains.ts";
import { chainText, chainTextByName, plainConfig } from "./testing.ts";

const CLEAR_ALL = "--jump MARK --set-mark 0/0x1b0000";
const FROM_WORKLOAD = "-m mark --mark 0x80000/0x80000";
const ACCEPTED = "-m mark --mark 0x10000/0x10000";
const comment = (text: string) => `-m comment --comment "${text}"`;
const HEP_ACCEPTED = comment("Host endpoint policy accepted packet.");

test("FD-040 raw: packets of workloads are marked and their source is checked, others pass untracked policy, in both families", () => {
  const config = plainConfig({ workloadPrefixes: ["cali", "tap"] });
  for (const version of [4, 6] as const) {
    const chains = rawChains(config, version);
    expect(chainTextByName(chains, "cali-PREROUTING", "raw", config, version)).toEqual([
      CLEAR_ALL,
      "--in-interface cali+ --jump MARK --set-mark 0x80000/0x80000",
      "--in-interface tap+ --jump MARK --set-mark 0x80000/0x80000",
      `${FROM_WORKLOAD} --jump cali-rpf-skip`,
      `${FROM_WORKLOAD} -m rpfilter --invert --validmark --jump DROP`,
      "-m mark --mark 0/0x80000 --jump cali-from-host-endpoint",
      `${ACCEPTED} --jump ACCEPT`,
    ]);
    expect(chainTextByName(chains, "cali-OUTPUT", "raw", config, version)).toEqual([
      CLEAR_ALL,
      "--jump cali-to-host-endpoint",
      `${ACCEPTED} --jump ACCEPT`,
    ]);
  }
  const hooks = rawHooks();
  expect([[...hooks.insert.keys()], hooks.append.size]).toEqual([["PREROUTING", "OUTPUT"], 0]);
});

test("FD-040 raw: with deny action Reject, packets are dropped, because REJECT is not possible", () => {
  const config = plainConfig({ deny: "reject" });
  const text = chainTextByName(rawChains(config, 4), "cali-PREROUTING", "raw", config).join("\n");
  expect(text).toContain("--validmark --jump DROP");
  expect(text).not.toContain("REJECT");
});

test("FD-043 VXLAN packets to the configured port are not tracked, if VXLAN is enabled for the family", () => {
  const untracked = (on: { v4?: boolean; v6?: boolean }, version: 4 | 6) => {
    const config = plainConfig({ vxlanEnabled: on.v4 === true, vxlanEnabledV6: on.v6 === true, vxlanPort: 8472 });
    return ["cali-PREROUTING", "cali-OUTPUT"].map((name) => {
      const text = chainTextByName(rawChains(config, version), name, "raw", config, version);
      return text.indexOf("-p udp --dport 8472 --jump NOTRACK");
    });
  };
  // Before the source check coming in, after untracked policy going out.
  expect(untracked({ v4: true }, 4)).toEqual([1, 2]);
  expect(untracked({ v4: true }, 6)).toEqual([-1, -1]);
  expect(untracked({ v6: true }, 4)).toEqual([-1, -1]);
  expect(untracked({ v6: true }, 6)).toEqual([1, 2]);
  expect(untracked({}, 4)).toEqual([-1, -1]);
});

for (const [allow, target] of [
  ["accept", "ACCEPT"],
  ["return", "RETURN"],
] as const)
  test(`FD-045 mangle PREROUTING: established connections and packets accepted in raw pass, then pre-DNAT policy, by ${target}`, () => {
    const config = plainConfig({ mangleAllow: allow });
    expect(chainTextByName(mangleChains(config), "cali-PREROUTING", "mangle", config)).toEqual([
      `-m conntrack --ctstate RELATED,ESTABLISHED --jump ${target}`,
      `${ACCEPTED} --jump ${target}`,
      "--jump cali-from-host-endpoint",
      `${HEP_ACCEPTED} ${ACCEPTED} --jump ${target}`,
    ]);
    expect([...mangleHooks().insert.keys()]).toEqual(["PREROUTING", "POSTROUTING"]);
  });

test("FD-046 mangle POSTROUTING: packets with a translated destination pass host policy, unless they were forwarded", () => {
  const config = plainConfig();
  const text = chainTextByName(mangleChains(config), "cali-POSTROUTING", "mangle", config);
  expect(text.slice(1)).toEqual([
    `${ACCEPTED} --jump RETURN`, // forwarded
    CLEAR_ALL,
    "-m conntrack --ctstate DNAT --jump cali-to-host-endpoint",
    `${HEP_ACCEPTED} ${ACCEPTED} --jump RETURN`,
  ]);
  // With IPVS what an endpoint sent has been judged in FORWARD's stead.
  const ipvs = plainConfig({ ipvs: true });
  expect(chainTextByName(mangleChains(ipvs), "cali-POSTROUTING", "mangle", ipvs)[2]).toBe(
    "-m mark ! --mark 0/0xffe00000 --jump RETURN",
  );
});

test("FD-048 new connections between workloads of an ambient mesh get a DSCP, for every workload prefix", () => {
  const config = plainConfig({ istioDscp: 23, workloadPrefixes: ["cali", "tap"] });
  const text = chainTextByName(mangleChains(config), "cali-POSTROUTING", "mangle", config, 6);
  expect(text.slice(0, 2)).toEqual(
    ["cali+", "tap+"].map(
      (pattern) =>
        `-p tcp -m conntrack --ctstate NEW --out-interface ${pattern} -m set --match-set cali60all-istio-weps dst -m set --match-set cali60all-istio-weps src --jump DSCP --set-dscp 23`,
    ),
  );
  const off = plainConfig();
  expect(chainTextByName(mangleChains(off), "cali-POSTROUTING", "mangle", off).join()).not.toContain("istio");
});

const LEAVING = (device: string) =>
  `--out-interface ${device} -m addrtype ! --src-type LOCAL --limit-iface-out -m addrtype --src-type LOCAL`;
const TUNNELS = {
  ipipEnabled: true,
  ipipTunnelAddress: "10.65.0.1" as IpAddress,
  vxlanTunnelAddress: "10.65.0.2" as IpAddress,
  vxlanTunnelAddressV6: "fd65::2" as IpAddress,
};

test("FD-051 packets of the host that enter a tunnel get the address of the tunnel, if it is known", () => {
  const masquerading = (config: ReturnType<typeof plainConfig>, version: 4 | 6) =>
    chainTextByName(natChains(config, version), "cali-POSTROUTING", "nat", config, version).slice(2);
  const masquerade = (device: string) => `${LEAVING(device)} --jump MASQUERADE --random-fully`;
  expect(masquerading(plainConfig(TUNNELS), 4)).toEqual([masquerade("tunl0")]);
  expect(masquerading(plainConfig(TUNNELS), 6)).toEqual([]);
  const vxlan = plainConfig({ ...TUNNELS, ipipEnabled: false, vxlanEnabled: true, vxlanEnabledV6: true });
  expect(masquerading(vxlan, 4).at(-1)).toBe(masquerade("vxlan.calico"));
  expect(masquerading(vxlan, 6).at(-1)).toBe(masquerade("vxlan-v6.calico"));
  // Enabled, but the device has no address yet.
  expect(masquerading(plainConfig({ ipipEnabled: true, vxlanEnabled: true, vxlanEnabledV6: true }), 4)).toEqual([]);
  expect(masquerading(plainConfig({ wireguardEnabledV6: true }), 6)).toEqual([masquerade("wg-v6.cali")]);
});

for (const [port, range] of [
  [4789, "4790-65535"],
  [60_000, "1024-59999"],
  [33_280, "1024-33279"],
  [65_535, "1024-65534"],
  [80, "81-65535"],
] as const)
  test(`FD-052 UDP is masqueraded to the larger port range beside the VXLAN port ${port}: ${range}`, () => {
    const config = plainConfig({ ...TUNNELS, vxlanEnabled: true, vxlanPort: port });
    const text = chainTextByName(natChains(config, 4), "cali-POSTROUTING", "nat", config).slice(2);
    expect(text.map((line) => line.replace(/ -m addrtype .* LOCAL/, ""))).toEqual(
      ["tunl0", "vxlan.calico"].flatMap((device) => [
        `-p 17 --out-interface ${device} --jump MASQUERADE --to-ports ${range} --random-fully`,
        `--out-interface ${device} --jump MASQUERADE --random-fully`,
      ]),
    );
  });

test("FD-051 the POSTROUTING rules are appended, because kube-proxy must have cleared its mark", () => {
  const { insert, append } = natHooks();
  expect([[...insert.keys()], [...append.keys()]]).toEqual([["PREROUTING", "OUTPUT"], ["POSTROUTING"]]);
});

test("FD-057 FORWARD: marks are cleared except the verdict of raw, then host, from workload, to workload, host, service loops", () => {
  const config = plainConfig({ workloadPrefixes: ["cali", "tap"] });
  expect(chainTextByName(filterChains(config, 4), "cali-FORWARD", "filter", config)).toEqual([
    "--jump MARK --set-mark 0/0x1a0000",
    "-m mark --mark 0/0x10000 --jump cali-from-hep-forward",
    "--in-interface cali+ --jump cali-from-wl-dispatch",
    "--out-interface cali+ --jump cali-to-wl-dispatch",
    "--in-interface tap+ --jump cali-from-wl-dispatch",
    "--out-interface tap+ --jump cali-to-wl-dispatch",
    "--jump cali-to-hep-forward",
    "--jump cali-cidr-block",
  ]);
  for (const [allow, target] of [
    ["accept", "ACCEPT"],
    ["return", "RETURN"],
  ] as const) {
    const { append } = filterHooks({ ...config, filterAllow: allow });
    expect(chainText(chain("FORWARD", append.get("FORWARD") ?? []), "filter", config)).toEqual([
      `${comment("Policy explicitly accepted packet.")} ${ACCEPTED} --jump ${target}`,
      "--jump MARK --set-mark 0x10000/0x10000",
    ]);
  }
});

test("FD-058 OUTPUT: packets to workloads and tunnel packets to nodes pass, others pass host policy unless translated", () => {
  const config = plainConfig({ ipipEnabled: true, vxlanEnabled: true, workloadPrefixes: ["cali", "tap"] });
  expect(chainTextByName(filterChains(config, 4), "cali-OUTPUT", "filter", config)).toEqual([
    `${ACCEPTED} --jump ACCEPT`,
    "--out-interface cali+ --jump RETURN",
    "--out-interface tap+ --jump RETURN",
    `${comment("Allow IPIP packets to other Calico hosts")} -p 4 -m set --match-set cali40all-hosts-net dst -m addrtype --src-type LOCAL --jump ACCEPT`,
    `${comment("Allow IPv4 VXLAN packets to other allowed hosts")} -p 17 -m multiport --destination-ports 4789 -m addrtype --src-type LOCAL -m set --match-set cali40all-vxlan-net dst --jump ACCEPT`,
    CLEAR_ALL,
    "-m conntrack ! --ctstate DNAT --jump cali-to-host-endpoint",
    `${HEP_ACCEPTED} ${ACCEPTED} --jump ACCEPT`,
  ]);
  const returning = plainConfig({ filterAllow: "return" });
  expect(chainTextByName(filterChains(returning, 6), "cali-OUTPUT", "filter", returning, 6)).toEqual([
    `${ACCEPTED} --jump RETURN`,
    "--out-interface cali+ --jump RETURN",
    CLEAR_ALL,
    "-m conntrack ! --ctstate DNAT --jump cali-to-host-endpoint",
    `${HEP_ACCEPTED} ${ACCEPTED} --jump RETURN`,
  ]);
});

test("FD-061 OpenStack workloads may use DHCP, DNS and the metadata server", () => {
  const config = plainConfig({
    workloadPrefixes: ["tap"],
    openstack: { metadataAddress: "192.0.2.7" as IpAddress, metadataPort: 8775 },
  });
  const toHost = (version: 4 | 6) =>
    chainTextByName(filterChains(config, version), "cali-wl-to-host", "filter", config, version);
  const dns = "-p udp -m multiport --destination-ports 53 --jump ACCEPT";
  const end = ["--jump cali-from-wl-dispatch", `${comment("Configured DefaultEndpointToHostAction")} --jump DROP`];
  expect(toHost(4)).toEqual([
    "-p tcp --destination 192.0.2.7 -m multiport --destination-ports 8775 --jump ACCEPT",
    "-p udp -m multiport --source-ports 68 -m multiport --destination-ports 67 --jump ACCEPT",
    dns,
    ...end,
  ]);
  expect(toHost(6).slice(6)).toEqual([
    "-p udp -m multiport --source-ports 546 -m multiport --destination-ports 547 --jump ACCEPT",
    dns,
    ...end,
  ]);
  // A DHCP request has no source address, so the reverse-path filter would drop it.
  const raw = chainTextByName(rawChains(config, 4), "cali-PREROUTING", "raw", config);
  const question = raw.indexOf(
    "-p udp --source 0.0.0.0 -m multiport --source-ports 68 -m multiport --destination-ports 67 --jump ACCEPT",
  );
  expect(question).toBeGreaterThan(0);
  expect(question).toBeLessThan(raw.findIndex((line) => line.includes("rpfilter")));
  expect(chainTextByName(natChains(config, 4), "cali-PREROUTING", "nat", config)).toEqual([
    "--jump cali-fip-dnat",
    "-p tcp -m multiport --destination-ports 80 --destination 169.254.169.254/32 --jump DNAT --to-destination 192.0.2.7:8775",
  ]);
  expect(chainTextByName(natChains(config, 6), "cali-PREROUTING", "nat", config, 6)).toEqual(["--jump cali-fip-dnat"]);
  // Without a metadata server, the other rules are the same.
  const without = plainConfig({ openstack: { metadataPort: 8775 } });
  expect(chainTextByName(natChains(without, 4), "cali-PREROUTING", "nat", without)).toEqual(["--jump cali-fip-dnat"]);
  expect(chainTextByName(filterChains(without, 4), "cali-wl-to-host", "filter", without)).toHaveLength(4);
});
