import { expect, test } from "bun:test";
import { Flowtable } from "./flowtable.ts";

const table = { family: "ip", name: "calico" } as const;
const at = { table, flowtable: "calico" } as const;

test("FD-105 the flowtable is made with the devices that exist, grows and shrinks by differences, and goes when unwanted", () => {
  const links = new Set(["cali1", "cali2", "eth0"]);
  const flows = new Flowtable(table, "calico", (name) => links.has(name));
  const commit = () => {
    const changes = [...flows.creation(), ...flows.removal()];
    flows.committed();
    expect(flows.hasChanges).toBe(false);
    return changes;
  };
  flows.found(undefined);
  expect(flows.hasChanges).toBe(false);
  // One that is not there must not be named: the kernel would refuse everything else with it.
  flows.set(new Set(["cali2", "cali1", "gone"]));
  expect(flows.hasChanges).toBe(true);
  expect(commit()).toEqual([{ op: "addFlowtable", ...at, priority: 0, devices: ["cali1", "cali2"] }]);
  links.add("gone");
  expect(flows.hasChanges).toBe(true);
  expect(commit()).toEqual([{ op: "addFlowtable", ...at, priority: 0, devices: ["gone"] }]);
  flows.set(new Set(["cali1", "eth0"]));
  links.delete("gone"); // a device that vanishes leaves the flowtable by itself
  expect(commit()).toEqual([
    { op: "addFlowtable", ...at, priority: 0, devices: ["eth0"] },
    { op: "deleteFlowtable", ...at, devices: ["cali2"] },
  ]);
  // Somebody else removed a device, or the whole of it.
  flows.found(["cali1"]);
  expect(commit()).toEqual([{ op: "addFlowtable", ...at, priority: 0, devices: ["eth0"] }]);
  flows.found(undefined);
  expect(commit()).toEqual([{ op: "addFlowtable", ...at, priority: 0, devices: ["cali1", "eth0"] }]);
  flows.set(undefined);
  expect(commit()).toEqual([{ op: "deleteFlowtable", ...at }]);
});
