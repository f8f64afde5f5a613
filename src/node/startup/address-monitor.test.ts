import { expect, test } from "bun:test";
import { existsSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Client, openSqliteInMemory } from "../../datastore/index.ts";
import { createLogger, silentLogger } from "../../lib/log/log.ts";
import { eventually } from "../../lib/testing/eventually.ts";
import { API_VERSION } from "../../model/index.ts";
import { checkAddresses, monitorAddresses } from "./address-monitor.ts";
import { shutDown } from "./network-condition.ts";
import { readSettings } from "../settings.ts";

const node = (name: string, ipv4Address: string) => ({
  apiVersion: API_VERSION,
  kind: "Node" as const,
  metadata: { name },
  spec: { bgp: { ipv4Address } },
});

test("NB-052 the Node follows the environment and the host, and is written only then", async () => {
  const store = await openSqliteInMemory();
  const client = new Client(store);
  await client.create(node("n1", "192.0.2.1/24"));
  const settings = readSettings({ IP: "192.0.2.7/24" });
  expect(await checkAddresses(client, "n1", settings, silentLogger)).toBe(true);
  expect((await client.get({ kind: "Node", name: "n1" })).spec.bgp?.ipv4Address).toBe("192.0.2.7/24");
  expect(await checkAddresses(client, "n1", settings, silentLogger)).toBe(false);
  await client.create(node("other", "192.0.2.8/24"));
  const taken = readSettings({ IP: "192.0.2.8/24" });
  await expect(checkAddresses(client, "n1", taken, silentLogger)).rejects.toThrow("Node other has 192.0.2.8 too");
  await expect(checkAddresses(client, "gone", settings, silentLogger)).rejects.toThrow("there is no Node gone");
  await store.close();
});

test("NB-052 the loop goes on after a failure and ends when told", async () => {
  const store = await openSqliteInMemory();
  const client = new Client(store);
  const settings = { ...readSettings({ IP: "192.0.2.7/24" }), pollIntervalMs: 5 };
  const controller = new AbortController();
  const running = monitorAddresses(store, "n1", settings, silentLogger, controller.signal); // no Node yet: fails
  await Bun.sleep(20);
  await client.create(node("n1", "192.0.2.1/24"));
  await eventually(
    async () => (await client.get({ kind: "Node", name: "n1" })).spec.bgp?.ipv4Address === "192.0.2.7/24",
  );
  controller.abort();
  await running;
  await store.close();
});

test("NB-052 what every look finds again is told once", async () => {
  const store = await openSqliteInMemory();
  const client = new Client(store);
  await client.create(node("n1", "192.0.2.7/24"));
  const told: string[] = [];
  const log = createLogger({ level: "debug", write: ({ message }) => told.push(message) });
  let looks = 0;
  const settings = { ...readSettings({ IP: "192.0.2.7/24" }), pollIntervalMs: 2 }; // an address this host does not have
  const counting = new Proxy(store, {
    get: (target, name) => {
      if (name === "get") looks++;
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const controller = new AbortController();
  const running = monitorAddresses(counting, "n1", settings, log, controller.signal);
  await eventually(() => looks >= 5);
  controller.abort();
  await running;
  expect(told.filter((message) => message.includes("on no interface"))).toHaveLength(1);
  await store.close();
});

test("NB-051 a shutdown leaves its time, also where there is no Kubernetes", async () => {
  const folder = mkdtempSync(join(tmpdir(), "shutdown-"));
  const file = join(folder, "lib/shutdownTS");
  await shutDown(readSettings({ CALICO_SHUTDOWN_TIMESTAMP_FILE: file }), "n1", silentLogger);
  expect(existsSync(file)).toBe(true);
  expect(readFileSync(file, "utf8")).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  rmSync(folder, { recursive: true });
});
