import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "bun:test";
import { openSqliteInMemory, Unavailable } from "../../datastore/index.ts";
import { createLogger, type LogRecord } from "../../lib/log/log.ts";
import { API_VERSION } from "../../model/index.ts";
import { asCniError } from "../error.ts";
import { checkDatastoreReady, waitForReadinessGates } from "./readiness.ts";
import { mesosLabels } from "../request/mesos-labels.ts";
import { parseNetConf } from "../request/net-conf.ts";
import { FELIX_ALIVE_FILE, waitForPolicy } from "./wait-for-policy.ts";

async function storeWith(spec: object | undefined) {
  const store = await openSqliteInMemory();
  const key = { type: "resource", kind: "ClusterInformation", name: "default" } as const;
  if (spec !== undefined)
    await store.create({
      key,
      value: { apiVersion: API_VERSION, kind: "ClusterInformation", metadata: { name: "default" }, spec },
    });
  return store;
}

test("CI-013 the datastore must be marked as ready", async () => {
  await checkDatastoreReady(await storeWith({ datastoreReady: true }));
  for (const spec of [{ datastoreReady: false }, {}])
    await expect(checkDatastoreReady(await storeWith(spec))).rejects.toThrow(
      "Calico is currently not ready to process requests",
    );
  await expect(checkDatastoreReady(await storeWith(undefined))).rejects.toThrow(/ClusterInformation\(default\)/);
});

test("CI-006 the code is 11 if the datastore does not respond, and 999 for other errors", () => {
  expect(asCniError(new Unavailable("http://e:2379", "connection refused"))).toMatchObject({ code: 11 });
  expect(asCniError(new DOMException("t", "TimeoutError"))).toMatchObject({ code: 11 });
  expect(asCniError(new Error("outer", { cause: new Error("inner") }))).toMatchObject({
    code: 999,
    message: "outer: inner",
  });
});

test("CI-014 each readiness gate must return a status from 200 to 399; an invalid URL is rejected immediately", async () => {
  let requests = 0;
  await using server = Bun.serve({
    port: 0,
    fetch: ({ url }) =>
      new Response("", { status: url.endsWith("/late") && ++requests < 3 ? 503 : 302, headers: { location: "/" } }),
  });
  await waitForReadinessGates([`${server.url}late`, `${server.url}other`], 1);
  expect(requests).toBe(3);
  for (const gate of ["nope", "file:///etc/passwd"])
    await expect(waitForReadinessGates([gate], 1)).rejects.toThrow(/want an http or https URL/);
});

test("CI-038 Mesos labels are converted to valid labels, and one of them sets the namespace", () => {
  const labels = [
    { key: "a/b c", value: "x!!y" },
    { key: "-k.-.l-", value: ".v-" },
    { key: "projectcalico.org/namespace", value: "ns" },
  ];
  const conf = parseNetConf({ name: "n", args: { "org.apache.mesos": { network_info: { labels: { labels } } } } });
  expect(mesosLabels(conf)).toEqual({ labels: { "a.b-c": "x-y", "k.l": "v" }, namespace: "ns" });
});

test("CI-040 ADD waits for Felix's status file until the timeout, and only while Felix is running", async () => {
  const folder = mkdtempSync(join(tmpdir(), "cni-wait-"));
  try {
    const endpoint_status_dir = join(folder, "endpoint-status");
    mkdirSync(endpoint_status_dir);
    const records: LogRecord[] = [];
    const log = createLogger({ level: "debug", write: (record) => records.push(record) });
    const identity = {
      orchestrator: "k8s",
      node: "n",
      namespace: "ns",
      pod: "p",
      containerId: "c",
      endpoint: "eth0",
    } as const;
    const wait = async (policy_setup_timeout_seconds: number, more = {}): Promise<number> => {
      const start = performance.now();
      const conf = parseNetConf({ name: "n", endpoint_status_dir, policy_setup_timeout_seconds });
      await waitForPolicy({ conf, identity, log, ...more }, undefined);
      return performance.now() - start;
    };
    expect(await wait(10)).toBeLessThan(1000); // Felix is not running
    writeFileSync(join(folder, FELIX_ALIVE_FILE), "");
    expect(await wait(0)).toBeLessThan(1000); // waiting is disabled
    expect(await wait(1)).toBeGreaterThanOrEqual(990);
    expect(records.map((r) => r.level)).toEqual(["warn"]);
    expect(await wait(10, { isCallerConnected: () => false })).toBeLessThan(1000); // the caller has disconnected
    const waiting = wait(10);
    writeFileSync(join(endpoint_status_dir, "k8s ns%2Fp eth0"), "{}");
    expect(await waiting).toBeLessThan(2000);
    const container = wait(10, { identity: { ...identity, orchestrator: "cni", pod: "" } });
    writeFileSync(join(endpoint_status_dir, "cni ns%2Fc eth0"), "{}");
    expect(await container).toBeLessThan(2000);
  } finally {
    rmSync(folder, { recursive: true });
  }
});
