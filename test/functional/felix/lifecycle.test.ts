// Tests the start, restart and end of Felix processes. Each test has its own process, so they run concurrently.
import { existsSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { FelixProcess } from "../../support/felix-process.ts";
import { freePort } from "../../support/free-port.ts";

const CONFIG_UPDATE = 13;
const IN_SYNC = 1;

test.concurrent("FC-002 the driver receives the settings first and in-sync once, numbered from 0", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start();
  await felix.untilReady();
  await eventually(() => felix.messages().some(({ tag }) => tag === IN_SYNC));
  const messages = felix.messages();
  expect(messages[0]).toMatchObject({ tag: CONFIG_UPDATE, sequence: 0 });
  expect(messages.map(({ sequence }) => sequence)).toEqual(messages.map((_, i) => i));
  expect(messages.filter(({ tag }) => tag === IN_SYNC)).toHaveLength(1);
  expect(messages.at(-1)?.tag).toBe(IN_SYNC);
});

for (const { signal, code } of [
  { signal: "SIGTERM", code: 1 },
  { signal: "SIGINT", code: 1 },
  { signal: "SIGHUP", code: 129 },
] as const)
  test.concurrent(`FC-013 on ${signal} the agent exits with ${code}`, async () => {
    await using felix = await FelixProcess.prepare();
    felix.start();
    await felix.untilReady();
    const started = performance.now();
    felix.signal(signal);
    expect(await felix.exit()).toBe(code);
    const ms = performance.now() - started;
    if (signal === "SIGHUP") expect(ms).toBeGreaterThan(1900);
    else expect(ms).toBeLessThan(1500);
  });

test.concurrent("FC-017 if the datastore becomes not ready, the agent exits with 1", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start();
  await felix.untilReady();
  await felix.put("ClusterInformation", "default", { clusterGUID: "guid", datastoreReady: false });
  expect(await felix.exit()).toBe(1);
});

test.concurrent("FC-010 if a setting changes that needs a restart, the agent exits with 129", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start();
  await felix.untilReady();
  await felix.put("FelixConfiguration", "default", { vxlanPort: 4790 });
  expect(await felix.exit()).toBe(129);
  expect(felix.output).toContain("VXLANPort");
});

test.concurrent("FC-011 a change of a live setting is applied and sent to the driver without a restart", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start();
  await felix.untilReady();
  await felix.put("FelixConfiguration", "default", {
    healthTimeoutOverrides: [{ name: "CalculationGraph", timeout: "1m" }],
  });
  await eventually(() => felix.messages().filter(({ tag }) => tag === CONFIG_UPDATE).length === 2);
  expect(felix.isRunning).toBe(true);
  const table = await (await fetch(`http://127.0.0.1:${felix.healthPort}/readiness`)).text();
  expect(table).toMatch(/CalculationGraph +\| 1m0s/);
});

test.concurrent("FC-012 if pools require other tunnels, the agent exits with 129", async () => {
  await using felix = await FelixProcess.prepare();
  const pool = { cidr: "10.65.0.0/16", vxlanMode: "Never", ipipMode: "Never" };
  await felix.put("IPPool", "pool", pool);
  felix.start();
  await felix.untilReady();
  await felix.put("IPPool", "pool", { ...pool, natOutgoing: true });
  await felix.put("IPPool", "pool", { ...pool, vxlanMode: "Always" });
  expect(await felix.exit()).toBe(129);
  expect(felix.output).toContain("tunnels");
});

test.concurrent("FC-003 with an invalid value of a fatal setting, the agent waits with its health port closed until it is corrected", async () => {
  await using felix = await FelixProcess.prepare();
  const file = join(felix.folder, "felix.cfg");
  writeFileSync(file, "[global]\nChainInsertMode = bogus\n");
  felix.start({}, ["-c", file]);
  await eventually(() => felix.output.includes("ChainInsertMode"));
  expect(await felix.probe("liveness")).toBe(0);
  expect(felix.isRunning).toBe(true);
  writeFileSync(file, "[global]\nChainInsertMode = append\n");
  await felix.untilReady();
});

