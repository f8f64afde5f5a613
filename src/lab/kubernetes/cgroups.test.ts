import { expect, test } from "bun:test";
import { hierarchies } from "./cgroups.ts";

test("cgroup v1: all mounted hierarchies, also combined and named ones", () => {
  const own = "9:name=systemd:/\n8:pids:/x\n4:memory:/\n3:cpu,cpuacct:/\n2:rdma:/\n0::/\n";
  expect(hierarchies(own, (folder) => folder !== "rdma")).toEqual([
    { folder: "systemd", mountOptions: "none,name=systemd" },
    { folder: "pids", mountOptions: "pids" },
    { folder: "memory", mountOptions: "memory" },
    { folder: "cpu,cpuacct", mountOptions: "cpu,cpuacct" },
  ]);
});

test("cgroup v2: only the unified hierarchy", () => {
  expect(hierarchies("0::/user.slice\n", () => true)).toEqual([{ folder: "", mountOptions: undefined }]);
});
