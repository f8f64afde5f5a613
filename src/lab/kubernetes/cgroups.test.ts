import { expect, test } from "bun:test";
import { hierarchies } from "./cgroups.ts";

test("one hierarchy per controller: each that is mounted, joint and named ones too", () => {
  const own = "9:name=systemd:/\n8:pids:/x\n4:memory:/\n3:cpu,cpuacct:/\n2:rdma:/\n0::/\n";
  expect(hierarchies(own, (folder) => folder !== "rdma")).toEqual([
    { folder: "systemd", mountOptions: "none,name=systemd" },
    { folder: "pids", mountOptions: "pids" },
    { folder: "memory", mountOptions: "memory" },
    { folder: "cpu,cpuacct", mountOptions: "cpu,cpuacct" },
  ]);
});

test("the unified hierarchy alone", () => {
  expect(hierarchies("0::/user.slice\n", () => true)).toEqual([{ folder: "", mountOptions: undefined }]);
});
