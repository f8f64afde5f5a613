// Tests the CNI service on etcd: with many concurrent pods, and with an etcd that does not respond.
import { describe, expect, test } from "bun:test";
import { canRun, CniHost } from "./cni-host.ts";
import { cluster, hasEtcd } from "./etcd-host.ts";

describe.skipIf(!canRun || !hasEtcd)("service on etcd", () => {
  test("thirty concurrent pods, twice: each gets its own address, and DEL removes everything", async () => {
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

  test("while etcd does not respond, concurrent ADD and DEL fail within the deadline; a later DEL removes everything", async () => {
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
});
