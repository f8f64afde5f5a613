import { afterAll, beforeAll, describe, expect, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HealthAggregator } from "../lib/http/health.ts";
import { silentLogger } from "../lib/log/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { healthPages, metricsPages, servePages } from "../lib/http/pages.ts";
import { runCaptured } from "../lib/command-line/testing/run-captured.ts";
import { CHECK_STATUS } from "./table.ts";
import { HealthStatus, watchHealth } from "./health-status.ts";
import { NotLeader } from "./leader-election.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "controllers-health-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

test("TC-K06 the datastore is ready on a replica that is not the leader and may not write", async () => {
  const stop = new AbortController();
  const seen = new Map<string, boolean>();
  const client = { ensureInitialized: () => Promise.reject(new NotLeader()) };
  const api = { probe: () => Promise.resolve(stop.abort()) };
  const healthStatus = { set: (part: string, isReady: boolean) => void seen.set(part, isReady) };
  await watchHealth({ client, api, healthStatus, log: silentLogger }, stop.signal);
  expect(seen.get("CalicoDatastore")).toBe(true);
});

describe("TC-K05 the status file", () => {
  test("TC-K05 has Calico's format, and is written only on a change", () => {
    const file = join(folder, "deep/status.json");
    const healthStatus = new HealthStatus(file, new HealthAggregator(), silentLogger);
    for (const part of ["Startup", "KubeAPIServer", "CalicoDatastore"] as const) healthStatus.set(part, true);
    expect(readFileSync(file, "utf8")).toBe(
      '{"Readiness":{"CalicoDatastore":{"Ready":true,"Reason":""},"KubeAPIServer":{"Ready":true,"Reason":""},"Startup":{"Ready":true,"Reason":""}}}',
    );
    const { ino } = statSync(file);
    healthStatus.set("Startup", true);
    expect(statSync(file).ino).toBe(ino);
    healthStatus.set("Startup", false, "why");
    expect(statSync(file).ino).not.toBe(ino); // replaced atomically, so that a probe never reads half a file
  });

  test("TC-K05 check-status reads it for readiness and liveness", async () => {
    const checkStatus = (...args: readonly string[]) => runCaptured(CHECK_STATUS, args);
    const file = join(folder, "status.json");
    const part = (Ready: boolean, Reason: string) => ({ Ready, Reason });
    const write = (parts: object) => writeFileSync(file, JSON.stringify({ Readiness: parts }));
    write({ Startup: part(true, ""), KubeAPIServer: part(true, "") });
    for (const flag of ["-r", "-l"])
      expect(await checkStatus(flag, "-f", file)).toEqual({ code: 0, out: "Ready\n", err: "" });
    write({ CalicoDatastore: part(false, "no datastore"), KubeAPIServer: part(false, "no server") });
    expect(await checkStatus("-r", "-f", file)).toEqual({ code: 1, out: "no datastore; no server\n", err: "" });
    expect((await checkStatus("-l", `-f=${file}`)).code).toBe(1);
    expect((await checkStatus("-f", file)).code).toBe(2);
    expect((await checkStatus("-v")).code).toBe(0);
    expect((await checkStatus("-r", "-f", join(folder, "absent"))).code).toBe(1);
    expect((await checkStatus("--nope")).code).toBe(2);
  });
});

test("TC-K06 both are checked in turn; after a failure more often and with a longer timeout", async () => {
  const stop = new AbortController();
  const states: string[] = [];
  const timeouts: number[] = [];
  let isDown = true;
  const request = (signal?: AbortSignal): Promise<void> => {
    const startedAt = performance.now();
    if (!isDown) return Promise.resolve();
    return new Promise((_, reject) =>
      signal?.addEventListener("abort", () => {
        timeouts.push(performance.now() - startedAt);
        if (timeouts.length === 4) isDown = false;
        reject(new Error("no answer"));
      }),
    );
  };
  const running = watchHealth(
    {
      client: { ensureInitialized: async () => {} } as never,
      api: { probe: (_path: string, signal?: AbortSignal) => request(signal) },
      healthStatus: {
        set: (part, isReady) => {
          states.push(`${part} ${isReady}`);
          if (part === "KubeAPIServer" && isReady) stop.abort();
        },
      },
      log: silentLogger,
      timings: { periodMs: 60_000, retryMs: 1, firstTimeoutMs: 20, lastTimeoutMs: 80 },
    },
    stop.signal,
  );
  await running;
  expect(states.filter((state) => state === "KubeAPIServer false")).toHaveLength(4);
  expect(states.filter((state) => state === "CalicoDatastore true")).toHaveLength(5);
  // A busy host can make each timeout longer, but never shorter.
  for (const [i, atLeastMs] of [20, 40, 80, 80].entries()) expect(timeouts[i]).toBeGreaterThan(atLeastMs - 2);
});

test("TC-K07 the health port serves only readiness and liveness", async () => {
  const health = new HealthAggregator();
  const healthStatus = new HealthStatus("", health, silentLogger);
  await using server = await servePages({ port: 0, pages: healthPages(health) });
  const request = async (path: string) => {
    const answer = await fetch(`http://127.0.0.1:${server.port}${path}`);
    return { status: answer.status, body: await answer.text() };
  };
  healthStatus.set("Startup", true);
  healthStatus.set("CalicoDatastore", true);
  healthStatus.set("KubeAPIServer", false, "the API server does not answer");
  expect((await request("/readiness")).status).toBe(503);
  expect((await request("/readiness")).body).toContain("the API server does not answer");
  expect((await request("/liveness")).status).toBe(200); // liveness does not depend on the parts
  healthStatus.set("KubeAPIServer", true);
  const ready = await request("/readiness");
  expect(ready.status).toBe(200);
  expect(ready.body).toContain("| CalicoDatastore | -       | reporting live | reporting ready |");
  expect(await request("/health")).toEqual({ status: 404, body: "404 page not found\n" });
  expect((await request("/metrics")).status).toBe(404);
});

test("TC-K24 the metrics port serves only metrics, without debug pages", async () => {
  await using server = await servePages({ port: 0, pages: metricsPages(new MetricsRegistry()) });
  const statusOf = async (path: string) => (await fetch(`http://127.0.0.1:${server.port}${path}`)).status;
  expect(await statusOf("/metrics")).toBe(200);
  for (const path of ["/", "/debug/pprof/", "/healthz"]) expect(await statusOf(path)).toBe(404);
});
