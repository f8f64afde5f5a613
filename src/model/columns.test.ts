import { expect, test } from "bun:test";
import { sortRows, tableOf } from "./columns.ts";
import { KINDS, type KindName, kindOf, selectableFields } from "./kinds.ts";
import { API_VERSION, type Resource } from "./resource.ts";
import { loadDefinition } from "./validation/schemas.ts";

const make = (kind: KindName, spec: unknown, name = "x"): Resource => ({
  apiVersion: API_VERSION,
  kind,
  metadata: { name, namespace: "ns" },
  spec,
});

function row(kind: KindName, spec: unknown, wide = true, context = {}): string[] {
  const table = tableOf(kind)!;
  return (wide ? table.wide : table.short).map((heading) =>
    table.columns.find((c) => c.heading === heading)!.cell(make(kind, spec), context),
  );
}

test("DM-030 short names, printed columns and selectable fields are those of Calico", async () => {
  expect(kindOf("HostEndpoint").shortNames).toEqual(["hep", "heps"]);
  expect(kindOf("GlobalNetworkPolicy").shortNames).toEqual(["gnp", "cgnp"]);
  expect(kindOf("BlockAffinity").shortNames).toEqual(["affinity", "affinities"]);
  const printed = async (kind: "IPPool" | "BGPPeer" | "Tier") =>
    (await loadDefinition(kind)).printerColumns?.map((column) => column.name);
  expect(await printed("IPPool")).toEqual(["CIDR", "VXLAN", "IPIP", "NAT", "Allocatable", "Age"]);
  expect(await printed("BGPPeer")).toEqual([
    "Node Selector",
    "Node",
    "Local ASN",
    "Peer Selector",
    "Peer IP",
    "Peer ASN",
  ]);
  expect(await printed("Tier")).toEqual(["Order", "DefaultAction", "Status"]);
  expect(selectableFields("NetworkPolicy")).toEqual(["metadata.name", "metadata.namespace", "spec.tier"]);
  expect(selectableFields("GlobalNetworkPolicy")).toEqual(["metadata.name", "spec.tier"]);
  expect(selectableFields("NetworkSet")).toEqual(["metadata.name", "metadata.namespace"]);
  expect(selectableFields("IPPool")).toEqual(["metadata.name"]);
});

test("short and wide tables refer only to existing columns", () => {
  for (const { name } of KINDS) {
    const table = tableOf(name);
    const known = new Set(table?.columns.map((column) => column.heading));
    for (const heading of [...(table?.short ?? []), ...(table?.wide ?? [])]) expect(known).toContain(heading);
  }
});

test("cells are formatted as in Calico", () => {
  expect(row("IPPool", { cidr: "10.0.0.0/16", ipipMode: "Never", vxlanMode: "Never", nodeSelector: "all()" })).toEqual([
    "x",
    "10.0.0.0/16",
    "false",
    "Never",
    "Never",
    "false",
    "false",
    "all()",
    "Automatic",
  ]);
  expect(row("NetworkPolicy", {})).toEqual(["x", "default", "<nil>", ""]);
  expect(row("GlobalNetworkPolicy", { tier: "sec", order: 10.5, selector: "all()" })).toEqual([
    "x",
    "sec",
    "10.5",
    "all()",
  ]);
  expect(row("BGPPeer", { nodeSelector: "a" })).toEqual(["x", "", "a", "0"]);
  expect(row("BGPPeer", { peerIP: "1.1.1.1", asNumber: 1 })).toEqual(["x", "1.1.1.1", "(global)", "1"]);
  expect(row("BGPConfiguration", { logSeverityScreen: "Info" })).toEqual(["x", "Info", "-", "-"]);
  expect(row("Node", {})).toEqual(["x", "", "", ""]);
  expect(row("Node", { bgp: { ipv4Address: "10.0.0.9" } })).toEqual(["x", "(64512)", "10.0.0.9", ""]);
  expect(row("Node", { bgp: { ipv4Address: "10.0.0.9" } }, true, { defaultAsNumber: 65333 })[1]).toBe("(65333)");
  expect(row("Profile", { labelsToApply: { x: "true", a: "b" } })).toEqual(["x", "a=b,x=true"]);
  expect(row("WorkloadEndpoint", { pod: "p", node: "n", ipNetworks: ["10.0.0.1/32", "fd00::1/128"] }, false)).toEqual([
    "p",
    "n",
    "10.0.0.1/32,fd00::1/128",
    "",
  ]);
  expect(row("GlobalNetworkSet", { nets: Array(20).fill("10.0.0.0/24") })[1]).toMatch(/^.{77}\.\.\.$/);
});

test("tiers are sorted by order, which is printed as a floating-point number", () => {
  const tiers = [
    make("Tier", { order: 1_000_000 }, "noorder"),
    make("Tier", { order: 10_000_000 }, "last"),
    make("Tier", { order: 50 }, "sec"),
    make("Tier", { order: 1_000_000 }, "default"),
  ];
  expect(sortRows("Tier", tiers).map((tier) => tier.metadata.name)).toEqual(["sec", "default", "noorder", "last"]);
  for (const [order, text] of [
    [50, "50"],
    [1_000_000, "1e+06"],
    [10_000_000, "1e+07"],
    [1234567, "1.234567e+06"],
    [0.5, "0.5"],
    [0.00001, "1e-05"],
    [0, "0"],
    [100000, "100000"],
  ] as const)
    expect(row("Tier", { order })[1]).toBe(text);
});
