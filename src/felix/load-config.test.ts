// Getting started over real datastores in files.
import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { openDatastore } from "../datastore/index.ts";
import { createLogger, silentLogger } from "../lib/log.ts";
import { loadConfig, TooManyConnections } from "./load-config.ts";

async function makeStore(path: string, datastoreReady: boolean): Promise<void> {
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

/** Loads while the environment names one file after the other; only the last of them is ready. */
async function loadThrough(files: readonly string[], log = silentLogger, settings: Record<string, string> = {}) {
  const folder = mkdtempSync(join(tmpdir(), "load-config-"));
  const path = (file: string) => join(folder, file);
  try {
    for (const file of new Set(files)) await makeStore(path(file), file === files.at(-1));
    const env: Record<string, string> = { DATASTORE_TYPE: "sqlite", FELIX_FELIXHOSTNAME: "here", ...settings };
    const left = [...files];
    const { store } = await loadConfig({
      env,
      configFile: path("none.cfg"),
      log,
      signal: AbortSignal.timeout(30_000),
      // A pass begins with this report.
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

test("FC-005 two datastores on the way to a start are fine, and looking at one again and again is", async () => {
  await loadThrough(["a"]);
  await loadThrough(["a", "a", "a", "a", "b"]);
});

test("settings that are not used are handed on, a fault that lasts is told once", async () => {
  const folder = mkdtempSync(join(tmpdir(), "load-config-"));
  try {
    const path = join(folder, "store");
    const told: string[] = [];
    await makeStore(path, true);
    const env: Record<string, string> = {
      DATASTORE_TYPE: "sqlite",
      CALICO_SQLITE_PATH: folder, // a folder is no datastore
      FELIX_FELIXHOSTNAME: "here",
      FELIX_HEALTHPORT: "abc",
    };
    let passes = 0;
    const loaded = await loadConfig({
      env,
      configFile: join(folder, "none.cfg"),
      log: createLogger({ level: "error", write: (record) => void told.push(record.sentence) }),
      signal: AbortSignal.timeout(30_000),
      health: ({ ready }) => {
        if (ready === false && ++passes === 4) env["CALICO_SQLITE_PATH"] = path;
      },
      onSettings: () => {},
      retryMs: 1,
    });
    await loaded.store.close();
    expect(loaded).toMatchObject({ problems: [expect.stringContaining("HealthPort")] });
    expect(told).toEqual(["cannot start yet; trying again"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the agent waits for a datastore that does not exist, and does not create it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "load-config-"));
  try {
    const path = join(folder, "calico.db");
    const { lines, log } = recorder();
    let passes = 0;
    let wasCreated = true;
    const { promise: made, resolve } = Promise.withResolvers<void>();
    const loading = loadConfig({
      env: { DATASTORE_TYPE: "sqlite", CALICO_SQLITE_PATH: path, FELIX_FELIXHOSTNAME: "here" },
      configFile: join(folder, "none.cfg"),
      log,
      signal: AbortSignal.timeout(30_000),
      health: ({ ready }) => {
        if (ready !== false || ++passes !== 3) return;
        wasCreated = existsSync(path);
        resolve(makeStore(path, true));
      },
      onSettings: () => {},
      retryMs: 1,
    });
    await made;
    await (await loading).store.close();
    expect(wasCreated).toBe(false);
    expect(lines[0]).toContain(`datastore ${path} is unavailable: there is no such file`);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("FC-005 who went through more than two begins again", async () =>
  await expect(loadThrough(["a", "b", "c", "d", "e"])).rejects.toBeInstanceOf(TooManyConnections));

test("FC-005 who goes through more than sixty does not wait for a start", async () => {
  const files = Array.from({ length: 80 }, (_, i) => (i % 2 === 0 ? "a" : "b"));
  const error = await loadThrough([...files, "c"]).catch((reason: unknown) => reason);
  expect(String(error)).toContain("61 datastore connections");
});

function recorder() {
  const lines: string[] = [];
  const log = createLogger({
    level: "debug",
    write: ({ level, sentence, fields }) => lines.push(`${level} ${sentence} ${JSON.stringify(fields)}`),
  });
  return { log, lines };
}

test("a datastore that is not ready is told once, however often it is asked, and once when it is", async () => {
  const { log, lines } = recorder();
  await loadThrough(["a", "a", "a", "a", "a", "b"], log);
  expect(lines.filter((line) => line.startsWith("warn the datastore is not ready"))).toHaveLength(1);
  expect(lines.filter((line) => line.startsWith("info the datastore is ready"))).toHaveLength(1);
});

test("FC-025 settings are told with where they come from, and secrets are not", async () => {
  const { log, lines } = recorder();
  await loadThrough(["a"], log, { FELIX_ETCDKEYFILE: "none", FELIX_VXLANPORT: "4790", FELIX_ETCDPASSWORD: "hush" });
  const told = lines.filter((line) => line.startsWith("debug a setting"));
  expect(told.join("\n")).toContain('{"name":"VXLANPort","value":"4790","source":"environment variable"}');
  expect(told.join("\n")).toContain('{"name":"etcdpassword","value":"<redacted>"');
  expect(lines.join("\n")).not.toContain("hush");
});
