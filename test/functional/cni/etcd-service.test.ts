// The node-local service on etcd: pods that come together share their writes, and an etcd that is silent or gone does not
// make anybody wait beyond the deadline.
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, expect, test } from "bun:test";
import { eventually } from "../../../src/lib/testing/eventually.ts";
import { canRun, CniHost } from "./cni-host.ts";
import { CONF, cluster, hasEtcd, startEtcd } from "./etcd-host.ts";
import { OnDemand } from "./on-demand.ts";

describe.skipIf(!canRun || !hasEtcd)("service on etcd", () => {
  test("thirty pods at once, twice: each its own address, and nothing is left", async () => {
    await using host = await CniHost.create();
    const { call, left } = await cluster(host);
    const pods = Array.from({ length: 30 }, () => host.pod());
    for (let round = 0; round < 2; round++) {
      const runs = await Promise.all(pods.map((pod, i) => call("ADD", pod, i)));
      expect(runs.filter(({ code }) => code !== 0)).toEqual([]);
      const addresses = runs.map((run) => (run.json["ips"] as { address: string }[])[0]!.address);
      expect(new Set(addresses).size).toBe(30);
      expect(await left()).toEqual({ allocations: 30, handles: 30, endpoints: 30 });
      expect(host.workloadLinks()).toHaveLength(30);
      const gone = await Promise.all(pods.map((pod, i) => call("DEL", pod, i)));
      expect(gone.filter(({ code }) => code !== 0)).toEqual([]);
      expect(await left()).toEqual({ allocations: 0, handles: 0, endpoints: 0 });
      expect(host.workloadLinks()).toEqual([]);
    }
  }, 120_000);

  test("while etcd is silent ADD and DEL say so in time, all at once; afterwards nothing is left", async () => {
    await using host = await CniHost.create();
    const { etcd, call, left } = await cluster(host);
    const pods = Array.from({ length: 5 }, () => host.pod());
    expect(await call("ADD", pods[0]!, 0)).toMatchObject({ code: 0 });
    etcd.kill("SIGSTOP");
    const started = performance.now();
    const adding = pods.slice(1).map((pod, i) => call("ADD", pod, i + 1));
    const refused = await Promise.all([...adding, call("DEL", pods[0]!, 0)]);
    const seconds = (performance.now() - started) / 1000;
    etcd.kill("SIGCONT");
    expect(refused.map(({ code, json }) => [code, json["code"]])).toEqual(refused.map(() => [1, 11]));
    expect(seconds).toBeLessThan(10);
    const gone = await Promise.all(pods.map((pod, i) => call("DEL", pod, i)));
    expect(gone.filter(({ code }) => code !== 0)).toEqual([]);
    expect(await left()).toEqual({ allocations: 0, handles: 0, endpoints: 0 });
    expect(host.workloadLinks()).toEqual([]);
  }, 120_000);

  test("one that the first call starts serves the next; other endpoints and a renewed certificate are not its business", async () => {
    await using host = await CniHost.create();
    const { left } = await startEtcd(host);
    const ca = join(host.folder, "ca.pem"); // which no connection without TLS looks at
    writeFileSync(ca, "1");
    using demand = new OnDemand(host, 60, { ...CONF, etcd_ca_cert_file: ca });
    const pod = host.pod("cid1");
    expect(await demand.add(pod)).toMatchObject({ code: 0 });
    const pid = await eventually(() => demand.listening());
    expect(await left()).toEqual({ allocations: 1, handles: 1, endpoints: 1 });
    expect(await demand.del(pod)).toMatchObject({ code: 0, stdout: "" });
    expect(await demand.add(pod)).toMatchObject({ code: 0 });
    expect(demand.served()).toEqual(["DEL cid1", "ADD cid1"]);
    const other = { conf: { etcd_endpoints: "http://localhost:2379" } }; // the same by another name
    expect(await demand.del(pod, other)).toMatchObject({ code: 0, stdout: "" });
    writeFileSync(ca, "renewed");
    expect(await demand.del(pod)).toMatchObject({ code: 0, stdout: "" });
    expect(demand.served()).toHaveLength(2);
    await eventually(() => !demand.running().includes(pid));
    expect(demand.log()).toContain(`why="${ca} has changed"`);
    expect(await left()).toEqual({ allocations: 0, handles: 0, endpoints: 0 });
  }, 120_000);
});