test.concurrent("FC-028 an invalid value of any other setting is ignored", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start({ FELIX_ROUTEREFRESHINTERVAL: "bogus" });
  await felix.untilReady();
  expect(felix.output).toContain("RouteRefreshInterval");
});

test.concurrent("FC-004 while the datastore is not ready, the agent waits, reports live and ready, and then starts", async () => {
  await using felix = await FelixProcess.prepare();
  await felix.put("ClusterInformation", "default", { datastoreReady: false });
  felix.start();
  await felix.untilReady();
  expect(await felix.probe("liveness")).toBe(200);
  expect(felix.messages()).toEqual([]);
  await felix.put("ClusterInformation", "default", { datastoreReady: true });
  await eventually(() => felix.messages().some(({ tag }) => tag === IN_SYNC));
});

test.concurrent("an agent without a Node resource is ready", async () => {
  await using felix = await FelixProcess.prepare();
  await felix.remove("Node", "node-a");
  felix.start();
  await felix.untilReady();
});

test.concurrent("FC-016 a driver that does not end is killed; if a driver dies, the agent exits", async () => {
  await using felix = await FelixProcess.prepare();
  const driver = join(felix.folder, "stubborn");
  const alive = join(felix.folder, "alive");
  writeFileSync(driver, `#!/bin/sh\ntrap '' TERM\ntouch '${alive}'\nwhile :; do sleep 0.05; done\n`, { mode: 0o755 });
  felix.start({ FELIX_DATAPLANEDRIVER: driver });
  await felix.untilReady();
  await eventually(() => existsSync(alive));
  const started = performance.now();
  felix.signal("SIGTERM");
  expect(await felix.exit()).toBe(1);
  expect(performance.now() - started).toBeGreaterThan(3900);

  await using other = await FelixProcess.prepare();
  writeFileSync(driver, "#!/bin/sh\nsleep 0.5\nexit 3\n", { mode: 0o755 });
  other.start({ FELIX_DATAPLANEDRIVER: driver });
  expect(await other.exit()).toBe(1);
  expect(other.output).toContain("exited with 3");
});

test.concurrent("FC-085 messages from the driver on descriptor 4 are processed; an invalid one ends the agent", async () => {
  await using felix = await FelixProcess.prepare();
  const file = (name: string) => join(felix.folder, name);
  const publicKey = Buffer.alloc(32, 7).toString("base64");
  // An encoded message: length, field 9 (WireGuard key) with its field 1.
  const report = Buffer.from([0x4a, publicKey.length + 2, 0x0a, publicKey.length, ...Buffer.from(publicKey)]);
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(BigInt(report.length));
  writeFileSync(file("report"), Buffer.concat([length, report]));
  writeFileSync(file("nonsense"), Buffer.from([2, 0, 0, 0, 0, 0, 0, 0, 0x4a, 0x7f]));
  const wait = `while [ ! -e '${file("go")}' ]; do sleep 0.05; done`;
  const script = `#!/bin/sh\ncat '${file("report")}' >&4\n${wait}\ncat '${file("nonsense")}' >&4\nexec cat <&3 >/dev/null\n`;
  writeFileSync(file("talker"), script, { mode: 0o755 });
  felix.start({ FELIX_DATAPLANEDRIVER: file("talker") });
  await eventually(async () => {
    const node = (await felix.get("Node", "node-a")) as { status?: { wireguardPublicKey?: string } } | undefined;
    return node?.status?.wireguardPublicKey === publicKey;
  });
  expect(felix.isRunning).toBe(true);
  writeFileSync(file("go"), "");
  expect(await felix.exit()).toBe(1);
  expect(felix.output).toContain("its reports cannot be decoded");
});

