import { expect, test } from "bun:test";
import { readLegacyPoolFields } from "../legacy-pool.ts";
import { faults, resource, stored, wrongFields } from "./testing.ts";

test("DM-001 an IPPool is stored with the defaults of its IP version", async () => {
  expect(await stored("IPPool", { cidr: "10.0.0.0/16" })).toEqual({
    cidr: "10.0.0.0/16",
    vxlanMode: "Never",
    ipipMode: "Never",
    blockSize: 26,
    nodeSelector: "all()",
    allowedUses: ["Workload", "Tunnel"],
    assignmentMode: "Automatic",
  });
  expect((await stored("IPPool", { cidr: "fd00:0:0::/64", natOutgoing: true, disabled: false })).blockSize).toBe(122);
  expect(await stored("IPPool", { cidr: "fd00:0:0::/64", natOutgoing: false })).not.toHaveProperty("natOutgoing");
});

test("DM-001 empty values and null count as absent", async () => {
  const spec = {
    cidr: "10.0.0.0/16",
    blockSize: 0,
    nodeSelector: "",
    allowedUses: [],
    natOutgoing: null,
    ipipMode: "",
  };
  expect(await stored("IPPool", spec)).toEqual(await stored("IPPool", { cidr: "10.0.0.0/16" }));
});

test("DM-002 a LoadBalancer pool has no other use, no encapsulation, no disableBGPExport and no node selector", async () => {
  const cidr = "10.0.0.0/16";
  expect((await stored("IPPool", { cidr, allowedUses: ["LoadBalancer"] })).allowedUses).toEqual(["LoadBalancer"]);
  const bad = [
    [{ allowedUses: ["LoadBalancer", "Workload"] }, "spec.allowedUses"],
    [{ allowedUses: ["LoadBalancer"], vxlanMode: "Always" }, "spec.vxlanMode"],
    [{ allowedUses: ["LoadBalancer"], disableBGPExport: true }, "spec.disableBGPExport"],
    [{ allowedUses: ["LoadBalancer"], nodeSelector: "has(a)" }, "spec.nodeSelector"],
    [{ allowedUses: ["Lunch"] }, "spec.allowedUses[0]"],
    [{ allowedUses: Array(11).fill("Workload") }, "spec.allowedUses"],
  ] as const;
  for (const [spec, field] of bad) expect(await wrongFields("IPPool", { cidr, ...spec })).toEqual([field]);
});

test("DM-003 assignment mode, namespace selector, BGP export and status conditions", async () => {
  const cidr = "10.0.0.0/16";
  const spec = {
    cidr,
    assignmentMode: "Manual",
    namespaceSelector: "a == 'b'",
    allowedUses: ["Workload"],
    disableBGPExport: true,
  };
  expect(await stored("IPPool", spec)).toMatchObject(spec);
  expect(await wrongFields("IPPool", { cidr, assignmentMode: "Sometimes" })).toEqual(["spec.assignmentMode"]);
  expect(await wrongFields("IPPool", { cidr, namespaceSelector: "a == 'b'" })).toEqual(["spec.namespaceSelector"]);
  expect(await wrongFields("IPPool", { cidr, nodeSelector: "global()" })).toEqual(["spec.nodeSelector"]);
  const conditions = [{ type: "Allocatable", status: "False", reason: "CIDROverlap" }];
  const kept = await resource("IPPool", { spec: { cidr }, status: { conditions } });
  expect<unknown>(kept.status).toEqual({ conditions });
});

test("DM-141 a pool has no host bits, is large enough for a block, and does not overlap link-local ranges", async () => {
  const bad = [
    [{ cidr: "10.0.0.1/16" }, "spec.cidr", /did you mean 10\.0\.0\.0\/16/],
    [{ cidr: "10.0.0.1" }, "spec.cidr", /want a CIDR/],
    [{ cidr: "10.0.0.0/33" }, "spec.cidr", /want a CIDR/],
    [{}, "spec.cidr", /missing/],
    [{ cidr: "10.0.0.0/27" }, "spec.cidr", /smaller than one block of \/26/],
    [{ cidr: "169.0.0.0/8" }, "spec.cidr", /169\.254\.0\.0\/16/],
    [{ cidr: "fe80::/64" }, "spec.cidr", /fe80::\/10/],
    [{ cidr: "10.0.0.0/16", blockSize: 19 }, "spec.blockSize", /20 to 32/],
    [{ cidr: "fd00::/64", blockSize: 115 }, "spec.blockSize", /116 to 128/],
    [{ cidr: "fd00::/64", ipipMode: "Always" }, "spec.ipipMode", /only IPv4/],
    [{ cidr: "10.0.0.0/16", ipipMode: "Always", vxlanMode: "CrossSubnet" }, "spec.vxlanMode", /one encapsulation/],
  ] as const;
  for (const [spec, field, reason] of bad) {
    const [fault] = await faults("IPPool", spec);
    expect(fault?.field).toBe(field);
    expect(fault?.reason).toMatch(reason);
  }
  expect(await stored("IPPool", { cidr: "10.0.0.0/27", disabled: true })).toMatchObject({ blockSize: 26 });
});

test("DM-004 ipip and nat-outgoing of the first releases are read, but rejected on writes", async () => {
  const cidr = "10.0.0.0/16";
  const read = (spec: Record<string, unknown>) => readLegacyPoolFields({ cidr, ...spec });
  expect(read({ ipip: { enabled: false, mode: "always" } })).toEqual({ cidr, ipipMode: "Never" });
  expect(read({ ipip: { enabled: true, mode: "cross-subnet" } })).toEqual({ cidr, ipipMode: "CrossSubnet" });
  expect(read({ ipip: { enabled: true } })).toEqual({ cidr, ipipMode: "Always" });
  expect(read({ "nat-outgoing": true, natOutgoing: false })).toEqual({ cidr, natOutgoing: true });
  expect(read({ "nat-outgoing": false, natOutgoing: true })).toEqual({ cidr, natOutgoing: true });
  expect(await wrongFields("IPPool", { cidr, ipip: { enabled: true }, "nat-outgoing": true })).toEqual([
    "spec.ipip",
    "spec.nat-outgoing",
  ]);
});
