import { expect, test } from "bun:test";
import { parseMountinfo, readMounts } from "./mountinfo.ts";

test("parseMountinfo: bind mounts, optional fields and escaped names", () => {
  const text = [
    "28 1 254:1 / / rw,relatime shared:1 master:2 - ext4 /dev/vda1 rw",
    "90 28 254:1 /srv/shared /var/lib/calico/data\\040store rw - ext4 /dev/vda1 rw",
    "91 28 0:30 / /run/calico/cgroup rw,nosuid - cgroup2 none rw",
    "",
  ].join("\n");
  expect(parseMountinfo(text)).toEqual([
    { root: "/", mountPoint: "/", type: "ext4" },
    { root: "/srv/shared", mountPoint: "/var/lib/calico/data store", type: "ext4" },
    { root: "/", mountPoint: "/run/calico/cgroup", type: "cgroup2" },
  ]);
});

test("readMounts: /proc is mounted", () => {
  expect(readMounts()).toContainEqual({ root: "/", mountPoint: "/proc", type: "proc" });
});
