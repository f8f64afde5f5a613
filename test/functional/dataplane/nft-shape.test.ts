// Tests the names and types in the output of `nft list` that operators can rely on.
import { expect, test } from "bun:test";
import { allowProfile, DataplaneHost, hostEndpoint, inSync, policy, rule, tier } from "./host.ts";

type Item = Readonly<Record<string, { readonly [key: string]: unknown; readonly name?: string }>>;
const LAYER = /^(raw|mangle|nat|filter)-/;

function listed(host: DataplaneHost, family: string) {
  const text = host.namespace.run("nft", ["-j", "list", "table", family, "calico"]);
  const items = (JSON.parse(text) as { nftables: Item[] }).nftables;
  const of = (kind: string) => items.flatMap((item) => (item[kind] === undefined ? [] : [item[kind]]));
  return { chains: of("chain"), sets: of("set"), maps: of("map"), rules: of("rule") };
}

test("FD-100 one table per family, base chains by hook and priority, every chain with the prefix of its layer", async () => {
  await using host = await DataplaneHost.create("nftables");
  const a = host.addPod("a", 2);
  host.start();
  await host.send(allowProfile, host.endpoint(a), hostEndpoint("eth0", { profileIds: ["allow"] }), inSync);
  expect(host.namespace.run("nft", ["list", "tables"]).trim().split("\n").sort()).toEqual([
    "table arp calico-arp",
    "table inet calico-guard",
    "table ip calico",
    "table ip6 calico",
  ]);
  for (const family of ["ip", "ip6"]) {
    const { chains, rules } = listed(host, family);
    const hooked = chains.filter(({ hook }) => hook !== undefined);
    // kube-proxy translates at priority 100; later hooks see the translated packet.
    expect(
      hooked.map(({ name, type, hook, prio, policy: last }) => [name, type, hook, prio, last].join(" ")).sort(),
    ).toEqual([
      "filter-FORWARD filter forward 0 accept",
      "filter-INPUT filter input 0 accept",
      "filter-OUTPUT filter output 0 accept",
      "mangle-POSTROUTING filter postrouting -150 accept",
      "mangle-PREROUTING filter prerouting -150 accept",
      "nat-OUTPUT nat output 110 accept",
      "nat-POSTROUTING nat postrouting 110 accept",
      "nat-PREROUTING nat prerouting -100 accept",
      "raw-OUTPUT filter output -300 accept",
      "raw-PREROUTING filter prerouting -300 accept",
    ]);
    for (const { name = "" } of chains) expect(name).toMatch(LAYER);
    // A jump stays in its layer, and every rule is marked as Calico's.
    for (const { chain, expr, comment } of rules) {
      expect(comment).toMatch(/^cali:[\w-]+;/);
      for (const [, target] of JSON.stringify(expr).matchAll(/"(?:jump|goto)":\{"target":"([^"]+)"/g))
        expect(target?.split("-")[0]).toBe(String(chain).split("-")[0]);
    }
  }
});

test("FD-101 sets have a type per kind of member and names without a colon; workloads are dispatched by a verdict map", async () => {
  await using host = await DataplaneHost.create("nftables");
  const [a, b] = [host.addPod("a", 2), host.addPod("b", 3)];
  host.start();
  const sets = [
    { id: "s:nets", setType: "net", members: ["10.0.0.0/8", "10.1.0.0/16", "192.0.2.7/32", "fd00:1::/64"] },
    { id: "s:ips", setType: "ip", members: ["10.65.0.2", "fd00:65::2"] },
    { id: "n:ports", setType: "ipAndPort", members: ["10.65.0.3,tcp:80", "10.65.0.3,udp:53", "fd00:65::3,sctp:9"] },
  ] as const;
  const tcp = { name: "tcp" };
  await host.send(
    allowProfile,
    ...sets.map((set) => ({ type: "ipSetUpdate", ...set }) as const),
    policy("p", [
      rule({ srcIpSetIds: ["s:nets", "s:ips"] }),
      rule({ protocol: tcp, dstNamedPortIpSetIds: ["n:ports"] }),
    ]),
    host.endpoint(a),
    host.endpoint(b, { tiers: [tier(["p"])] }),
    inSync,
  );
  for (const [family, version, address] of [
    ["ip", 4, "ipv4_addr"],
    ["ip6", 6, "ipv6_addr"],
  ] as const) {
    const { sets: found, maps } = listed(host, family);
    for (const { name = "" } of found) expect(name).not.toContain(":");
    const kind = (id: string) => {
      const set = found.find(({ name }) => name === `cali${version}0${id}`);
      return [set?.["type"], set?.["flags"]];
    };
    expect(kind("s-nets")).toEqual([address, ["interval"]]);
    expect(kind("s-ips")).toEqual([address, undefined]);
    expect(kind("n-ports")).toEqual([[address, "inet_proto", "inet_service"], undefined]);
    const verdicts = (name: string) => {
      const map = maps.find((each) => each.name === name);
      expect([map?.["type"], map?.["map"]]).toEqual(["ifname", "verdict"]);
      return ((map?.["elem"] ?? []) as [string, { goto: { target: string } }][])
        .map(([key, { goto }]) => `${key} ${goto.target}`)
        .sort();
    };
    for (const [way, word] of [
      ["from", "fw"],
      ["to", "tw"],
    ] as const)
      expect(verdicts(`filter-cali-${way}-wl-dispatch`)).toEqual(
        [a, b].map((pod) => `${pod.interfaceName} filter-cali-${word}-${pod.interfaceName}`),
      );
  }
  // Another workload adds one element; the map and its chain are not changed.
  const handles = () =>
    listed(host, "ip")
      .rules.filter(({ chain }) => chain === "filter-cali-from-wl-dispatch")
      .map(({ handle }) => handle);
  const before = handles();
  expect(before).toHaveLength(2); // the map lookup, and the drop for other interfaces
  await host.send(host.endpoint(host.addPod("c", 4)));
  expect(handles()).toEqual(before);
  expect(host.namespace.run("nft", ["list", "map", "ip", "calico", "filter-cali-to-wl-dispatch"])).toContain("calic4");
});

test("FD-088 FD-089 comments of rules contain the policy and its annotations, up to the maximum length", async () => {
  await using host = await DataplaneHost.create("nftables");
  const a = host.addPod("a", 2);
  host.start();
  const notes = { ticket: "NET-7", why: "ä".repeat(100) };
  await host.send(
    allowProfile,
    policy("web", [rule({ annotations: notes }), rule({ action: "deny" })]),
    host.endpoint(a, { tiers: [tier(["web"])] }),
    inSync,
  );
  const comments = listed(host, "ip")
    .rules.filter(({ chain }) => chain === "filter-cali-pi-gnp/web")
    .map(({ comment }) => String(comment));
  expect(comments[0]).toMatch(/^cali:[\w-]{22}; GlobalNetworkPolicy web ingress; ticket=NET-7; why=ä+$/);
  expect(Buffer.byteLength(comments[0] ?? "")).toBeLessThan(129);
  expect(comments[1]).toMatch(/^cali:\w+;$/);
});
