import { expect, test } from "bun:test";
import { Flowtable } from "./flowtable.ts";
import { changesIn } from "./phases.ts";

const table = { family: "ip", name: "calico" } as const;
const at = { table, flowtable: "calico" } as const;

test("FD-105 the flowtable is created with existing devices, updated by differences, and deleted when not desired", () => {
  const links = new Set(["cali1", "cali2", "eth0"]);
  const flows = new Flowtable(table, "calico", (name) => links.has(name));
  const commit = () => {
    const changes = changesIn([flows.changes()], ["create", "remove"]);
    flows.committed();
    expect(flows.hasChanges).toBe(false);
    return changes;
  };
  flows.found(undefined);
  expect(flows.hasChanges).toBe(false);
  // The kernel would reject the whole transaction because of a missing device.
  flows.set(new Set(["cali2", "cali1", "gone"]));
  expect(flows.hasChanges).toBe(true);
  expect(commit()).toEqual([{ op: "addFlowtable", ...at, priority: 0, devices: ["cali1", "cali2"] }]);
  links.add("gone");
  expect(flows.hasChanges).toBe(true);
  expect(commit()).toEqual([{ op: "addFlowtable", ...at, priority: 0, devices: ["gone"] }]);
  flows.set(new Set(["cali1", "eth0"]));
  links.delete("gone"); // the kernel removes a deleted device from the flowtable
  expect(commit()).toEqual([
    { op: "addFlowtable", ...at, priority: 0, devices: ["eth0"] },
    { op: "deleteFlowtable", ...at, devices: ["cali2"] },
  ]);
  // Another program removed a device, or the whole flowtable.
  flows.found(["cali1"]);
  expect(commit()).toEqual([{ op: "addFlowtable", ...at, priority: 0, devices: ["eth0"] }]);
  flows.found(undefined);
  expect(commit()).toEqual([{ op: "addFlowtable", ...at, priority: 0, devices: ["cali1", "eth0"] }]);
  flows.set(undefined);
  expect(commit()).toEqual([{ op: "deleteFlowtable", ...at }]);
});
