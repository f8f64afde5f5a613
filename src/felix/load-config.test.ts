// Tests the startup with real SQLite datastores.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { openDatastore } from "../datastore/index.ts";
import { createLogger, silentLogger } from "../lib/log/log.ts";
import { loadConfig, TooManyConnections } from "./load-config.ts";

async function createStore(path: string, datastoreReady: boolean): Promise<void> {
  const store = await openDatastore({ type: "sqlite", path, isFallback: false });
  await store.apply({
    key: { type: "resource", kind: "ClusterInformation", name: "default" },
    value: {
      ...{ apiVersion: "projectcalico.org/v3", kind: "ClusterInformation", metadata: { name: "default" } },
      spec: { datastoreReady },
    },
  });
  await store.close();
}

/** Loads the settings while each attempt uses the next file as datastore; only the last one is ready. */
async function loadThrough(files: readonly string[], log = silentLogger, settings: Record<string, string> = {}) {
  const folder = mkdtempSync(join(tmpdir(), "load-config-"));
  const path = (file: string) => join(folder, file);
  try {
    for (const file of new Set(files)) await createStore(path(file), file === files.at(-1));
    const env: Record<string, string> = { DATASTORE_TYPE: "sqlite", FELIX_FELIXHOSTNAME: "here", ...settings };
    const left = [...files];
    const { store } = await loadConfig({
      env,
      configFile: path("none.cfg"),
      log,
      signal: AbortSignal.timeout(30_000),
      // Each attempt starts with this report.
      health: ({ ready }) => {
        const file = ready === false ? left.shift() : undefined;
        if (file !== undefined) env["CALICO_SQLITE_PATH"] = path(file);
      },
      onSettings: () => {},
      retryMs: 1,
    });
    await store.close();
  } finally {
    rmSync(folder, { recursive: true });
  }
}

test("FC-005 startup may use two datastores, and read one of them repeatedly", async () => {
  await loadThrough(["a"]);
  await loadThrough(["a", "a", "a", "a", "b"]);
});

test("returns ignored settings, and logs a repeated error once", async () => {
  const folder = mkdtempSync(join(tmpdir(), "load-config-"));
  try {
    const path = join(folder, "store");
    const logged: string[] = [];
    await createStore(path, true);
    const env: Record<string, string> = {
      DATASTORE_TYPE: "sqlite",
      CALICO_SQLITE_PATH: folder, // a folder, so opening fails
      FELIX_FELIXHOSTNAME: "here",
      FELIX_HEALTHPORT: "abc",
    };
    let passes = 0;
    const loaded = await loadConfig({
      env,
      configFile: join(folder, "none.cfg"),
      log: createLogger({ level: "error", write: (record) => void logged.push(record.message) }),
      signal: AbortSignal.timeout(30_000),
      health: ({ ready }) => {
        if (ready === false && ++passes === 4) env["CALICO_SQLITE_PATH"] = path;
      },
      onSettings: () => {},
      retryMs: 1,
    });
    await loaded.store.close();
    expect(loaded).toMatchObject({ problems: [expect.stringContaining("HealthPort")] });
    expect(logged).toEqual(["startup failed; retrying"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("waits for a datastore that does not exist, and does not create it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "load-config-"));
  try {
    const path = join(folder, "calico.db");
    const { lines, log } = recorder();
    let passes = 0;
    let wasCreated = true;
    const { promise: created, resolve } = Promise.withResolvers<void>();
    const loading = loadConfig({
      env: { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: path, FELIX_FELIXHOSTNAME: "here" },
      configFile: join(folder, "none.cfg"),
      log,
      signal: AbortSignal.timeout(30_000),
      health: ({ ready }) => {
        if (ready !== false || ++passes !== 3) return;
        wasCreated = existsSync(path);
        resolve(createStore(path, true));
      },
      onSettings: () => {},
      retryMs: 1,
    });
    await created;
    await (await loading).store.close();
    expect(wasCreated).toBe(false);
    expect(lines[0]).toContain(`datastore ${path} is unavailable: there is no such file`);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("FC-005 restarts after more than two datastores", async () =>
  await expect(loadThrough(["a", "b", "c", "d", "e"])).rejects.toBeInstanceOf(TooManyConnections));

test("FC-005 restarts after more than 60 datastores even if none is ready", async () => {
  const files = Array.from({ length: 80 }, (_, i) => (i % 2 === 0 ? "a" : "b"));
  const error = await loadThrough([...files, "c"]).catch((reason: unknown) => reason);
  expect(String(error)).toContain("61 datastore connections");
});

function recorder() {
  const lines: string[] = [];
  const log = createLogger({
    level: "debug",
    write: ({ level, message, fields }) => lines.push(`${level} ${message} ${JSON.stringify(fields)}`),
  });
  return { log, lines };
}

test("logs once that the datastore is not ready, and once when it is ready", async () => {
  const { log, lines } = recorder();
  await loadThrough(["a", "a", "a", "a", "a", "b"], log);
  expect(lines.filter((line) => line.startsWith("warn the datastore is not ready"))).toHaveLength(1);
  expect(lines.filter((line) => line.startsWith("info the datastore is ready"))).toHaveLength(1);
});

test("FC-025 logs settings with their source, and redacts secrets", async () => {
  const { log, lines } = recorder();
  await loadThrough(["a"], log, { FELIX_ETCDKEYFILE: "none", FELIX_VXLANPORT: "4790", FELIX_ETCDPASSWORD: "hush" });
  const logged = lines.filter((line) => line.startsWith("debug setting"));
  expect(logged.join("\n")).toContain('{"name":"VXLANPort","value":"4790","source":"environment variable"}');
  expect(logged.join("\n")).toContain('{"name":"etcdpassword","value":"<redacted>"');
  expect(lines.join("\n")).not.toContain("hush");
});
