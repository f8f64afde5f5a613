import { expect, test } from "bun:test";
import { parseAddress, parseCidr } from "../../lib/ip/ip.ts";
import { type AllocationRecord, compareUsage } from "./allocations.ts";

const record = (last: number, handleId: string, attributes = {}): AllocationRecord => ({
  ...{ address: parseAddress(`10.65.0.${last}`), block: parseCidr("10.65.0.0/26"), handleId, attributes },
  ...{ coolingDown: false, borrowed: false },
});
const user = (last: number, name: string) => ({
  ...{ address: parseAddress(`10.65.0.${last}`), kind: "workload" as const, name },
});

test("CI-077 a stopped machine keeps its address, and two pods may use it during a migration", () => {
  const allocations = [
    record(1, "net.vmi.ns.off"),
    record(2, "net.vmi.ns.moving", { "vmi-name": "moving" }),
    record(3, "net.gone"),
    record(4, "net.twice"),
  ];
  const users = [user(2, "source"), user(2, "target"), user(4, "one"), user(4, "two")];
  const { leaked, shared } = compareUsage(allocations, users, [parseCidr("10.65.0.0/24")]);
  expect(leaked.map(({ handleId }) => handleId)).toEqual(["net.gone"]);
  expect(shared.map(({ address }) => String(address))).toEqual(["10.65.0.4"]);
});
