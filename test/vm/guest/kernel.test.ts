// Tests the virtual machine's kernel.
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { openRtnetlink, openWireguard } from "../../../src/kernel/index.ts";

test("the kernel is Debian's, systemd runs, and WireGuard links can be created", () => {
  expect(readFileSync("/proc/1/comm", "utf8").trim()).toBe("systemd");
  using kernel = openRtnetlink();
  kernel.links.create({ name: "wgtest", type: { kind: "wireguard" } });
  using wireguard = openWireguard();
  expect(wireguard?.get("wgtest")?.port).toBe(0);
  kernel.links.delete("wgtest");
});
