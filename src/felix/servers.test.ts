import { expect, test } from "bun:test";
import { HealthAggregator } from "../lib/http/health.ts";
import { silentLogger } from "../lib/log/log.ts";
import { MetricsRegistry } from "../lib/metrics.ts";
import { HealthServer } from "./health-server.ts";
import { MetricsServer } from "./metrics/metrics-server.ts";

async function listening(server: { readonly port: number | undefined }): Promise<number> {
  for (let i = 0; i < 500; i++) {
    if (server.port !== undefined) return server.port;
    await new Promise((resolve) => setTimeout(resolve, 2));
  }
  throw new Error("the server does not listen");
}

test("FC-095 FC-096 probes return a table of health reports, and 503 if a report is bad or missing", async () => {
  const health = new HealthAggregator();
  const startup = health.register("FelixStartup", { live: true, ready: true });
  const graph = health.register("CalculationGraph", { live: true, ready: true }, 30_000);
  const server = new HealthServer(health, silentLogger);
  try {
    server.serve({ host: "127.0.0.1", port: 0 });
    const base = `http://127.0.0.1:${await listening(server)}`;
    startup({ live: true, ready: true });
    expect((await fetch(`${base}/readiness`)).status).toBe(503);
    graph({ live: true, ready: true });
    const answer = await fetch(`${base}/readiness`);
    expect(answer.status).toBe(200);
    expect(await answer.text()).toBe(
      [
        "+------------------+---------+----------------+-----------------+--------+",
        "| COMPONENT        | TIMEOUT | LIVENESS       | READINESS       | DETAIL |",
        "+------------------+---------+----------------+-----------------+--------+",
        "| CalculationGraph | 30s     | reporting live | reporting ready |        |",
        "| FelixStartup     | -       | reporting live | reporting ready |        |",
        "+------------------+---------+----------------+-----------------+--------+",
        "",
      ].join("\n"),
    );
    expect((await fetch(`${base}/liveness`)).status).toBe(200);
    const unknown = await fetch(`${base}/other`);
    expect([unknown.status, unknown.headers.get("content-type"), await unknown.text()]).toEqual([
      404,
      "text/plain; charset=utf-8",
      "404 page not found\n",
    ]);
    server.serve(undefined);
    await expect(fetch(`${base}/liveness`)).rejects.toThrow();
  } finally {
    server.close();
  }
});

test("FC-097 watchdog timeouts can be overridden at run time", () => {
  let now = 0;
  const health = new HealthAggregator(() => now);
  health.register("CalculationGraph", { live: true }, 30_000)({ live: true });
  now = 31_000;
  expect(health.liveness().status).toBe(503);
  health.overrideTimeouts(new Map([["CalculationGraph", 60_000]]));
  expect(health.liveness().status).toBe(200);
});

test("FC-095 retries a port that is in use", async () => {
  const first = new HealthServer(new HealthAggregator(), silentLogger);
  const second = new HealthServer(new HealthAggregator(), silentLogger);
  try {
    first.serve({ host: "127.0.0.1", port: 0 });
    const port = await listening(first);
    second.serve({ host: "127.0.0.1", port });
    await new Promise((resolve) => setTimeout(resolve, 20));
    expect(second.port).toBeUndefined();
    first.close();
    expect(await listening(second)).toBe(port);
  } finally {
    first.close();
    second.close();
  }
});

test("FC-099 serves metrics at /metrics", async () => {
  const registry = new MetricsRegistry();
  registry.gauge("felix_host", "This host.").set(1, { host: "here" });
  const server = new MetricsServer(
    registry,
    {
      PrometheusMetricsHost: "127.0.0.1",
      PrometheusMetricsPort: 0,
      PrometheusMetricsCAFile: "",
      PrometheusMetricsCertFile: "",
      PrometheusMetricsKeyFile: "",
      PrometheusMetricsClientAuth: "NoClientCert",
    },
    silentLogger,
  );
  try {
    server.start();
    const answer = await fetch(`http://127.0.0.1:${await listening(server)}/metrics`);
    expect(answer.headers.get("content-type")).toContain("version=0.0.4");
    expect(await answer.text()).toContain('felix_host{host="here"} 1');
  } finally {
    server.close();
  }
});
