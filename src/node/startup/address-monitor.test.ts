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

test("NB-052 the Node is written if the environment or the host changed, and only then", async () => {
  const store = await openSqliteInMemory();
  const client = new Client(store);
  await client.create(node("n1", "192.0.2.1/24"));
  const settings = readSettings({ IP: "192.0.2.7/24" });
  expect(await checkAddresses(client, "n1", settings, silentLogger)).toBe(true);
  expect((await client.get({ kind: "Node", name: "n1" })).spec.bgp?.ipv4Address).toBe("192.0.2.7/24");
  expect(await checkAddresses(client, "n1", settings, silentLogger)).toBe(false);
  await client.create(node("other", "192.0.2.8/24"));
  const taken = readSettings({ IP: "192.0.2.8/24" });
  await expect(checkAddresses(client, "n1", taken, silentLogger)).rejects.toThrow("Node other also has 192.0.2.8");
  await expect(checkAddresses(client, "gone", settings, silentLogger)).rejects.toThrow("Node gone does not exist");
  await store.close();
});

test("NB-052 the loop continues after a failure and ends when aborted", async () => {
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

test("NB-052 a warning repeated in each round is logged once", async () => {
  const store = await openSqliteInMemory();
  const client = new Client(store);
  await client.create(node("n1", "192.0.2.7/24"));
  const logged: string[] = [];
  const log = createLogger({ level: "debug", write: ({ message }) => logged.push(message) });
  let rounds = 0;
  const settings = { ...readSettings({ IP: "192.0.2.7/24" }), pollIntervalMs: 2 }; // no interface of this host has it
  const counting = new Proxy(store, {
    get: (target, name) => {
      if (name === "get") rounds++;
      const value: unknown = Reflect.get(target, name);
      return typeof value === "function" ? value.bind(target) : value;
    },
  });
  const controller = new AbortController();
  const running = monitorAddresses(counting, "n1", settings, log, controller.signal);
  await eventually(() => rounds >= 5);
  controller.abort();
  await running;
  expect(logged.filter((message) => message.includes("no interface of this host"))).toHaveLength(1);
  await store.close();
});

test("NB-051 shutdown writes a timestamp, also without Kubernetes", async () => {
  const folder = mkdtempSync(join(tmpdir(), "shutdown-"));
  const file = join(folder, "lib/shutdownTS");
  await shutDown(readSettings({ CALICO_SHUTDOWN_TIMESTAMP_FILE: file }), "n1", silentLogger);
  expect(existsSync(file)).toBe(true);
  expect(readFileSync(file, "utf8")).toMatch(/^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ$/);
  rmSync(folder, { recursive: true });
});
