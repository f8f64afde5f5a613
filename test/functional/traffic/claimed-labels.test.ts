// Tests that the owner of a namespace cannot label a NetworkSet or a pod as if it belonged to another namespace or service
// account: rules that select by namespace, service account or pod must not match it. Each rule has its own port, and packets
// are sent to all of them from `other`, whose address is in every NetworkSet with such labels.
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import type { FlowKind } from "./traffic.ts";
import { byIpv6 } from "./traffic.ts";
import { BASE, prepare, resource } from "./web-node.ts";

const EVERYTHING = ["0.0.0.0/1", "128.0.0.0/1", "::/1", "8000::/1"];
const IN_MONITORING = "kubernetes.io/metadata.name == 'monitoring'";

/** The source that a rule allows, and the labels of a NetworkSet in namespace `evil` that claims to be that source. */
const CLAIMS = {
  9001: [{ namespaceSelector: IN_MONITORING }, { "pcns.kubernetes.io/metadata.name": "monitoring" }],
  9002: [
    { selector: "projectcalico.org/orchestrator == 'k8s'", namespaceSelector: IN_MONITORING },
    { "pcns.kubernetes.io/metadata.name": "monitoring", "projectcalico.org/orchestrator": "k8s" },
  ],
  9003: [
    { namespaceSelector: "projectcalico.org/name == 'monitoring'" },
    { "pcns.projectcalico.org/name": "monitoring" },
  ],
  9004: [
    { namespaceSelector: "all()", serviceAccounts: { selector: "role == 'scraper'" } },
    { "pcsa.role": "scraper" },
  ],
  9005: [
    { namespaceSelector: "all()", serviceAccounts: { names: ["scraper"] } },
    { "projectcalico.org/serviceaccount": "scraper" },
  ],
  9006: [
    { namespaceSelector: "all()", selector: "projectcalico.org/orchestrator == 'k8s' && app == 'scraper'" },
    { "projectcalico.org/orchestrator": "k8s", app: "scraper" },
  ],
  9007: [{ selector: "app == 'scraper'" }, { "projectcalico.org/namespace": "ns1", app: "scraper" }],
} as const;
/** The pod itself claims a service account that it does not have. */
const POD_CLAIM = 9008;
/** Labels without a system meaning, and the namespace's real labels, still match. */
const OWN_LABELS = 9010;
const OWN_NAMESPACE = 9011;
/** So does a pod by its own labels, in the policy's namespace. */
const POD_LABELS = 9012;
const OPEN = [OWN_LABELS, OWN_NAMESPACE, POD_LABELS];

const set = (name: string, labels: object) => ({
  [`${BASE}/networksets/evil/${name}`]: resource(
    "NetworkSet",
    name,
    { nets: EVERYTHING },
    { namespace: "evil", labels },
  ),
});
const rule = (port: number | string, source: object) => ({
  action: "Allow",
  protocol: "UDP",
  source,
  destination: { ports: [Number(port)] },
});
const other = (labels: object) =>
  resource(
    "WorkloadEndpoint",
    "node--a-k8s-other-eth0",
    {
      ...{ orchestrator: "k8s", node: "node-a", pod: "other", endpoint: "eth0", containerID: "other" },
      ...{ interfaceName: "cali00000000002", ipNetworks: ["10.65.0.4/32", "fd00:65::4/128"] },
      ...{ profiles: ["kns.ns1"], mac: "ee:ee:ee:ee:ee:ee" },
    },
    { namespace: "ns1", labels: { "projectcalico.org/namespace": "ns1", ...labels } },
  );

const KEYS: Readonly<Record<string, unknown>> = {
  ...Object.assign({}, ...Object.entries(CLAIMS).map(([port, [, labels]]) => set(`claims-${port}`, labels))),
  ...set("own", { app: "list", role: "own" }),
  [`${BASE}/profiles/kns.evil`]: resource("Profile", "kns.evil", {
    labelsToApply: { "pcns.kubernetes.io/metadata.name": "evil", "pcns.projectcalico.org/name": "evil" },
  }),
  [`${BASE}/workloadendpoints/ns1/node--a-k8s-other-eth0`]: other({
    app: "other",
    "projectcalico.org/serviceaccount": "robot",
  }),
  [`${BASE}/networkpolicies/ns1/default.by-identity`]: resource(
    "NetworkPolicy",
    "default.by-identity",
    {
      ...{ tier: "default", order: 50, selector: "app == 'web'", types: ["Ingress"] },
      ingress: [
        ...Object.entries(CLAIMS).map(([port, [source]]) => rule(port, source)),
        rule(POD_CLAIM, { serviceAccounts: { names: ["robot"] } }),
        rule(OWN_LABELS, { namespaceSelector: "all()", selector: "app == 'list'" }),
        rule(OWN_NAMESPACE, { namespaceSelector: "kubernetes.io/metadata.name == 'evil'", selector: "role == 'own'" }),
        rule(POD_LABELS, { selector: "app == 'other'" }),
      ],
    },
    { namespace: "ns1" },
  ),
};

const UDP: readonly FlowKind[] = ["one-way"];

for (const backend of ["nftables", "legacy", "nft"] as const)
  test(`${backend}: labels that claim another namespace or service account allow no traffic`, async () => {
    await using world = await prepare(KEYS);
    const { node, traffic, pods } = world;
    node.startAgent(backend);
    await node.untilReady();
    const ports = [...Object.keys(CLAIMS).map(Number), POD_CLAIM, ...OPEN];
    for (const port of ports) {
      traffic.add(pods.other, pods.web, port, UDP);
      traffic.add(byIpv6(pods.other), byIpv6(pods.web), port, UDP);
    }
    traffic.start();
    // Every flow sends in every tick, so the allowed ones have delivered packets after this many ticks.
    await eventually(() => traffic.results().every(({ sent }) => sent >= 50));
    const passed = (await traffic.finish()).filter(({ delivered }) => delivered > 0).map(({ name }) => name);
    expect(passed).toEqual(OPEN.flatMap((port) => [`one-way other → web:${port}`, `one-way other6 → web6:${port}`]));
  }, 120_000);
