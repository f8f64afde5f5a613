// The agent ends, is killed and changes its backend while traffic runs: nothing on a connection is lost, nothing that is
// denied gets through. Counted packet by packet.
import { expect, test } from "bun:test";
import type { IpAddress } from "../../../src/lib/ip.ts";
import type { Backend } from "../dataplane/host.ts";
import { TrafficNode } from "./node.ts";
import { byIpv6, faults, type Place, Traffic } from "./traffic.ts";

const BASE = "/calico/resources/v3/projectcalico.org";
const PODS = ["web", "client", "other"].map((name, i) => ({
  name,
  interfaceName: `cali0000000000${i}`,
  address: `10.65.0.${i + 2}` as IpAddress,
  address6: `fd00:65::${i + 2}` as IpAddress,
}));

const resource = (kind: string, name: string, spec: object, more: object = {}) => ({
  kind,
  apiVersion: "projectcalico.org/v3",
  metadata: { name, uid: "00000000-0000-4000-8000-000000000001", creationTimestamp: "2026-01-01T00:00:00Z", ...more },
  spec,
});
const allow = { ingress: [{ action: "Allow" }], egress: [{ action: "Allow" }] };

/** `web` takes port 8080 from `client` alone, and 8090 from the network outside. */
const KEYS: Readonly<Record<string, unknown>> = {
  [`${BASE}/clusterinformations/default`]: resource("ClusterInformation", "default", {
    clusterGUID: "0123456789abcdef0123456789abcdef",
    datastoreReady: true,
  }),
  [`${BASE}/tiers/default`]: resource("Tier", "default", { order: 1_000_000, defaultAction: "Deny" }),
  [`${BASE}/nodes/node-a`]: resource("Node", "node-a", { bgp: { ipv4Address: "192.0.2.10/24" } }),
  [`${BASE}/profiles/kns.ns1`]: resource("Profile", "kns.ns1", allow),
  ...Object.fromEntries(
    PODS.map(({ name, interfaceName, address, address6 }) => [
      `${BASE}/workloadendpoints/ns1/node--a-k8s-${name}-eth0`,
      resource(
        "WorkloadEndpoint",
        `node--a-k8s-${name}-eth0`,
        {
          ...{ orchestrator: "k8s", node: "node-a", pod: name, endpoint: "eth0", containerID: name },
          ...{ interfaceName, ipNetworks: [`${address}/32`, `${address6}/128`] },
          ...{ profiles: ["kns.ns1"], mac: "ee:ee:ee:ee:ee:ee" },
        },
        { namespace: "ns1", labels: { app: name, "projectcalico.org/namespace": "ns1" } },
      ),
    ]),
  ),
  [`${BASE}/networkpolicies/ns1/default.web`]: resource(
    "NetworkPolicy",
    "default.web",
    {
      ...{ tier: "default", order: 100, selector: "app == 'web'", types: ["Ingress"] },
      ingress: ["TCP", "UDP"].flatMap((protocol) => [
        { action: "Allow", protocol, source: { selector: "app == 'client'" }, destination: { ports: [8080] } },
        { action: "Allow", protocol, source: { nets: ["192.0.2.0/24"] }, destination: { ports: [8090] } },
        { action: "Allow", protocol, source: { nets: ["2001:db8::/64"] }, destination: { ports: [8090] } },
      ]),
    },
    { namespace: "ns1" },
  ),
};