test.concurrent("FC-001 the command line: version, settings file, invalid flags", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start({}, ["--version"]);
  expect(await felix.exit()).toBe(0);
  expect(felix.output).toMatch(/calico-felix v/);
  felix.start({}, ["--bogus"]);
  expect(await felix.exit()).toBe(2);
  const file = join(felix.folder, "felix.cfg");
  writeFileSync(file, `HealthPort = ${felix.healthPort}\n`);
  felix.start({ FELIX_HEALTHPORT: "" }, [`--config-file=${file}`]);
  await felix.untilReady();
});

test.concurrent("FC-022 an agent of another variant processes only settings", async () => {
  await using felix = await FelixProcess.prepare();
  await felix.put("ClusterInformation", "default", { datastoreReady: true, variant: "Other" });
  felix.start();
  await felix.untilReady();
  await eventually(() => felix.messages().some(({ tag }) => tag === IN_SYNC));
  expect(felix.messages().some(({ tag }) => tag === 14)).toBe(false); // no host metadata
  await felix.put("FelixConfiguration", "default", { vxlanPort: 4790 });
  expect(await felix.exit()).toBe(129);
});

test.concurrent("--dump prints the messages to the dataplane", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start({}, ["--dump"]);
  await eventually(() => felix.printed.includes('"inSync"'));
  const lines = felix.printed
    .trim()
    .split("\n")
    .map((line) => JSON.parse(line) as { type: string });
  expect(lines[0]?.type).toBe("configUpdate");
  expect(lines.map(({ type }) => type)).toContain("hostMetadataUpdate");
});

test.concurrent("FC-014 SIGUSR1 and SIGUSR2 write profiles", async () => {
  await using felix = await FelixProcess.prepare();
  const heap = join(felix.folder, "heap");
  felix.start({ FELIX_DEBUGMEMORYPROFILEPATH: heap, FELIX_DEBUGCPUPROFILEPATH: "none" });
  await felix.untilReady();
  felix.signal("SIGUSR1");
  await eventually(() => felix.output.includes("wrote a profile"));
  expect(existsSync(heap)).toBe(true);
  felix.signal("SIGUSR2");
  expect(await felix.probe("liveness")).toBe(200);
});

test.concurrent("FC-105 if the calculation hangs, the liveness probe fails; after a panic the agent exits with 2", async () => {
  await using felix = await FelixProcess.prepare();
  await felix.put("FelixConfiguration", "default", {
    healthTimeoutOverrides: [{ name: "CalculationGraph", timeout: "1s" }],
  });
  felix.start({ FELIX_DEBUGSIMULATECALCGRAPHHANGAFTER: "0.2" });
  await eventually(async () => (await felix.probe("liveness")) === 503);
  await using other = await FelixProcess.prepare();
  other.start({ FELIX_DEBUGPANICAFTER: "0.5" });
  expect(await other.exit()).toBe(2);
});

test.concurrent("an invalid entry is counted in the metrics, and the others are processed", async () => {
  await using felix = await FelixProcess.prepare();
  const port = await freePort();
  await felix.put("GlobalNetworkPolicy", "bad", { selector: "has(", types: ["Ingress"] });
  felix.start({
    FELIX_PROMETHEUSMETRICSENABLED: "true",
    FELIX_PROMETHEUSMETRICSHOST: "127.0.0.1",
    FELIX_PROMETHEUSMETRICSPORT: String(port),
  });
  await felix.untilReady();
  const page = await (await fetch(`http://127.0.0.1:${port}/metrics`)).text();
  expect(page).toMatch(/^felix_invalid_datastore_entries 1$/m);
  expect(felix.output).toContain("bad");
});

test.concurrent("if a profiling port is configured, which is not supported, the agent logs the alternative", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start({ FELIX_DEBUGPORT: "6060" });
  await felix.untilReady();
  expect(felix.output).toContain("SIGUSR1 and SIGUSR2");
});

test.concurrent("FC-021 if eBPF is enabled, which is not supported, the agent logs it and uses another dataplane", async () => {
  await using felix = await FelixProcess.prepare();
  felix.start({ FELIX_BPFENABLED: "true" });
  await felix.untilReady();
  expect(felix.output).toContain("no eBPF dataplane");
});
