// Checks that the owner of one namespace cannot change the policy of another. Namespace `prod` has a pod `db` and a
// policy with one rule; everything in namespace `evil` belongs to the attacker, whose pod sends a packet to `db`.
// Kubernetes objects are converted with the functions of the Kubernetes datastore driver.
import { describe, expect, test } from "bun:test";
import type { IpAddress } from "../lib/ip/ip.ts";
import {
  API_VERSION,
  type KindName,
  type Labels,
  profileFromNamespace,
  profileFromServiceAccount,
  type Resource,
  workloadEndpointFromPod,
} from "../model/index.ts";
import { entriesFromResources } from "./from-resources.ts";
import { evaluatePacket } from "./evaluate-packet.ts";
import { PolicyState } from "./state.ts";

const ATTACKER = "10.0.0.1";
const DB = "10.0.0.2";

const make = (kind: KindName, namespace: string, name: string, spec: object, labels: Labels = {}): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name, namespace, labels },
  spec,
});
function pod(namespace: string, name: string, ip: string, labels: Labels = {}, serviceAccountName?: string): Resource {
  const metadata = { name, namespace, labels: { app: name, ...labels }, annotations: {} };
  const spec = { nodeName: "n1", containers: [], serviceAccountName };
  return workloadEndpointFromPod({ metadata, spec, status: { podIP: ip } }, () => {});
}
const namespace = (name: string): Resource =>
  profileFromNamespace({ metadata: { name, labels: { "kubernetes.io/metadata.name": name, team: name } } });
const account = (of: string, name: string, labels: Labels): Resource =>
  profileFromServiceAccount({ metadata: { name, namespace: of, labels } });
const slice = (of: string, service: string, address: string): Resource => {
  const labels = { "kubernetes.io/service-name": service };
  return Object.assign(make("KubernetesEndpointSlice", of, `${service}-1`, {}, labels), {
    endpoints: [{ addresses: [address] }],
    ports: [{ port: 80 }],
  });
};
const TIERS: readonly Resource[] = [
  make("Tier", "", "kube-admin", { order: 1000, defaultAction: "Pass" }),
  make("Tier", "", "default", { order: 1_000_000, defaultAction: "Deny" }),
].map(({ metadata: { name }, ...tier }) => ({ ...tier, metadata: { name } }));
const allowing = (...sources: readonly object[]): Resource =>
  make("NetworkPolicy", "prod", "lock", {
    tier: "default",
    order: 100,
    selector: "app == 'db'",
    types: ["Ingress"],
    ingress: sources.map((source) => ({ action: "Allow", source })),
  });

/** Whether the attacker's packet reaches `db`. */
function verdict(policy: Resource, objects: readonly Resource[], attacker = pod("evil", "attacker", ATTACKER)): string {
  const namespaces = ["prod", "evil", "monitoring"].map(namespace);
  const all = [...TIERS, ...namespaces, pod("prod", "db", DB), attacker, policy, ...objects];
  const packet = { source: ATTACKER as IpAddress, destination: DB as IpAddress, protocol: 6, sourcePort: 1025 };
  const state = new PolicyState(entriesFromResources(all, () => {}));
  return evaluatePacket(state, { packet: { ...packet, destinationPort: 80 } }).action;
}

/** A peer of the rule, and the labels that would make an object of `evil` look like that peer. */
const CLAIMS: readonly (readonly [peer: object, labels: Labels])[] = [
  [{ namespaceSelector: "team == 'monitoring'" }, { "pcns.team": "monitoring" }],
  [{ namespaceSelector: "projectcalico.org/name == 'monitoring'" }, { "pcns.projectcalico.org/name": "monitoring" }],
  [{ selector: "app == 'attacker'" }, { "projectcalico.org/namespace": "prod" }],
  [
    { namespaceSelector: "all()", serviceAccounts: { names: ["scraper"] } },
    { "projectcalico.org/serviceaccount": "scraper" },
  ],
  [{ namespaceSelector: "all()", serviceAccounts: { selector: "role == 'scraper'" } }, { "pcsa.role": "scraper" }],
  [{ namespaceSelector: "global()", selector: "app == 'attacker'" }, { "projectcalico.org/namespace": "" }],
];

