// Tests the plugin and the CNI service of an earlier version together with those of this version, as during an upgrade.
// PREVIOUS_CALICO is the folder with the executables of the earlier version (its `dist/`).
import { spawn } from "node:child_process";
import { existsSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { canRun, CniHost, collect, DIST, type Pod } from "./cni-host.ts";
import { startService } from "./service.ts";

const previous = process.env["PREVIOUS_CALICO"] ?? "";
if (previous === "") console.log("skipped: set PREVIOUS_CALICO to the dist/ folder of an earlier version");

const leftOf = async (host: CniHost) => [host.workloadLinks(), await host.allocations(), await host.handles()];

async function addCheckAndDelete(host: CniHost, conf: Record<string, unknown>, file = join(DIST, "calico")) {
  const pod = host.pod();
  const added = await host.add(pod, { conf, file });
  expect(added).toMatchObject({ code: 0, json: { ips: [{ address: "10.65.0.128/32" }] } });
  expect((await host.call("CHECK", pod, { conf: { ...conf, prevResult: added.json }, file })).stdout).toBe("OK\n");
  expect(await host.del(pod, { conf, file })).toMatchObject({ code: 0, stdout: "" });
  expect(await leftOf(host)).toEqual([[], [], []]);
}

describe.skipIf(!canRun || previous === "")("beside an earlier version", () => {
  test("the earlier plugin works with the service of this version", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    await startService(host, socket).ready;
    await addCheckAndDelete(host, { service_socket: socket }, join(previous, "calico"));
  });

  test("the plugin of this version works with the earlier service", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "run/cni.sock");
    await startService(host, socket, [], previous).ready;
    await addCheckAndDelete(host, { service_socket: socket });
  });

  test("the service replaces an on-demand service that an earlier plugin started, and removes its lock file", async () => {
    await using host = await CniHost.create();
    const socket = join(host.folder, "cni.sock");
    const conf = { service_socket: socket, service_idle_seconds: 60 };
    const pod = host.pod();
    expect(await callInOwnMounts(host, "ADD", pod, conf)).toMatchObject({ code: 0 });
    const pid = await eventually(() => findListener(socket));
    expect(existsSync(`${socket}.stand-in`)).toBeTrue();
    await startService(host, socket).ready;
    await eventually(() => !existsSync(`/proc/${pid}`));
    expect(existsSync(`${socket}.stand-in`)).toBeFalse();
    expect(await host.del(pod, { conf })).toMatchObject({ code: 0, stdout: "" });
    expect(await leftOf(host)).toEqual([[], [], []]);
  });
});

/** Calls the earlier plugin in the mount namespace of the test: there it starts an on-demand service. */
function callInOwnMounts(host: CniHost, command: string, pod: Pod, conf: Record<string, unknown>) {
  const env = {
    PATH: process.env["PATH"],
    CNI_COMMAND: command,
    CNI_PATH: previous,
    CNI_CONTAINERID: pod.containerId,
    CNI_NETNS: pod.netns,
    CNI_IFNAME: "eth0",
  };
  const child = host.handle.run(() => spawn(join(previous, "calico"), [], { env, stdio: "pipe" }));
  child.stdin.end(JSON.stringify(host.conf(conf)));
  return collect(child);
}

/** @returns the process ID of the on-demand service that was started for this socket */
function findListener(socket: string): number | undefined {
  const found = Bun.spawnSync(["pgrep", "-f", "--", `--idle.*${socket}|${socket}.*--idle`])
    .stdout.toString()
    .trim();
  const pid = Number(found.split("\n")[0]);
  return found !== "" && existsSync(socket) && readFileSync(`/proc/${pid}/comm`, "utf8") !== "" ? pid : undefined;
}
