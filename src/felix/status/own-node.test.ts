import { expect, test } from "bun:test";
import type { SyncerUpdate } from "../../datastore/index.ts";
import { HealthAggregator } from "../../lib/http/health.ts";
import { createLogger } from "../../lib/log/log.ts";
import { OwnNodeReporter } from "./own-node.ts";

const update = (name: string, exists: boolean): SyncerUpdate =>
  ({
    key: { type: "resource", kind: "Node", name },
    value: exists ? { kind: "Node", metadata: { name }, spec: {} } : undefined,
  }) as unknown as SyncerUpdate;

function open() {
  const lines: string[] = [];
  const health = new HealthAggregator();
  const ready = health.register("CalculationGraph", { live: true, ready: true });
  ready({ live: true, ready: true });
  const reporter = new OwnNodeReporter({
    host: "n1",
    log: createLogger({
      level: "info",
      write: ({ level, message }) => lines.push(`${level} ${message.split(":")[0]}`),
    }),
    health: () => health.register("Node", {}),
  });
  return { lines, health, reporter };
}

test("reports a deleted Node once in the log and on the health page, and again when it exists", () => {
  const { lines, health, reporter } = open();
  reporter.onUpdates([update("n1", true), update("n2", true)]);
  reporter.onStatus("in-sync");
  reporter.onUpdates([update("n2", false)]);
  expect(lines).toEqual([]);
  expect(health.readiness().body).not.toContain("Node");
  reporter.onUpdates([update("n1", false)]);
  reporter.onUpdates([update("n3", true)]);
  expect(lines).toEqual(["warn the datastore has no Node for this host"]);
  const { status, body } = health.readiness();
  expect(status).toBe(200);
  expect(body).toContain("Node n1 is not in the datastore");
  expect(health.liveness().status).toBe(200);
  reporter.onUpdates([update("n1", true)]);
  expect(lines.at(-1)).toBe("info the datastore has a Node for this host again");
  expect(health.readiness().body).not.toContain("not in the datastore");
});

test("reports a Node that never existed once the datastore is in sync", () => {
  const { lines, reporter } = open();
  reporter.onStatus("resync");
  reporter.onUpdates([update("n2", true)]);
  expect(lines).toEqual([]);
  reporter.onStatus("in-sync");
  expect(lines).toHaveLength(1);
  // While the datastore is unavailable, the state of the Node is unknown.
  reporter.onStatus("wait-for-ready");
  reporter.onStatus("in-sync");
  expect(lines).toHaveLength(1);
});
