// Provides a node with a web server whose policy allows one port from one client and another from outside.
import { expect } from "bun:test";
import type { IpAddress } from "../../../src/lib/ip/ip.ts";
import { TrafficNode } from "./node.ts";
import { byIpv6, type Place, Traffic } from "./traffic.ts";

export const BASE = "/calico/resources/v3/projectcalico.org";
const PODS = ["web", "client", "other"].map((name, i) => ({
  name,
  interfaceName: `cali0000000000${i}`,
  address: `10.65.0.${i + 2}` as IpAddress,
  address6: `fd00:65::${i + 2}` as IpAddress,
}));

export const resource = (kind: string, name: string, spec: object, more: object = {}) => ({
  kind,
  apiVersion: "projectcalico.org/v3",
  metadata: { name, uid: "00000000-0000-4000-8000-000000000001", creationTimestamp: "2026-01-01T00:00:00Z", ...more },
  spec,
});
const allow = { ingress: [{ action: "Allow" }], egress: [{ action: "Allow" }] };

/** Policy of `web`: port 8080 only from `client`, and 8090 from the network outside. */
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

/** @param more additional keys */
export async function prepare(more: Readonly<Record<string, unknown>> = {}) {
  const node = new TrafficNode();
  const traffic = new Traffic();
  const [web, client, other] = PODS.map((pod) => node.addPod(pod));
  if (web === undefined || client === undefined || other === undefined) throw new Error("no pods");
  await node.startDatastore({ ...KEYS, ...more });
  return {
    node,
    traffic,
    pods: { web, client, other },
    /** Starts the traffic after the rules are programmed: allowed flows connect, denied ones retry continuously. */
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
