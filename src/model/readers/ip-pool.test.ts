import { describe, expect, test } from "bun:test";
import { readStored, type Stored, stored } from "../testing/read.ts";
import { readPool } from "./ip-pool.ts";
import { readReservedCidrs } from "./ip-reservation.ts";

const MINIMAL = {
  name: "x",
  cidr: "10.0.0.0/16",
  blockSize: 26,
  ipipMode: "Never",
  vxlanMode: "Never",
  natOutgoing: false,
  isDisabled: false,
  disableBgpExport: false,
  nodeSelector: "",
  namespaceSelector: "",
  allowedUses: ["Workload", "Tunnel"],
  isAutomatic: true,
  isDeleting: false,
  mayAssign: true,
};
const cidr = "10.0.0.0/16";

const cases: readonly {
  readonly name: string;
  readonly given: Stored;
  readonly want: object | undefined;
  readonly problems?: readonly string[];
}[] = [
  { name: "minimal", given: { spec: { cidr } }, want: MINIMAL },
  {
    name: "null, empty and 0 count as unset",
    given: { spec: { cidr, ipipMode: "", blockSize: 0, allowedUses: [], disabled: null }, status: null },
    want: MINIMAL,
  },
  {
    name: "complete",
    given: {
      metadata: { name: "p" },
      spec: {
        cidr: "fd00:0::/48",
        blockSize: 120,
        ipipMode: "CrossSubnet",
        vxlanMode: "Always",
        natOutgoing: true,
        disabled: true,
        disableBGPExport: true,
        nodeSelector: "has(a)",
        namespaceSelector: "has(b)",
        allowedUses: ["LoadBalancer"],
        assignmentMode: "Manual",
      },
      status: { conditions: [{ type: "Allocatable", status: "True" }] },
    },
    want: {
      name: "p",
      cidr: "fd00::/48",
      blockSize: 120,
      ipipMode: "CrossSubnet",
      vxlanMode: "Always",
      natOutgoing: true,
      isDisabled: true,
      disableBgpExport: true,
      nodeSelector: "has(a)",
      namespaceSelector: "has(b)",
      allowedUses: ["LoadBalancer"],
      isAutomatic: false,
      isDeleting: false,
      mayAssign: false,
    },
  },
  {
    name: "being deleted",
    given: { metadata: { deletionTimestamp: "2026-01-01T00:00:00Z" }, spec: { cidr } },
    want: { ...MINIMAL, isDeleting: true, mayAssign: false },
  },
  {
    name: "not allocatable",
    given: { spec: { cidr }, status: { conditions: [{ type: "Allocatable", status: "False" }] } },
    want: { ...MINIMAL, mayAssign: false },
  },
  {
    name: "unreadable mode",
    given: { spec: { cidr, ipipMode: "Sometimes" } },
    want: MINIMAL,
    problems: ["spec.ipipMode: want Never, Always or CrossSubnet"],
  },
  {
    name: "wrong types; if allowedUses is unreadable, the pool has no uses",
    given: {
      spec: { cidr, blockSize: "26", natOutgoing: 1, nodeSelector: 5, allowedUses: ["Workload", 5], disabled: "true" },
      status: { conditions: 5 },
    },
    want: { ...MINIMAL, allowedUses: [] },
    problems: [
      "spec.allowedUses[1]: want text",
      "spec.disabled: want true or false",
      "spec.blockSize: want a number",
      "spec.natOutgoing: want true or false",
      "spec.nodeSelector: want text",
      "status.conditions: want a list",
    ],
  },
  { name: "no CIDR", given: {}, want: undefined, problems: ["spec.cidr: want a CIDR such as 10.0.0.0/16"] },
  {
    name: "unreadable CIDR",
    given: { spec: { cidr: "x" } },
    want: undefined,
    problems: ['spec.cidr: want a CIDR, not "x"'],
  },
  { name: "CIDR of the wrong type", given: { spec: { cidr: 5 } }, want: undefined, problems: ["spec.cidr: want text"] },
  { name: "spec of the wrong type", given: { spec: 5 }, want: undefined, problems: ["spec: want an object"] },
];

describe("readPool", () => {
  for (const { name, given, want, problems = [] } of cases)
    test(name, () => {
      const { value, problems: found } = readStored(readPool, stored("IPPool", given));
      expect<unknown>(value).toEqual(want);
      expect(found).toEqual(problems);
    });
});

describe("readReservedCidrs", () => {
  const lists: readonly (readonly [spec: unknown, want: readonly string[], problems: readonly string[]])[] = [
    [{}, [], []],
    [{ reservedCIDRs: ["10.0.0.7", "10.0.1.1/24", "fd00::/64"] }, ["10.0.0.7/32", "10.0.1.0/24", "fd00::/64"], []],
    [
      { reservedCIDRs: ["x", 5, "10.0.0.0/24"] },
      ["10.0.0.0/24"],
      ['spec.reservedCIDRs: want CIDRs, not "x"', "spec.reservedCIDRs: want CIDRs, not 5"],
    ],
    [{ reservedCIDRs: "10.0.0.0/24" }, [], ["spec.reservedCIDRs: want a list"]],
    [5, [], ["spec: want an object"]],
  ];
  for (const [spec, want, problems] of lists)
    test(JSON.stringify(spec), () =>
      expect<unknown>(readStored(readReservedCidrs, stored("IPReservation", { spec }))).toEqual({
        value: want,
        problems,
      }),
    );
});
