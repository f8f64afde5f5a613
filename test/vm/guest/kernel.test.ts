// The kernel of the virtual machine, and the pieces that speak to it directly.
import { expect, test } from "bun:test";
import { readFileSync } from "node:fs";
import { openRtnetlink, openWireguard } from "../../../src/kernel/index.ts";

test("this is another kernel, with systemd in charge", () => {
  expect(readFileSync("/proc/1/comm", "utf8").trim()).toBe("systemd");
  using kernel = openRtnetlink();
  kernel.links.create({ name: "wgtest", type: { kind: "wireguard" } });
  using wireguard = openWireguard();
  expect(wireguard?.get("wgtest")?.port).toBe(0);
  kernel.links.delete("wgtest");
});
