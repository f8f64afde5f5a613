import { afterAll, beforeAll, describe, expect, spyOn, test } from "bun:test";
import { mkdtempSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { HealthAggregator } from "../lib/health.ts";
import { silentLogger } from "../lib/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { healthPages, metricsPages, servePages } from "../lib/pages.ts";
import { main as checkStatus } from "./check-status.ts";
import { Readings, watchHealth } from "./health.ts";
import { NotLeading } from "./leader.ts";

let folder: string;
beforeAll(() => {
  folder = mkdtempSync(join(tmpdir(), "controllers-health-"));
});
afterAll(() => rmSync(folder, { recursive: true, force: true }));

function said(run: () => number): { readonly code: number; readonly text: string } {
  const out = spyOn(console, "log").mockImplementation(() => {});
  const err = spyOn(console, "error").mockImplementation(() => {});
  try {
    const code = run();
    return { code, text: [...out.mock.calls, ...err.mock.calls].flat().join("\n") };
  } finally {
    out.mockRestore();
    err.mockRestore();
  }
}

test("TC-K06 a replica that may not write has a datastore that answers", async () => {
  const stop = new AbortController();
  const seen = new Map<string, boolean>();
  const client = { ensureInitialized: () => Promise.reject(new NotLeading()) };
  const api = { probe: () => Promise.resolve(stop.abort()) };
  const readings = { set: (part: string, isReady: boolean) => void seen.set(part, isReady) };
  await watchHealth({ client, api, readings, log: silentLogger }, stop.signal);
  expect(seen.get("CalicoDatastore")).toBe(true);
});

describe("TC-K05 the status file", () => {
  test("TC-K05 has the recorded form, and is written only when something changes", () => {
    const file = join(folder, "deep/status.json");
    const readings = new Readings(file, new HealthAggregator(), silentLogger);
    for (const part of ["Startup", "KubeAPIServer", "CalicoDatastore"] as const) readings.set(part, true);
    expect(readFileSync(file, "utf8")).toBe(
      '{"Readiness":{"CalicoDatastore":{"Ready":true,"Reason":""},"KubeAPIServer":{"Ready":true,"Reason":""},"Startup":{"Ready":true,"Reason":""}}}',
    );
    const { ino } = statSync(file);
    readings.set("Startup", true);
    expect(statSync(file).ino).toBe(ino);
    readings.set("Startup", false, "why");
    expect(statSync(file).ino).not.toBe(ino); // a new file in its place: nobody reads half of one
  });

  test("TC-K05 check-status answers both questions from it", () => {
    const file = join(folder, "status.json");
    const part = (Ready: boolean, Reason: string) => ({ Ready, Reason });
    const write = (parts: object) => writeFileSync(file, JSON.stringify({ Readiness: parts }));
    write({ Startup: part(true, ""), KubeAPIServer: part(true, "") });
    for (const flag of ["-r", "-l"])
      expect(said(() => checkStatus([flag, "-f", file]))).toEqual({ code: 0, text: "Ready" });
    write({ CalicoDatastore: part(false, "no datastore"), KubeAPIServer: part(false, "no server") });
    expect(said(() => checkStatus(["-r", "-f", file]))).toEqual({ code: 1, text: "no datastore; no server" });
    expect(said(() => checkStatus(["-l", "-f", file])).code).toBe(1);
    expect(said(() => checkStatus(["-f", file])).code).toBe(1);
    expect(said(() => checkStatus(["-v"])).code).toBe(0);
    expect(said(() => checkStatus(["-r", "-f", join(folder, "absent")])).code).toBe(1);
    expect(said(() => checkStatus(["--nope"])).code).toBe(1);
  });
});

test("TC-K06 both are asked in turn; after a failure sooner, and with more patience each time", async () => {
  const stop = new AbortController();
  const states: string[] = [];
  const patience: number[] = [];
  let isDown = true;
  const ask = (signal?: AbortSignal): Promise<void> => {
    const asked = performance.now();
    if (!isDown) return Promise.resolve();
    return new Promise((_, reject) =>
      signal?.addEventListener("abort", () => {
        patience.push(performance.now() - asked);
        if (patience.length === 4) isDown = false;
        reject(new Error("no answer"));
      }),
    );
  };
  const running = watchHealth(
    {
      client: { ensureInitialized: async () => {} } as never,
      api: { probe: (_path: string, signal?: AbortSignal) => ask(signal) },
      readings: {
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
  // A busy machine makes any of them longer, never shorter.
  for (const [i, atLeastMs] of [20, 40, 80, 80].entries()) expect(patience[i]).toBeGreaterThan(atLeastMs - 2);
});

test("TC-K07 the port answers for readiness and for life, and for nothing else", async () => {
  const health = new HealthAggregator();
  const readings = new Readings("", health, silentLogger);
  await using server = await servePages({ port: 0, pages: healthPages(health) });
  const ask = async (path: string) => {
    const answer = await fetch(`http://127.0.0.1:${server.port}${path}`);
    return { status: answer.status, body: await answer.text() };
  };
  readings.set("Startup", true);
  readings.set("CalicoDatastore", true);
  readings.set("KubeAPIServer", false, "the API server does not answer");
  expect((await ask("/readiness")).status).toBe(503);
  expect((await ask("/readiness")).body).toContain("the API server does not answer");
  expect((await ask("/liveness")).status).toBe(200); // always good
  readings.set("KubeAPIServer", true);
  const ready = await ask("/readiness");
  expect(ready.status).toBe(200);
  expect(ready.body).toContain("| CalicoDatastore | -       | reporting live | reporting ready |");
  expect(await ask("/health")).toEqual({ status: 404, body: "404 page not found\n" });
  expect((await ask("/metrics")).status).toBe(404);
});

test("TC-K24 metrics have a port of their own, without anything for debuggers", async () => {
  await using server = await servePages({ port: 0, pages: metricsPages(new MetricsRegistry()) });
  const statusOf = async (path: string) => (await fetch(`http://127.0.0.1:${server.port}${path}`)).status;
  expect(await statusOf("/metrics")).toBe(200);
  for (const path of ["/", "/debug/pprof/", "/healthz"]) expect(await statusOf(path)).toBe(404);
});