async function prepare() {
  const node = new TrafficNode();
  const traffic = new Traffic();
  const [web, client, other] = PODS.map((pod) => node.addPod(pod));
  if (web === undefined || client === undefined || other === undefined) throw new Error("no pods");
  await node.startDatastore(KEYS);
  return {
    node,
    traffic,
    /** After the rules are there: connections that pass are made, the others knock all the time. */
    begin: async () => {
      traffic.add(client, web, 8080);
      traffic.add(client, web, 8081);
      traffic.add(node.outside, web, 8090);
      traffic.add(other, web, 8080, ["answered", "one-way"]);
      traffic.add(other, web, 8090, ["one-way"]);
      traffic.add(node.outside, web, 8080, ["one-way"]);
      const [web6, client6, other6, outside6] = [web, client, other, node.outside].map(byIpv6) as [
        Place,
        Place,
        Place,
        Place,
      ];
      traffic.add(client6, web6, 8080);
      traffic.add(client6, web6, 8081, ["answered", "one-way"]);
      traffic.add(outside6, web6, 8090);
      traffic.add(other6, web6, 8080, ["one-way"]);
      traffic.add(outside6, web6, 8080, ["one-way"]);
      traffic.start();
      await new Promise((resolve) => setTimeout(resolve, 500));
      const before = traffic.results();
      expect(before.filter(({ delivered }) => delivered > 0).map(({ name }) => name)).toEqual([
        "answered client → web:8080",
        "one-way client → web:8080",
        "tcp client → web:8080",
        "answered outside → web:8090",
        "one-way outside → web:8090",
        "tcp outside → web:8090",
        "answered client6 → web6:8080",
        "one-way client6 → web6:8080",
        "tcp client6 → web6:8080",
        "answered outside6 → web6:8090",
        "one-way outside6 → web6:8090",
        "tcp outside6 → web6:8090",
      ]);
      return before;
    },
    async [Symbol.asyncDispose]() {
      traffic[Symbol.dispose]();
      await node[Symbol.asyncDispose]();
    },
  };
}

for (const backend of ["nftables", "legacy", "nft"] as const)
  test(`${backend}: ended, killed and killed while it starts, the agent loses and opens nothing`, async () => {
    await using world = await prepare();
    const { node, traffic } = world;
    node.startAgent(backend);
    await node.untilReady();
    const before = await world.begin();
    for (const signal of ["SIGTERM", "SIGKILL"] as const) {
      await node.endAgent(signal);
      node.startAgent(backend);
      await node.untilReady();
    }
    // Killed at some point of its first round, then started for good.
    for (const afterMs of [250, 500, 900]) {
      await node.endAgent("SIGKILL");
      node.startAgent(backend);
      await new Promise((resolve) => setTimeout(resolve, afterMs));
    }
    await node.endAgent("SIGKILL");
    node.startAgent(backend);
    await node.untilReady();
    const { lost, passed, checked } = faults(before, await traffic.finish());
    console.log(
      `${backend}: ${checked} packets over six restarts, ${lost.length} lost, ${passed.length} wrongly passed`,
    );
    expect({ lost, passed }).toEqual({ lost: [], passed: [] });
  }, 240_000);

test("from one backend to the next and back, nothing is lost or opened", async () => {
  await using world = await prepare();
  const { node, traffic } = world;
  const order: readonly Backend[] = ["nftables", "legacy", "nft", "nftables", "nft", "legacy", "nftables"];
  let before;
  for (const backend of order) {
    node.startAgent(backend);
    await node.untilReady();
    await node.untilOnly(backend);
    before ??= await world.begin();
    await node.endAgent("SIGTERM");
  }
  const { lost, passed, checked } = faults(before ?? [], await traffic.finish());
  console.log(`${order.join(" → ")}: ${checked} packets, ${lost.length} lost, ${passed.length} wrongly passed`);
  expect({ lost, passed }).toEqual({ lost: [], passed: [] });
}, 300_000);

test("the count itself notices a gap and a leak", async () => {
  await using world = await prepare();
  const { node, traffic } = world;
  node.startAgent("nftables");
  await node.untilReady();
  const before = await world.begin();
  await node.endAgent("SIGKILL");
  node.space.run("nft", ["delete table ip calico"]);
  await new Promise((resolve) => setTimeout(resolve, 100));
  node.space.run("nft", ["table ip gap { chain c { type filter hook forward priority 0; policy drop;\n }\n }"]);
  await new Promise((resolve) => setTimeout(resolve, 100));
  const { lost, passed } = faults(before, await traffic.finish());
  expect(lost.length).toBeGreaterThan(0);
  expect(passed.length).toBeGreaterThan(0);
}, 60_000);
