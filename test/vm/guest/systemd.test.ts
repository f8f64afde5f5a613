// Tests calico-node as a service of a real systemd: started by calicoctl, restarted and stopped.
import { afterAll, expect, test } from "bun:test";
import { execFileSync, spawnSync } from "node:child_process";
import { mkdirSync } from "node:fs";
import { join } from "node:path";

const dist = join(import.meta.dir, "../../../dist");
const env = {
  PATH: process.env["PATH"] ?? "",
  HOME: "/root",
  DATASTORE_TYPE: "sqlite",
  CALICO_SQLITE_PATH: "/var/lib/calico/vm/calico.db",
};
const MINUTES = 60_000;
const unit = "calico-node.service";
const run = (program: string, ...args: string[]) => spawnSync(program, args, { encoding: "utf8", env });
const show = (property: string) => run("systemctl", "show", "-P", property, unit).stdout.trim();

afterAll(() => {
  run("systemctl", "stop", unit);
  run("ip", "link", "del", "eth7");
});

test(
  "TC-C37 calicoctl node run starts a service that becomes ready, is restarted when killed, and leaves its rules when stopped",
  async () => {
    mkdirSync("/var/lib/calico/vm", { recursive: true });
    execFileSync("ip", ["link", "add", "eth7", "type", "dummy"]);
    execFileSync("ip", ["addr", "add", "192.0.2.7/24", "dev", "eth7"]);
    execFileSync("ip", ["link", "set", "eth7", "up"]);
    // The command waits ten seconds for the node, which may be too short here; systemd's state is decisive.
    const started = run(join(dist, "calicoctl"), "node", "run", "--ip=192.0.2.7/24", "--name=vm-node");
    expect(started.stdout).toContain("Running the node agent");
    await eventually("the service is active", () => show("ActiveState") === "active");
    // The service has no health port; its log shows when the agent has finished its first apply.
    const ready = () => {
      const log = run("journalctl", "-u", unit, "--no-pager").stdout.split("\n");
      return log.some((line) => line.includes(`[${show("MainPID")}]`) && line.includes("first round applied"));
    };
    await eventually("the node is ready", ready);
    const pid = show("MainPID");
    run("systemctl", "kill", "-s", "KILL", "--kill-whom=main", unit);
    await eventually(
      "the service was restarted",
      () => show("ActiveState") === "active" && !["0", pid].includes(show("MainPID")),
    );
    await eventually("the node is ready again", ready);
    expect(run("systemctl", "stop", unit).status).toBe(0);
    expect(show("ActiveState")).toBe("inactive");
    expect(show("Result")).toBe("success");
    expect(run("nft", "list", "table", "ip", "calico").stdout).toContain("cali-FORWARD");
    expect(run("systemd-analyze", "verify", `/etc/systemd/system/${unit}`).status).toBe(0);
  },
  20 * MINUTES,
);

async function eventually(what: string, holds: () => boolean): Promise<void> {
  const end = performance.now() + 5 * MINUTES;
  while (!holds()) {
    if (performance.now() > end)
      throw new Error(`timed out: ${what}\n${run("journalctl", "-u", unit, "-n", "30", "--no-pager").stdout}`);
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}
