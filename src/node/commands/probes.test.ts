// Tests the probes against a real HTTP server and a socket that replies like BIRD.
import { afterAll, beforeAll, expect, test } from "bun:test";
import { mkdtempSync, rmSync, utimesSync, writeFileSync } from "node:fs";
import { createServer, type Server } from "node:http";
import { createServer as createSocketServer, type Server as SocketServer } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { type Check, probe, probeAll, type ProbeOptions } from "./probes.ts";

const folder = mkdtempSync(join(tmpdir(), "probes-"));
let http: Server;
let bird: SocketServer;
let healthStatus = 200;
let port = 0;
const replies: Record<string, string> = {};

const STATUS = (reconfigured: Date, extra = "") =>
  `1000-BIRD 2.0.12\n1011-Router ID is 192.0.2.1\n Hostname is n1\n Current server time is 2026-01-01 00:00:00.000\n Last reboot on 2026-01-01 00:00:00.000\n Last reconfiguration on ${localTime(reconfigured)}\n${extra}0013 Daemon is up and running\n`;
const localTime = (date: Date) => {
  const p = (n: number, width = 2) => String(n).padStart(width, "0");
  return `${date.getFullYear()}-${p(date.getMonth() + 1)}-${p(date.getDate())} ${p(date.getHours())}:${p(date.getMinutes())}:${p(date.getSeconds())}.000`;
};
const PROTOCOLS = (...states: string[]) =>
  `2002-Name       Proto      Table      State  Since         Info\n${states
    .map(
      (state, i) =>
        `1002-Mesh_192_0_2_${i + 2} BGP        ---        ${state === "Established" ? "up" : "start"}     2026-01-01    ${state}   \n1006-  BGP state:          ${state}\n     Neighbor address: 192.0.2.${i + 2}\n     Neighbor AS:      64512\n     Local AS:         64512\n`,
    )
    .join("")}0000 \n`;

beforeAll(async () => {
  http = createServer((_request, response) => response.writeHead(healthStatus).end());
  await new Promise<void>((resolve) => http.listen(0, "127.0.0.1", resolve));
  port = (http.address() as { port: number }).port;
  bird = createSocketServer((socket) => {
    socket.write("0001 BIRD 2.0.12 ready.\n");
    socket.on("data", (chunk) => socket.write(replies[chunk.toString().trim()] ?? "9001 syntax error\n"));
  });
  await new Promise<void>((resolve) => bird.listen(join(folder, "bird.ctl"), resolve));
});
afterAll(() => {
  http.close();
  bird.close();
  rmSync(folder, { recursive: true, force: true });
});

function options(env: Record<string, string> = {}): ProbeOptions {
  return {
    env: { FELIX_HEALTHHOST: "127.0.0.1", FELIX_HEALTHPORT: String(port), ...env },
    thresholdMs: 30_000,
    nodenameFile: join(folder, "nodename"),
    supervisorFile: join(folder, "supervisor.json"),
    configFolder: folder,
    sockets: { 4: [join(folder, "none.ctl"), join(folder, "bird.ctl")], 6: [join(folder, "none.ctl")] },
  };
}
const supervise = (...children: { name: string; state?: string; pid?: number }[]) =>
  writeFileSync(
    join(folder, "supervisor.json"),
    JSON.stringify({
      pid: 1,
      children: children.map((child) => ({ state: "running", pid: process.pid, restarts: 0, ...child })),
    }),
  );
function nodename(ageMs: number): void {
  const file = join(folder, "nodename");
  writeFileSync(file, "n1");
  const at = new Date(Date.now() - ageMs);
  utimesSync(file, at, at);
}
function written(name: string, ageMs: number): void {
  writeFileSync(join(folder, name), "");
  const at = new Date(Date.now() - ageMs);
  utimesSync(join(folder, name), at, at);
}

test("NB-010 Felix is probed over HTTP at the host and port of the environment", async () => {
  for (const check of ["felix-live", "felix-ready"] as Check[]) {
    healthStatus = 204;
    expect(await probe(check, options())).toBeUndefined();
    healthStatus = 503;
    expect(await probe(check, options())).toContain("HTTP status 503");
  }
  expect(await probe("felix-live", options({ FELIX_HEALTHPORT: "1" }))).toContain("not live");
  expect(await probe("felix-live", options({ FELIX_HEALTHPORT: "x" }))).toContain("is not a port number");
});