describe("labels that claim another identity", () => {
  for (const [peer, labels] of CLAIMS)
    test(`of pods and network sets: ${JSON.stringify(labels)}`, () => {
      const set = make("NetworkSet", "evil", "s", { nets: ["0.0.0.0/0"] }, { app: "attacker", ...labels });
      expect(verdict(allowing(peer), [set])).toBe("deny");
      expect(verdict(allowing(peer), [], pod("evil", "attacker", ATTACKER, labels))).toBe("deny");
    });

  test("of service accounts are inherited by their own pods, with a prefix", () => {
    const labels = { role: "scraper", "pcns.team": "monitoring", "projectcalico.org/name": "admin" };
    const attacker = pod("evil", "attacker", ATTACKER, {}, "robot");
    const robot = account("evil", "robot", labels);
    for (const peer of [
      { namespaceSelector: "team == 'monitoring'" },
      { serviceAccounts: { selector: "role == 'scraper'" } }, // in the policy's own namespace
      { serviceAccounts: { names: ["robot"] } },
      { namespaceSelector: "all()", serviceAccounts: { selector: "projectcalico.org/name == 'admin'" } },
    ])
      expect(verdict(allowing(peer), [robot], attacker)).toBe("deny");
    const anywhere = { namespaceSelector: "all()", serviceAccounts: { selector: "role == 'scraper'" } };
    expect(verdict(allowing(anywhere), [robot], attacker)).toBe("allow");
  });

  test("a service account's name cannot be confused with an account of another namespace", () => {
    const attacker = pod("evil", "attacker", ATTACKER, {}, "prod.admin");
    const peer = { namespaceSelector: "all()", serviceAccounts: { selector: "role == 'admin'" } };
    expect(verdict(allowing(peer), [account("prod", "admin", { role: "admin" })], attacker)).toBe("deny");
  });

  test("labels without a special meaning match normally", () => {
    expect(verdict(allowing({ namespaceSelector: "team == 'evil'" }), [])).toBe("allow");
    const set = make("NetworkSet", "evil", "s", { nets: ["0.0.0.0/0"] }, { role: "list" });
    const peer = { namespaceSelector: "team == 'evil'", selector: "role == 'list'" };
    expect(verdict(allowing(peer), [set])).toBe("allow");
  });
});

test("an EndpointSlice applies only to services of its own namespace", () => {
  const peer = { services: { name: "metrics", namespace: "monitoring" } };
  expect(verdict(allowing(peer), [slice("evil", "metrics", ATTACKER)])).toBe("deny");
  expect(verdict(allowing(peer), [slice("monitoring", "metrics", ATTACKER)])).toBe("allow");
});

describe("policies of another namespace apply only to its own pods", () => {
  const open = { order: -1000, types: ["Ingress"], ingress: [{ action: "Allow" }] };
  const cases: readonly (readonly [kind: KindName, name: string, spec: object])[] = [
    ["NetworkPolicy", "lock", { selector: "all()" }],
    ["NetworkPolicy", "default.lock", { selector: "all()" }],
    ["NetworkPolicy", "knp.default.lock", { selector: "all()" }],
    ["NetworkPolicy", "p", { selector: "projectcalico.org/namespace == 'prod'" }],
    ["NetworkPolicy", "p", { selector: "pcns.team == 'prod' || all()", namespaceSelector: "all()" }],
    ["NetworkPolicy", "p", { selector: "all()", tier: "kube-admin" }],
    ["NetworkPolicy", "p", { selector: "all()", preDNAT: true, applyOnForward: true, doNotTrack: true }],
    ["StagedNetworkPolicy", "lock", { selector: "all()" }],
    ["StagedKubernetesNetworkPolicy", "lock", { podSelector: {}, ingress: [{}] }],
    ["KubernetesNetworkPolicy", "lock", { podSelector: {}, ingress: [{}] }],
  ];
  for (const [kind, name, spec] of cases)
    test(`${kind} ${name} ${JSON.stringify(spec)}`, () => {
      const given = make(kind, "evil", name, { ...open, ...spec });
      expect(verdict(allowing(), [given])).toBe("deny");
      // The same policy in namespace `prod` allows the packet, unless it is staged.
      const own = make(kind, "prod", `${name}-2`, { ...open, ...spec });
      expect(verdict(allowing(), [own])).toBe(kind.startsWith("Staged") ? "deny" : "allow");
    });
});