test("NB-011 BIRD is live if it and the BGP service run and it responds", async () => {
  replies["show status"] = STATUS(new Date());
  supervise({ name: "confd" }, { name: "bird" }, { name: "bird6" });
  expect(await probe("bird-live", options())).toBeUndefined();
  supervise({ name: "confd", state: "failing" }, { name: "bird" });
  expect(await probe("bird-live", options())).toContain("confd is not live: it is failing");
  supervise({ name: "confd" }, { name: "bird", pid: 2 ** 22 + 1 });
  expect(await probe("bird-live", options())).toContain("has exited");
  supervise({ name: "confd" }, { name: "bird6" });
  await expect(probe("bird6-live", options())).rejects.toThrow("does not respond");
  expect(await probeAll(["bird6-live"], options())).toContain("does not respond");
  rmSync(join(folder, "supervisor.json"));
  expect(await probe("bird-live", options())).toContain("cannot read the supervisor state");
});

test("NB-012 a node is ready if BIRD's configuration is written and applied, regardless of its peers", async () => {
  nodename(1000);
  written("bird.cfg", 60_000);
  replies["show status"] = STATUS(new Date());
  replies["show protocols all"] = PROTOCOLS("Active", "Active");
  expect(await probe("bird-ready", options())).toBeUndefined();
  replies["show status"] = STATUS(new Date(Date.now() - 3_600_000));
  expect(await probe("bird-ready", options())).toContain("has not been applied");
  rmSync(join(folder, "bird.cfg"));
  expect(await probe("bird-ready", options())).toContain("has not been written");
  rmSync(join(folder, "nodename"));
  expect(await probe("bird-ready", options())).toContain("startup has not finished");
});

test("NB-012 with Calico's rule, at first all peers must be established, later one", async () => {
  const peers = options({ CALICO_BIRD_READY: "peers" });
  replies["show status"] = STATUS(new Date());
  nodename(1000);
  replies["show protocols all"] = PROTOCOLS("Established", "Active");
  expect(await probe("bird-ready", peers)).toContain("BGP not established with 192.0.2.3");
  nodename(60_000);
  expect(await probe("bird-ready", peers)).toBeUndefined();
  replies["show protocols all"] = PROTOCOLS("Active", "Active");
  expect(await probe("bird-ready", peers)).toContain("192.0.2.2,192.0.2.3");
  replies["show protocols all"] = PROTOCOLS();
  expect(await probe("bird-ready", peers)).toBeUndefined();
});

test("NB-013 during graceful restart, a node is not ready until its connected peers have sent their routes", async () => {
  written("bird.cfg", 60_000);
  nodename(1000);
  const recovering = (bootedSecondsAgo: number) =>
    STATUS(new Date(), "0024-Graceful restart recovery in progress\n  Waiting for 1 channels to recover\n").replace(
      /Last reboot on .*/,
      `Last reboot on ${localTime(new Date(new Date(2026, 0, 1).getTime() - bootedSecondsAgo * 1000))}`,
    );
  const pending = (...states: string[]) =>
    PROTOCOLS(...states).replaceAll(
      /( {5}Local AS: .*\n)/g,
      "$1   Channel ipv4\n     State:          UP\n     GR recovery:    pending waiting\n",
    );
  // BIRD started recently: peers that are not connected may still connect.
  replies["show status"] = recovering(3);
  replies["show protocols all"] = pending("Active", "Established");
  expect(await probe("bird-ready", options())).toContain("waiting for 192.0.2.2,192.0.2.3");
  // Later, a disconnected peer does not make this node unready; a connected peer that has not sent all routes does.
  replies["show status"] = recovering(12);
  expect(await probe("bird-ready", options())).toEndWith("graceful restart in progress: waiting for 192.0.2.3");
  replies["show protocols all"] = pending("Active", "Passive");
  expect(await probe("bird-ready", options())).toBeUndefined();
  // With Calico's rule the node is not ready during the first 30 seconds after its startup.
  replies["show protocols all"] = pending("Established");
  expect(await probe("bird-ready", options({ CALICO_BIRD_READY: "peers" }))).toContain("graceful restart in progress");
  nodename(60_000);
  expect(await probe("bird-ready", options())).toBeUndefined();
});
